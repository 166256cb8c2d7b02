"""What an attention layer costs: closed forms, counted multiply-accumulates and wall-clock, and where they differ."""

from pathlib import Path

CHECKOUT = None if Path(__file__).with_name("bench").is_dir() else Path(__file__).resolve().parents[1]
"""The root of the repository where this runs from one: the rooms stand beside this folder. A wheel has them in it."""

if CHECKOUT:
    __path__.append(str(CHECKOUT))
