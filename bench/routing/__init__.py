"""``headcount routing``: tokens per expert or head of a trained model."""
