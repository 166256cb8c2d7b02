"""``headcount lock``, ``hc.lock`` and the pytest fixture: store a cost, and fail when a term of it changes."""
