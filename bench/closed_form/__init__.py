"""Closed forms of configurations: derived from counts at a few lengths, and proved by counts at others."""
