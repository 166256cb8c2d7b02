"""What somebody may have meant by a name that there is not. Importable without torch."""

from collections.abc import Iterable
from difflib import get_close_matches

SHORT = 100
"""A list of names that fits an error's line."""


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """At most three of ``names`` that look like ``word``, whatever the case of its letters, the nearest first; else
    three that hold it."""
    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(word.lower(), by_lower, n=3) or [name for name in by_lower if word.lower() in name][:3]
    return [by_lower[name] for name in near]


def meant(word: str, names: Iterable[str]) -> str:
    """A question that ends a line of an error; empty where no name is like ``word``."""
    near = nearest(word, names)
    return f"; did you mean {_or(near)}?" if near else ""


def choices(word: str, names: Iterable[str], listed_by: str = "") -> str:
    """The end of an error's line: the nearest of ``names``, then all of them, or the command that lists them where
    they are many."""
    names = list(names)
    near, whole = nearest(word, names), ", ".join(names)
    question = f"did you mean {_or(near)}? " if near else ""
    if not listed_by or len(whole) <= SHORT:
        return f"{question}choose from {whole}"
    return f"{question}{listed_by} names all {len(names)}"


def _or(names: list[str]) -> str:
    return " or ".join(", ".join(names).rsplit(", ", 1))
