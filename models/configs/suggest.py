"""Suggest valid names for an unknown one. Importable without torch."""

from collections.abc import Iterable
from difflib import get_close_matches

SHORT = 100
"""Characters of a list of names that fits into an error's line."""


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Return at most three of ``names`` that look like ``word`` in any case, the most similar first; where there are
    none, three that contain it."""
    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(word.lower(), by_lower, n=3)
    if not near and len(word) > 1:
        near = [name for name in by_lower if word.lower() in name][:3]
    return [by_lower[name] for name in near]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the most similar of ``names``, or an empty text if none is similar."""
    near = nearest(word, names)
    return f"; did you mean {join_or(near)}?" if near else ""


def choices(word: str, names: Iterable[str], listed_by: str = "") -> str:
    """Return the end of an error's line: the most similar of ``names``, then all of them, or the command
    ``listed_by`` that lists them where they are many."""
    names = list(names)
    near, all_names = nearest(word, names), ", ".join(names)
    question = f"did you mean {join_or(near)}? " if near else ""
    if not listed_by or len(all_names) <= SHORT:
        return f"{question}choose from {all_names}"
    return f"{question}{listed_by} names all {len(names)}"


def join_or(names: list[str]) -> str:
    """Return ``A, B or C``."""
    return " or ".join(", ".join(names).rsplit(", ", 1))
