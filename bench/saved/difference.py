"""How two kept counts differ: the terms and parameters that changed, appeared or vanished, by the module's names."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headcount.bench.contractions.summary import folded, sizes
from headcount.bench.saved.file import natural
from headcount.bench.saved.saved import Saved
from headcount.formulas.ledger import Entry

CHANGED, APPEARED, VANISHED = "changed", "appeared", "vanished"


@dataclass(frozen=True)
class Line:
    """A term or a parameter as it is compared: where, of which kind, its sizes, how often, how much in all."""

    path: str
    kind: str
    sizes: tuple[tuple[str, int], ...]
    times: int
    size: int

    def letters(self) -> set[str]:
        return {letter for letter, _ in self.sizes}

    def text(self) -> str:
        """Its sizes: ``3 x m=35 i=6 j=18``."""
        return sizes(Entry(self.path, "linear", dict(self.sizes), times=self.times))


@dataclass(frozen=True)
class Change:
    """One line of a difference: ``old`` None for what appeared, ``new`` None for what vanished.

    ``path`` may stand for several modules, ``layers.3-7.proj``, with the same change each: ``modules`` of them.
    """

    path: str
    old: Line | None
    new: Line | None
    modules: int = 1

    @property
    def what(self) -> str:
        return APPEARED if self.old is None else VANISHED if self.new is None else CHANGED

    @property
    def kind(self) -> str:
        return (self.old or self.new).kind

    def amount(self, side: Line | None) -> int:
        """What ``old`` or ``new`` costs in all the modules; 0 for a side that is not there."""
        return self.modules * side.size if side else 0

    def text(self) -> str:
        """The sizes, of a change as ``m=35 i=6->8``, and in how many modules."""
        if self.old is None or self.new is None:
            text = (self.old or self.new).text()
        elif self.old.letters() != self.new.letters():
            text = f"{self.old.text()} -> {self.new.text()}"
        else:
            new = dict(self.new.sizes)
            text = " ".join(f"{letter}={_step(size, new[letter])}" for letter, size in self.old.sizes)
            if (times := _step(self.old.times, self.new.times)) != "1":
                text = f"{times} x {text}"
        return f"{self.modules} x {text}" if self.modules > 1 else text


@dataclass(frozen=True)
class Difference:
    """The changes between two counts in one account, and what is equal in both: so many lines, so much in all."""

    changes: tuple[Change, ...]
    equal: int
    equal_size: int

    @property
    def totals(self) -> tuple[int, int]:
        """Of the old and of the new count, what is equal included."""
        before = sum(change.amount(change.old) for change in self.changes)
        after = sum(change.amount(change.new) for change in self.changes)
        return self.equal_size + before, self.equal_size + after

    def summary(self) -> str:
        """How many lines changed, appeared and vanished, in words."""
        found: Counter[str] = Counter()
        for change in self.changes:
            found[change.what] += change.modules
        parts = [f"{found[what]} {what}" for what in (CHANGED, APPEARED, VANISHED) if found[what]]
        return ", ".join(parts) or "none changed"


def terms(old: Saved, new: Saved) -> Difference:
    """The difference in the contractions that are in ``macs``."""
    return _difference(_terms(old, True), _terms(new, True))


def beside(old: Saved, new: Saved) -> Difference:
    """The difference in contractions that are named beside ``macs``: those written elementwise."""
    return _difference(_terms(old, False), _terms(new, False))


def parameters(old: Saved, new: Saved) -> Difference:
    """The difference in parameters; frozen ones are another kind."""
    return _difference(_parameters(old), _parameters(new))


def _step(old: int, new: int) -> str:
    return str(old) if old == new else f"{old}->{new}"


def _terms(saved: Saved, counted: bool) -> list[Line]:
    """Each distinct product of each module once, with all its repetitions."""
    times: Counter[tuple] = Counter()
    for term in saved.terms:
        if saved.counts(term) == counted:
            times[term.path, term.kind, tuple(term.dims.items())] += term.times
    return [
        Line(path, kind, dims, n, Entry(path, kind, dict(dims), times=n).size)
        for (path, kind, dims), n in times.items()
    ]


def _parameters(saved: Saved) -> list[Line]:
    return [
        Line(one.path, "trained" if one.trainable else "frozen", _axes(one.shape), 1, one.params)
        for one in saved.parameters
    ]


def _axes(shape: Sequence[int]) -> tuple[tuple[str, int], ...]:
    return tuple((f"n{axis}", size) for axis, size in enumerate(shape))


def _difference(old: Iterable[Line], new: Iterable[Line]) -> Difference:
    before, after = Counter(old), Counter(new)
    same = before & after
    changes = []
    left, right = _by_place(before - same), _by_place(after - same)
    for place in {**left, **right}:
        changes += [Change(place[0], *pair) for pair in _pairs(left.get(place, []), right.get(place, []))]
    changes.sort(key=lambda change: (natural(change.path), change.kind, change.what, change.text()))
    return Difference(tuple(_folded(changes)), same.total(), sum(line.size * n for line, n in same.items()))


def _by_place(lines: Counter[Line]) -> dict[tuple[str, str], list[Line]]:
    """Lines by module and kind."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines.elements():
        found.setdefault((line.path, line.kind), []).append(line)
    return found


def _pairs(old: Sequence[Line], new: Sequence[Line]) -> list[tuple[Line | None, Line | None]]:
    """Each of one module's and kind's lines with the other that is most like it, while there are any."""
    choices = [(-_alike(a, b), i, j) for i, a in enumerate(old) for j, b in enumerate(new)]
    left, right, pairs = dict(enumerate(old)), dict(enumerate(new)), []
    for _, i, j in sorted(choices):
        if i in left and j in right:
            pairs.append((left.pop(i), right.pop(j)))
    return [*pairs, *((line, None) for line in left.values()), *((None, line) for line in right.values())]


def _alike(a: Line, b: Line) -> int:
    return len(set(a.sizes) & set(b.sizes)) + (a.times == b.times)


def _folded(changes: Iterable[Change]) -> list[Change]:
    """The same change of several modules that differ in an index alone as one."""
    groups: dict[tuple, list[Change]] = {}
    for change in changes:
        key = (folded(change.path), *(line and replace(line, path="") for line in (change.old, change.new)))
        groups.setdefault(key, []).append(change)
    return [replace(group[0], path=_common([c.path for c in group]), modules=len(group)) for group in groups.values()]


def _common(paths: Sequence[str]) -> str:
    """``layers.0-2,5.proj`` for paths that differ in one index, ``layers.*.experts.*`` where they do in several."""
    columns = list(zip(*(path.split(".") for path in paths), strict=True))
    several = sum(len(set(names)) > 1 for names in columns) > 1
    return ".".join(
        names[0] if len(set(names)) == 1 else "*" if several else _ranges(sorted({int(name) for name in names}))
        for names in columns
    )


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
