"""Tables of the difference of two counts: the changes by name, the equal rest and the totals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from headcount.bench.column import Column, plural
from headcount.bench.counting.result import Count
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.bench.snapshot import difference
from headcount.bench.snapshot.difference import ADDED, CHANGED, ELEMENTWISE, MACS, PARAMS, REMOVED, SENT


@dataclass(frozen=True)
class ChangeRow(Row):
    """A change, what is equal, a limit or a total, of a quantity of two counts.

    Attributes:
        target: what was counted, in a table of several targets.
        path: the modules; empty for what is equal and for totals.
        quantity: what is compared.
        kind: of products or parameters.
        what: changed, added, removed, equal, total, or whether a limit is met.
        sizes: number of modules and their sizes.
        failures: as of all rows.
    """

    target: str | None = shown(Column, "target", code=True, wraps=12)
    path: str = shown(Column, "module", code=True, wraps=20)
    quantity: str = shown(Column, "quantity", priority=0)
    kind: str = shown(Column, "kind", priority=4)
    what: str = shown(Column, "what", priority=0)
    sizes: str = shown(Column, "sizes", wraps=12)
    failures: Sequence[str] = field(default=(), kw_only=True)

    @property
    def total(self) -> bool:
        """Whether the row sums rows above it."""
        return not self.path


@dataclass(frozen=True)
class LockedChange(ChangeRow):
    """A change of a count from what was locked."""

    locked: int = shown(Column, "locked", kind="int", priority=2)
    counted: int = shown(Column, "counted", kind="int", priority=3)
    difference: int = shown(Column, "change", kind="int", sign=True, priority=0)
    percent: Fraction | None = shown(Column, "%", kind="fixed", digits=1, sign=True, priority=0)


@dataclass(frozen=True)
class ComparedChange(ChangeRow):
    """A difference of A and B."""

    a: int = shown(Column, "A", kind="int")
    b: int = shown(Column, "B", kind="int")
    difference: int = shown(Column, "A - B", kind="int", sign=True, priority=0)


@dataclass(frozen=True)
class FactRow(Row):
    """A fact of how two counts were made that differs, as text; None where it has no value."""

    target: str | None = shown(Column, "target", code=True, wraps=12)
    what: str = shown(Column, "what")


@dataclass(frozen=True)
class LockedFact(FactRow):
    """A fact of the count that was locked and of the one that was counted."""

    locked: str | None = shown(Column, "locked", code=True, wraps=16)
    counted: str | None = shown(Column, "counted", code=True, wraps=16)


@dataclass(frozen=True)
class ComparedFact(FactRow):
    """A fact of A and of B."""

    a: str | None = shown(Column, "A", code=True, wraps=16)
    b: str | None = shown(Column, "B", code=True, wraps=16)


@dataclass(frozen=True)
class Sides:
    """How two counts are compared.

    Attributes:
        name: beginning of the names of tables.
        title: title of the changes.
        change, fact: types of their rows.
        words: names of a change.
        sign: 1 where the difference is the second minus the first, -1 where it is the first minus the second.
    """

    name: str
    title: str
    change: type[LockedChange] | type[ComparedChange]
    fact: type[LockedFact] | type[ComparedFact]
    words: Mapping[str, str]
    sign: int


LOCKED = Sides(
    "lock",
    "Cost changed",
    LockedChange,
    LockedFact,
    {what: what for what in (CHANGED, ADDED, REMOVED)},
    sign=1,
)
COMPARED = Sides(
    "compare",
    "A against B: contractions and parameters",
    ComparedChange,
    ComparedFact,
    {CHANGED: "changed", ADDED: "only B", REMOVED: "only A"},
    sign=-1,
)


def tables(
    old: Count, new: Count, sides: Sides, failures: Sequence[str] = (), names: Sequence[str] = ("", ""),
    notes: Sequence[str] = (),
) -> list[Table]:  # fmt: skip
    """Return the changes of contractions and parameters, with the ``failures``, and how they were counted.

    ``names`` are those of the two counts, where they are not those of what was counted, and ``notes`` stand above. The
    limits of ``new`` are the first rows of a lock. The total of MACs is the last row. Other quantities have a total
    where they changed.
    """
    *rows, total = _changes(old, new, sides)
    rows.append(replace(total, failures=failures))
    _, *columns = columns_of(sides.change)
    found: list[Table] = [Table(f"{sides.name}-changes", sides.title, columns, rows, notes)]
    how = [sides.fact(None, *line) for line in facts(old, new, names)]
    if how:
        _, *columns = columns_of(sides.fact)
        found.append(Table(f"{sides.name}-how", "How they were counted", columns, how, detail=True))
    return found


def _changes(old: Count, new: Count, sides: Sides) -> Iterator[ChangeRow]:
    """Yield the limits of a lock, the changes, and for each quantity what is equal and the total."""

    def row(path: str, quantity: str, kind: str, what: str, sizes: str, before: int, after: int) -> ChangeRow:
        change = sides.sign * (after - before)
        shares = (difference.percent(before, after),) if sides is LOCKED else ()
        return sides.change(None, path, quantity, kind, what, sizes, before, after, change, *shares)

    for name, most in new.limits.items() if sides is LOCKED and new.limits else ():
        value = getattr(new, name)
        unmet = name in difference.unmet_limits(new)
        what = "above limit" if value > most else "incomplete" if unmet else "within limit"
        yield row("(model)", MACS if name == "macs" else PARAMS, "", what, "", most, value)
    found = difference.changes(old, new)
    for one in found:
        yield row(one.path or "(model)", one.quantity, one.kind, sides.words[one.what], one.sizes, *one.amounts)
    equal = difference.amounts(old).items() & difference.amounts(new).items()
    for quantity in (PARAMS, SENT, ELEMENTWISE, MACS):
        changed = [change.amounts[0] for change in found if change.quantity == quantity]
        if changed or quantity == MACS:
            before, after = (difference.total(side, quantity) for side in (old, new))
            rest = before - sum(changed)
            others = plural(sum(name[0] == quantity for name, _ in equal), "other")
            yield row("", quantity, "", "equal", others, rest, rest)
            yield row("", quantity, "", "total", "", before, after)


def merge_targets(parts: Iterable[tuple[str, Sequence[Table]]], sides: Sides) -> list[Table]:
    """Return the tables of several targets as one of each name, whose first column names the target."""
    target_column, *_ = columns_of(sides.change)
    found: dict[str, Table] = {}
    rows: dict[str, list[Row]] = {}
    for target, own in parts:
        for one in own:
            found.setdefault(one.name, replace(one, columns=[target_column, *one.columns]))
            rows.setdefault(one.name, []).extend(replace(row, target=target) for row in one.rows)
    return [replace(table, rows=rows[name]) for name, table in found.items()]


def facts(old: Count, new: Count, names: Sequence[str] = ("", "")) -> list[tuple[str, str | None, str | None]]:
    """Return what differs in how two counts were made: a name, and the texts of both, None where there is none."""
    return [line for line in _how(old, new, names) if line[1] != line[2]]


def input_facts(old: Count, new: Count) -> list[tuple[str, str | None, str | None]]:
    """Return the inputs that differ in shape or type, as facts."""
    return [line for line in facts(old, new) if line[0].startswith("input ")]


def _how(old: Count, new: Count, names: Sequence[str]) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield unsupported operations, modules that did not run, name, inputs, versions and target of both counts, as
    far as both have them."""
    of_old, of_new = ([line.text() for line in side.unsupported] for side in (old, new))
    for line in dict.fromkeys((*of_old, *of_new)):
        yield "unsupported", line if line in of_old else None, line if line in of_new else None
    for path in difference.uncalled_changes(old, new):
        in_old, in_new = (path if path in (side.uncalled or ()) else None for side in (old, new))
        yield "did not run", in_old, in_new
    for before, after in zip(_facts(old, names[0]), _facts(new, names[1]), strict=True):
        if before and after:
            yield from ((name, before.get(name), after.get(name)) for name in before | after)


def _facts(count: Count, name: str) -> list[dict[str, str]]:
    """Return name, inputs, versions and target as text by name; what is unknown is empty."""
    inputs = {f"input {name}": text for name, _, text in (line.partition(": ") for line in count.inputs)}
    target = count.target.described() if count.target else {}
    name = name or (count.target.spec if count.target else count.name)
    return [{"count": name}, inputs, dict(count.versions), target]
