"""A sentence for a review: what the verdicts on each column of a user's table say."""

from collections import Counter
from collections.abc import Mapping, Sequence

from headcount.formulas.published.figures import LAST_ZEROS
from headcount.formulas.published.verdicts import ANOTHER_UNIT, Judged

DIGITS = {LAST_ZEROS: "with last zeros that are no digits", "rounded half up": "rounded"}
"""Words of a review for how numbers are printed, where they are others than those of a verdict."""


def review(cells: Sequence[Judged], uncounted: Mapping[str, int]) -> list[str]:
    """Return a sentence for a review: of each column, which numbers are reproduced, hold another cost, have other
    digits, and should be what. ``uncounted``: how many of a column have no count, by its head."""
    columns: dict[str, list[Judged]] = {}
    for cell in cells:
        if cell.verdict != "no printed value":
            columns.setdefault(cell.figure.head, []).append(cell)
    texts = [f"{head}: {_column(found, uncounted.get(head, 0))}" for head, found in columns.items()]
    return [f"For a review: {'; '.join(texts)}."] if texts else []


def _column(cells: Sequence[Judged], uncounted: int) -> str:
    """Return what the verdicts on a column say, in words."""
    total, parts = len(cells) + uncounted, list[str]()
    found = Counter(_finding(cell) for cell in cells)
    # first what is right
    for what, times in sorted(found.items(), key=lambda item: item[0] != "reproduced"):
        if what:
            whole = {1: "the one number", 2: "both"}.get(total, f"all {total}")
            one = what.replace("hold ", "holds ") if times == 1 else what
            parts.append(f"{whole if times == total else f'{times} of {total}'} {one}")
    if uncounted:
        parts.append(f"{uncounted} of {total} not counted")
    for digits in dict.fromkeys(cell.digits for cell in cells if cell.digits):
        named = [_named(cell) for cell in cells if cell.digits == digits]
        parts.append(f"{shortened(named, ', ')} {DIGITS.get(digits, digits)}")
    for by in dict.fromkeys(cell.by for cell in cells if cell.by):
        named = [_named(cell) for cell in cells if cell.by == by]
        one, several = ("is in", "are in") if by == ANOTHER_UNIT else ("counts", "count")
        parts.append(f"{shortened(named, ', ')} {one if len(named) == 1 else several} {by}")
    # all of them: a wrong number that is left out seems right
    wrong = [f"{_named(cell)} should be {cell.instead}" for cell in cells if cell.instead]
    return "; ".join(", ".join(one) for one in (parts, wrong) if one)


def _finding(cell: Judged) -> str:
    """Return what is counted of the cells of a column: the cost that they hold, that they are reproduced, or are wrong;
    empty for those that are named one by one."""
    if cell.verdict in ("no rule found", "not reproducible"):
        return "printed by no rule that was tried"
    return f"hold {cell.holds}" if cell.holds else "reproduced" if cell.verdict == "reproduced" else ""


def _named(cell: Judged) -> str:
    return f"{cell.row.number(cell.figure)} ({cell.row.name})"


def shortened(texts: Sequence[str], between: str = "; ") -> str:
    """Return the first three of ``texts`` and the number of others."""
    rest = [f"and {len(texts) - 3:,} more"] if len(texts) > 3 else []
    return between.join([*texts[:3], *rest])
