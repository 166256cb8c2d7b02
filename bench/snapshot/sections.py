"""Tables of the difference of two count snapshots: the changes by name, the equal rest and the totals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from headcount.bench.snapshot import difference
from headcount.bench.snapshot.difference import ADDED, CHANGED, REMOVED, Difference
from headcount.bench.snapshot.snapshot import CountSnapshot
from headcount.bench.table import Column, Row, Section, Table


@dataclass(frozen=True)
class Sides:
    """The names of two snapshots, of their difference and of a change.

    ``sign`` is 1 where the difference is the second minus the first, -1 where it is the first minus the second.
    """

    name: str
    old: str
    new: str
    less: str
    words: Mapping[str, str]
    sign: int


LOCKED = Sides("lock", "locked", "counted", "change", {what: what for what in (CHANGED, ADDED, REMOVED)}, 1)
COMPARED = Sides("compare", "A", "B", "A less B", {CHANGED: "differs", ADDED: "B alone", REMOVED: "A alone"}, -1)


def sections(old: CountSnapshot, new: CountSnapshot, sides: Sides, failures: Sequence[str] = ()) -> list[Section]:
    """Return the differences by term and by parameter, and in how the two were counted.

    The table of terms is always there and holds the ``failures``; the others only where something differs.
    """
    found = [_section(difference.terms(old, new), sides, "terms", "multiply-accumulates by term", "MACs", failures)]
    others = [
        (difference.elementwise(old, new), "elementwise", "contractions written elementwise, not included", "MACs"),
        (difference.parameters(old, new), "params", "parameters by tensor", "params"),
    ]
    found += [_section(one, sides, name, title, unit) for one, name, title, unit in others if one.changes]
    rows = [row for row in _how(old, new) if row[1] != row[2]]
    if rows:
        columns = [
            Column("what", "what"),
            *(Column(side.lower(), side, code=True, wraps=16) for side in (sides.old, sides.new)),
        ]
        table = Table(f"{sides.name}-how", f"{sides.old} against {sides.new}: how they were counted", columns)
        values = [dict(zip(("what", sides.old.lower(), sides.new.lower()), row, strict=True)) for row in rows]
        found.append(Section(table, [Row(one, records=[one]) for one in values], detail=True))
    return found


def equal(old: CountSnapshot, new: CountSnapshot) -> bool:
    """Return whether both have the same terms, parameters and unsupported operations."""
    accounts = (difference.terms, difference.elementwise, difference.parameters)
    return not any(account(old, new).changes for account in accounts) and set(old.unsupported) == set(new.unsupported)


def summary(old: CountSnapshot, new: CountSnapshot) -> str:
    """Return one line with the old and new totals."""
    accounts = {"MACs": difference.terms(old, new), "parameters": difference.parameters(old, new)}
    return ", ".join(f"{_step(*found.totals)} {unit} ({found.summary()})" for unit, found in accounts.items())


def _step(old: int, new: int) -> str:
    return f"{old:,}" if old == new else f"{old:,} -> {new:,} ({new - old:+,})"


def _section(
    found: Difference, sides: Sides, name: str, title: str, unit: str, failures: Sequence[str] = ()
) -> Section:
    keys = [f"{side}_{unit}".lower() for side in (sides.old, sides.new)]
    table = Table(
        f"{sides.name}-{name}",
        f"{sides.old} against {sides.new}: {title}",
        [
            Column("path", "module", code=True, wraps=20),
            Column("kind", "kind", priority=3),
            Column("what", "what", priority=0),
            Column("sizes", "sizes", priority=2, wraps=12),
            Column(keys[0], f"{sides.old}\n{unit}", kind="int", of=unit),
            Column(keys[1], f"{sides.new}\n{unit}", kind="int", of=unit),
            Column("difference", f"{sides.less}\n{unit}", kind="int", sign=True, priority=0, of=unit),
        ],
    )
    lines = [(c.path or "(model)", c.kind, sides.words[c.what], c.text(), *c.amounts) for c in found.changes]
    others = "other" if found.equal == 1 else "others"
    lines.append(("", "", "equal", f"{found.equal:,} {others}", found.equal_size, found.equal_size))
    lines.append(("", "", "total", "", *found.totals))
    rows = []
    for line in lines:
        values = dict(zip(("path", "kind", "what", "sizes", *keys), line, strict=True))
        values["difference"] = sides.sign * (values[keys[1]] - values[keys[0]])
        summed = values["what"] in ("equal", "total")
        rows.append(Row(values, records=[values], total=summed, failures=failures if values["what"] == "total" else ()))
    return Section(table, rows, detail=name != "terms")


def _how(old: CountSnapshot, new: CountSnapshot) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield name, unsupported operations, inputs, versions and request of both snapshots, as far as both have them."""
    yield "count", old.name, new.name
    yield from (("unsupported", line, None) for line in old.unsupported if line not in new.unsupported)
    yield from (("unsupported", None, line) for line in new.unsupported if line not in old.unsupported)
    if old.inputs is not None and new.inputs is not None:
        yield from (("input", *pair) for pair in zip_longest(old.inputs, new.inputs))
    described = [(old.versions, new.versions)]
    described += [(old.request.described(), new.request.described())] if old.request and new.request else []
    for before, after in described:
        if before is not None and after is not None:
            yield from ((name, before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after)))
