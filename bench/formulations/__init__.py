"""Equivalent formulations of each layer, on which ``headcount audit`` compares counters."""
