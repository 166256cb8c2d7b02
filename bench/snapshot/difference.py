"""Compare two count snapshots: the terms and parameters that changed, were added or removed, by module names."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from math import prod

from headcount.bench.contractions.summary import folded
from headcount.bench.snapshot.file import natural
from headcount.bench.snapshot.snapshot import CountSnapshot

CHANGED, ADDED, REMOVED = "changed", "added", "removed"

LETTERS = "bmijn"
"""The order in which sizes are printed."""

Sizes = tuple[tuple[str, int], ...]
"""Sizes by letter."""
Account = Mapping[tuple[str, str, Sizes], int]
"""Repetitions of each term or parameter by module path, kind and sizes."""
Side = tuple[Sizes, int]
"""Sizes and repetitions of a term in one of two snapshots."""


@dataclass(frozen=True)
class Change:
    """One changed row; ``old`` is None where it was added, ``new`` where it was removed.

    ``path`` may stand for several ``modules`` with the same change each: ``layers.3-7.proj``.
    """

    path: str
    kind: str
    old: Side | None
    new: Side | None
    modules: int = 1

    @property
    def what(self) -> str:
        """The kind of change."""
        return ADDED if self.old is None else REMOVED if self.new is None else CHANGED

    @property
    def amounts(self) -> tuple[int, int]:
        """MACs, or elements, of all modules in the old and in the new snapshot."""
        old, new = (side[1] * _product(side[0]) if side else 0 for side in (self.old, self.new))
        return self.modules * old, self.modules * new

    def text(self) -> str:
        """Return the number of modules and the sizes, of a change as ``3 x m=35 i=6->8``."""
        sides = [side for side in (self.old, self.new) if side]
        letters = [[letter for letter, _ in sizes] for sizes, _ in sides]
        if letters[0] == letters[-1]:
            sizes = [f"{letter}={_arrow(side[0][at][1] for side in sides)}" for at, letter in enumerate(letters[0])]
            text = _times(_arrow(times for _, times in sides), " ".join(sizes))
        else:
            text = " -> ".join(
                _times(str(times), " ".join(f"{letter}={size}" for letter, size in sizes)) for sizes, times in sides
            )
        return _times(str(self.modules), text)


@dataclass(frozen=True)
class Difference:
    """The changes from one account to another, the number of ``equal`` rows, and the ``totals`` of both accounts."""

    changes: tuple[Change, ...]
    equal: int
    totals: tuple[int, int]

    @property
    def equal_size(self) -> int:
        """MACs, or elements, of the equal rows."""
        return self.totals[0] - sum(change.amounts[0] for change in self.changes)

    def summary(self) -> str:
        """Return how many rows changed, were added and removed."""
        found = Counter({what: 0 for what in (CHANGED, ADDED, REMOVED)})
        for change in self.changes:
            found[change.what] += change.modules
        return ", ".join(f"{number} {what}" for what, number in found.items() if number) or "none changed"


def terms(old: CountSnapshot, new: CountSnapshot) -> Difference:
    """Return the difference of the contractions that ``macs`` includes."""
    return _difference(_terms(old, counted=True), _terms(new, counted=True))


def elementwise(old: CountSnapshot, new: CountSnapshot) -> Difference:
    """Return the difference of the contractions written elementwise that ``macs`` does not include."""
    return _difference(_terms(old, counted=False), _terms(new, counted=False))


def parameters(old: CountSnapshot, new: CountSnapshot) -> Difference:
    """Return the difference of the parameters; frozen and trained ones are different kinds."""
    return _difference(_parameters(old), _parameters(new))


def _terms(snapshot: CountSnapshot, counted: bool) -> Account:
    account: Counter = Counter()
    for term in snapshot.terms:
        if snapshot.counts(term) == counted:
            sizes = sorted(term.dims.items(), key=lambda size: (LETTERS.find(size[0]), size))
            account[term.path, term.kind, tuple(sizes)] += term.times
    return account


def _parameters(snapshot: CountSnapshot) -> Account:
    return Counter(
        (one.path, "trained" if one.trainable else "frozen", tuple((f"n{axis}", n) for axis, n in enumerate(one.shape)))
        for one in snapshot.parameters
    )


def _difference(old: Account, new: Account) -> Difference:
    places: dict[tuple[str, str], tuple[list[Side], list[Side]]] = {}
    for side, rows in enumerate((old.items() - new.items(), new.items() - old.items())):
        for (path, kind, sizes), times in rows:
            places.setdefault((path, kind), ([], []))[side].append((sizes, times))
    changes = [
        Change(path, kind, *pair)
        for (path, kind), (left, right) in places.items()
        for pair in zip_longest(sorted(left), sorted(right))
    ]
    changes.sort(key=lambda change: (natural(change.path), change.kind, change.what, change.text()))
    equal = len(old.items() & new.items())
    return Difference(tuple(_merge_layers(changes)), equal, (_total(old), _total(new)))


def _merge_layers(changes: Iterable[Change]) -> list[Change]:
    """Merge equal changes of modules whose paths differ in indices alone."""
    groups: dict[tuple, list[Change]] = {}
    for change in changes:
        groups.setdefault((folded(change.path), change.kind, change.old, change.new), []).append(change)
    return [
        replace(group[0], path=_merge_paths([change.path for change in group]), modules=len(group))
        for group in groups.values()
    ]


def _merge_paths(paths: Sequence[str]) -> str:
    """Return ``layers.0-2,5.proj`` for paths that differ in one index, ``layers.*.experts.*`` for several."""
    names = [sorted(set(column)) for column in zip(*(path.split(".") for path in paths), strict=True)]
    if sum(len(column) > 1 for column in names) > 1:
        return ".".join(column[0] if len(column) == 1 else "*" for column in names)
    return ".".join(column[0] if len(column) == 1 else _ranges(sorted(map(int, column))) for column in names)


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending integers as ``0-2,5``."""
    texts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        first, *others = [number for _, number in run]
        texts.append(f"{first}-{others[-1]}" if others else str(first))
    return ",".join(texts)


def _total(account: Account) -> int:
    return sum(times * _product(sizes) for (_, _, sizes), times in account.items())


def _product(sizes: Sizes) -> int:
    return prod(size for _, size in sizes)


def _arrow(values: Iterable[int]) -> str:
    """Return ``8``, or ``6->8`` for two different values."""
    return "->".join(dict.fromkeys(map(str, values)))


def _times(times: str, text: str) -> str:
    return text if times == "1" else f"{times} x {text}"
