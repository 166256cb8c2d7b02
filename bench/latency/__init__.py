"""``headcount latency``: time layers and models, each checked against a reference, beside a roofline bound."""
