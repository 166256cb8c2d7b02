"""Sequences of one length, gone through side by side."""

from functools import partial

abreast = partial(zip, strict=True)
"""``zip`` that raises ValueError where one ends before another."""
