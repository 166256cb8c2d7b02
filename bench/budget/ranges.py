"""The sizes of a search as a user writes them."""

from collections.abc import Sequence

from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import Variant
from headcount.models.configs.nearest import choices


def parse_range(text: str, chosen: Variant) -> tuple[str, tuple[int, ...]]:
    """A letter and its sizes from ``K=4``, ``K=1,2,4``, ``K=1:64`` or ``K=8:64:8`` (both ends included)."""
    letter, _, sizes = text.partition("=")
    if letter not in chosen.search.letters:
        raise UsageError(f"unknown letter {letter!r}; {choices(letter, chosen.search.letters)}")
    try:
        if ":" in sizes:
            low, high, *step = (int(part) for part in sizes.split(":"))
            values = tuple(range(low, high + 1, *step))
        else:
            values = tuple(sorted({int(part) for part in sizes.split(",")}))
    except (ValueError, TypeError):
        raise UsageError(f"malformed range {text!r}; write K=4, K=1,2,4, K=1:64 or K=8:64:8") from None
    least = chosen.search.letters[letter].least
    if not values or min(values) < least:
        raise UsageError(f"the range {text!r} must hold sizes of at least {least}")
    return letter, values


def chosen_ranges(texts: Sequence[str], chosen: Variant, any_size: bool) -> dict[str, Sequence[int]]:
    """The sizes of every letter: those of ``texts``, else every integer where ``any_size``, else friendly ones."""
    given = dict(parse_range(text, chosen) for text in texts)
    return {
        letter: given.get(letter, known.any_size if any_size else known.friendly)
        for letter, known in chosen.search.letters.items()
    }
