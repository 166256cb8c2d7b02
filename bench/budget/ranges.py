"""The sizes of a search as a user writes them."""

from collections.abc import Sequence
from itertools import islice

from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import Variant
from headcount.models.configs.numbers import whole
from headcount.models.configs.suggest import choices

MOST = 10_000
"""Sizes of a letter; a model is built for each."""


def parse_range(text: str, chosen: Variant) -> tuple[str, tuple[int, ...]]:
    """A letter and its sizes from ``K=4``, ``K=1,2,4``, ``K=1:64`` or ``K=8:64:8`` (both ends included)."""
    letter, _, sizes = text.partition("=")
    if letter not in chosen.search.letters:
        raise UsageError(f"unknown letter {letter!r}; {choices(letter, chosen.search.letters)}")
    try:
        values = _between(*map(whole, sizes.split(":"))) if ":" in sizes else {whole(part) for part in sizes.split(",")}
    except (ValueError, TypeError):
        raise UsageError(f"malformed range {text!r}; write K=4, K=1,2,4, K=1:64 or K=8:64:8") from None
    first = sorted(islice(values, MOST + 1))
    if len(first) > MOST:
        raise UsageError(f"the range {text!r} holds more than {MOST:,} sizes; take larger steps")
    least = chosen.search.letters[letter].least
    if not first or first[0] < least:
        raise UsageError(f"the range {text!r} must hold sizes of at least {least}")
    return letter, tuple(first)


def _between(low: int, high: int, step: int = 1) -> range:
    if step < 1:
        raise ValueError(step)
    return range(low, high + 1, step)


def chosen_ranges(texts: Sequence[str], chosen: Variant, any_size: bool) -> dict[str, Sequence[int]]:
    """The sizes of every letter: those of ``texts``, else every integer where ``any_size``, else friendly ones."""
    given = dict(parse_range(text, chosen) for text in texts)
    return {
        letter: given.get(letter, known.any_size if any_size else known.friendly)
        for letter, known in chosen.search.letters.items()
    }
