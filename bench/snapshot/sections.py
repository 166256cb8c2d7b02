"""Tables of the difference of two counts: the changes by name, the equal rest and the totals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headcount.bench.counting.result import Count
from headcount.bench.snapshot import difference
from headcount.bench.snapshot.difference import ADDED, CHANGED, ELEMENTWISE, MACS, PARAMS, REMOVED, SENT
from headcount.bench.table import Column, Row, Section, Table, plural


@dataclass(frozen=True)
class Sides:
    """The names of two counts, of their difference and of a change.

    ``sign`` is 1 where the difference is the second minus the first, -1 where it is the first minus the second.
    """

    name: str
    old: str
    new: str
    difference: str
    words: Mapping[str, str]
    sign: int


LOCKED = Sides("lock", "locked", "counted", "change", {what: what for what in (CHANGED, ADDED, REMOVED)}, 1)
COMPARED = Sides("compare", "A", "B", "A - B", {CHANGED: "changed", ADDED: "only B", REMOVED: "only A"}, -1)


def sections(
    old: Count, new: Count, sides: Sides, failures: Sequence[str] = (), names: Sequence[str] = ("", "")
) -> list[Section]:
    """Return the changes of contractions and parameters, with the ``failures``, and how they were counted.

    ``names`` are those of the two counts, where they are not those of what was counted. The limits of ``new`` are the
    first rows of a lock. The total of MACs is the last row. Other quantities have a total where they changed.
    """
    heads = {side.lower(): side for side in (sides.old, sides.new)}
    columns = [
        Column("path", "module", code=True, wraps=20),
        Column("quantity", "quantity", priority=0),
        Column("kind", "kind", priority=3),
        Column("what", "what", priority=0),
        Column("sizes", "sizes", priority=2, wraps=12),
        *(Column(key, head, kind="int") for key, head in heads.items()),
        Column("difference", sides.difference, kind="int", sign=True, priority=0),
    ]
    found = difference.changes(old, new)
    equal = difference.amounts(old).items() & difference.amounts(new).items()
    lines = []
    for name, most in new.limits.items() if sides is LOCKED else ():
        value = getattr(new, name)
        unmet = name in difference.unmet_limits(new)
        what = "above limit" if value > most else "incomplete" if unmet else "within limit"
        lines.append(("(model)", MACS if name == "macs" else PARAMS, "", what, "", most, value))
    lines += [
        (one.path or "(model)", one.quantity, one.kind, sides.words[one.what], one.sizes, *one.amounts) for one in found
    ]
    for quantity in (PARAMS, SENT, ELEMENTWISE, MACS):
        changed = [change.amounts[0] for change in found if change.quantity == quantity]
        if changed or quantity == MACS:
            before, after = (difference.total(side, quantity) for side in (old, new))
            rest = before - sum(changed)
            others = plural(sum(name[0] == quantity for name, _ in equal), "other")
            lines.append(("", quantity, "", "equal", others, rest, rest))
            lines.append(("", quantity, "", "total", "", before, after))
    rows = []
    for *texts, before, after in lines:
        cells = (*texts, before, after, sides.sign * (after - before))
        values = {column.key: cell for column, cell in zip(columns, cells, strict=True)}
        rows.append(Row(values, records=[values], total=not values["path"]))
    rows[-1] = replace(rows[-1], failures=failures)
    title = f"{sides.old} against {sides.new}"
    out = [Section(Table(f"{sides.name}-changes", f"{title}: contractions and parameters", columns), rows)]
    facts = [dict(zip(("what", *heads), line, strict=True)) for line in _how(old, new, names) if line[1] != line[2]]
    if facts:
        columns = [Column("what", "what"), *(Column(key, heads[key], code=True, wraps=16) for key in heads)]
        table = Table(f"{sides.name}-how", f"{title}: how they were counted", columns)
        out.append(Section(table, [Row(one, records=[one]) for one in facts], detail=True))
    return out


def merge_targets(parts: Iterable[tuple[str, Sequence[Section]]]) -> list[Section]:
    """Return the sections of several targets as one of each table, whose first column names the target."""
    found: dict[str, Section] = {}
    for target, sections in parts:
        for one in sections:
            columns = [Column("target", "target", code=True, wraps=12), *one.table.columns]
            whole = found.setdefault(one.table.name, replace(one, table=replace(one.table, columns=columns), rows=[]))
            for row in one.rows:
                named = [{"target": target, **record} for record in row.records]
                whole.rows.append(replace(row, values={"target": target, **row.values}, records=named))
    return list(found.values())


def _how(old: Count, new: Count, names: Sequence[str]) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield unsupported operations, modules that did not run, name, inputs, versions and target of both counts, as
    far as both have them."""
    before, after = ([line.text() for line in side.unsupported] for side in (old, new))
    for line in dict.fromkeys((*before, *after)):
        yield "unsupported", line if line in before else None, line if line in after else None
    for path in difference.uncalled_changes(old, new):
        yield "did not run", *(path if path in side.uncalled else None for side in (old, new))
    for before, after in zip(_facts(old, names[0]), _facts(new, names[1]), strict=True):
        if before and after:
            yield from ((name, before.get(name), after.get(name)) for name in before | after)


def _facts(count: Count, name: str) -> list[dict[str, str]]:
    """Return name, inputs, versions and target as text by name; what is unknown is empty."""
    inputs = {f"input {name}": text for name, _, text in (line.partition(": ") for line in count.inputs)}
    target = count.target.described() if count.target else {}
    name = name or (count.target.spec if count.target else count.name)
    return [{"count": name}, inputs, dict(count.versions), target]
