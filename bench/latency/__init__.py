"""``headcount latency``: time layers and models, checked against a reference, with a roofline bound."""
