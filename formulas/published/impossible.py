"""Integer arguments that no counting rule can print a set of rows.

A rule counts each contraction a whole number of times, the same in every row, and prints to a fixed step. Two
rows a and b then differ by sum_j n_j (size_j in b - size_j in a) with n_j >= 0, and their printed values
differ from that by less than one step. Contractions of equal size in both rows cancel.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
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
    for of_pairs, text in chain(_between_multiples(pairs), _different_multiples(pairs)):
        for row in (row for pair in of_pairs for row in (pair.a, pair.b)):
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


def _between_multiples(pairs: Iterable[Pair]) -> Iterator[tuple[Sequence[Pair], str]]:
    for pair in pairs:
        unit = gcd(*pair.deltas.values())
        if not (fitting := pair.multiples(unit)):
            names = ", ".join(f"{_short(path)} {kind}" for path, kind in pair.deltas)
            less, more = (f"{n} x {unit:,} = {n * unit:,}" for n in (fitting.start - 1, fitting.start))
            yield (
                [pair],
                f"{pair.a.name} and {pair.b.name} print {pair.gap:,} apart; every contraction in which they differ "
                f"({names}) does so by a multiple of {unit:,}, and {less} is too little, {more} too much",
            )


def _different_multiples(pairs: Iterable[Pair]) -> Iterator[tuple[Sequence[Pair], str]]:
    for both in combinations([pair for pair in pairs if len(pair.deltas) == 1], 2):
        (key, delta), (other, delta_two) = (*both[0].deltas.items(), *both[1].deltas.items())
        fits = [{n for n in pair.multiples(d) if n >= 0} for pair, d in zip(both, (delta, delta_two), strict=True)]
        if key == other and not fits[0] & fits[1]:
            parts = [
                f"{pair.a.name} and {pair.b.name} by {d:,}, printed {pair.gap:,} apart, so it is counted {_times(n)}"
                for pair, d, n in zip(both, (delta, delta_two), fits, strict=True)
            ]
            yield both, f"only {_short(key[0])} differs: {'; '.join(parts)}"


def _short(path: str) -> str:
    return path.rpartition("*.")[2]


def _times(numbers: set[int]) -> str:
    if not numbers:
        return "no whole number of times"
    return "once" if numbers == {1} else " or ".join(str(n) for n in sorted(numbers)) + " times"
