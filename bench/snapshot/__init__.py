"""Locks: the file of a count, and the difference of two counts."""
