"""Count a target: what one run of it costs, or its closed form, and what other tools report of it."""
