"""Integer arguments that no counting rule can print a set of rows.

A rule counts each contraction a whole number of times, the same in every row, and prints to a fixed step. Two
rows a and b then differ by sum_j n_j (size_j in b - size_j in a) with n_j >= 0, and their printed values
differ from that by less than one step. Contractions of equal size in both rows cancel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd

from headcount.formulas.ledger import MAC_KINDS, Ledger


@dataclass(frozen=True)
class PrintedRow:
    """A row that prints ``printed`` MACs to a step of ``step`` MACs."""

    name: str
    printed: int
    step: int
    ledger: Ledger

    def contractions(self) -> dict[tuple[str, str], int]:
        """Return MACs by (module path, kind)."""
        return self.ledger.select(lambda entry: entry.kind in MAC_KINDS).group(lambda entry: (entry.path, entry.kind))


@dataclass(frozen=True)
class Pair:
    """Two rows with the same contractions; ``deltas``: size in b minus size in a, where they differ."""

    a: PrintedRow
    b: PrintedRow
    deltas: dict[tuple[str, str], int]

    @property
    def gap(self) -> int:
        """Difference of the printed numbers."""
        return self.b.printed - self.a.printed

    def multiples(self, unit: int) -> range:
        """Return every n for which n * unit is less than one step from the printed gap."""
        step = max(self.a.step, self.b.step)
        return range((self.gap - step) // unit + 1, -(-(self.gap + step) // unit))


def no_common_rule(rows: Sequence[PrintedRow]) -> dict[str, str]:
    """Return, by row name, a contradiction that the row is part of, as one sentence.

    Two kinds are found: a pair of rows that can differ only by multiples of a number, none of which is the printed
    gap; and two pairs that differ in the same single contraction and need different counts of it.
    """
    pairs = [pair for a, b in combinations(rows, 2) if (pair := _pair(a, b))]
    found: dict[str, str] = {}
    for pair in pairs:
        text = _between_multiples(pair)
        for row in (pair.a, pair.b) if text else ():
            found.setdefault(row.name, text)
    for one, two in combinations([pair for pair in pairs if len(pair.deltas) == 1], 2):
        text = _different_multiples(one, two)
        for row in (one.a, one.b, two.a, two.b) if text else ():
            found.setdefault(row.name, text)
    return found


def _pair(a: PrintedRow, b: PrintedRow) -> Pair | None:
    left, right = a.contractions(), b.contractions()
    if left.keys() != right.keys():
        return None
    deltas = {key: right[key] - left[key] for key in left if right[key] != left[key]}
    if len(deltas) == 1 and min(deltas.values()) < 0:
        return _pair(b, a)
    return Pair(a, b, deltas) if deltas else None


def _between_multiples(pair: Pair) -> str | None:
    unit = gcd(*pair.deltas.values())
    fitting = pair.multiples(unit)
    if fitting:
        return None
    names = ", ".join(f"{_short(path)} {kind}" for path, kind in pair.deltas)
    return (
        f"{pair.a.name} and {pair.b.name} print {pair.gap:,} apart; every contraction in which they differ "
        f"({names}) does so by a multiple of {unit:,}, and {fitting.start - 1} x {unit:,} = "
        f"{(fitting.start - 1) * unit:,} is too little, {fitting.start} x {unit:,} = {fitting.start * unit:,} too much"
    )


def _different_multiples(one: Pair, two: Pair) -> str | None:
    (key, delta), (other, delta_two) = *one.deltas.items(), *two.deltas.items()
    fits, fits_two = ({n for n in pair.multiples(d) if n >= 0} for pair, d in ((one, delta), (two, delta_two)))
    if key != other or fits & fits_two:
        return None
    return (
        f"only {_short(key[0])} differs: {one.a.name} and {one.b.name} by {delta:,}, printed {one.gap:,} apart, so it "
        f"is counted {_times(fits)}; {two.a.name} and {two.b.name} by {delta_two:,}, printed {two.gap:,} apart, so it "
        f"is counted {_times(fits_two)}"
    )


def _short(path: str) -> str:
    return path.rpartition("*.")[2]


def _times(numbers: set[int]) -> str:
    if not numbers:
        return "no whole number of times"
    return "once" if numbers == {1} else " or ".join(str(n) for n in sorted(numbers)) + " times"
