"""Two kept counts beside one another, as tables: the changes by name, what is equal, and the totals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from headcount.bench.saved import difference
from headcount.bench.saved.difference import APPEARED, CHANGED, VANISHED, Difference
from headcount.bench.saved.saved import Saved
from headcount.bench.table import Column, Row, Section, Table


@dataclass(frozen=True)
class Sides:
    """What two counts are to one another: their names, that of the difference, and what a change is called.

    ``sign`` -1 where the difference is the first less the second, 1 where it is what was added.
    """

    name: str
    old: str
    new: str
    less: str
    words: Mapping[str, str]
    sign: int


LOCKED = Sides("lock", "locked", "counted", "change", {what: what for what in (CHANGED, APPEARED, VANISHED)}, 1)
COMPARED = Sides("compare", "A", "B", "A less B", {CHANGED: "differs", APPEARED: "B alone", VANISHED: "A alone"}, -1)

TERMS = "terms"
"""The table of multiply-accumulates, behind what the two are to one another: lock-terms, compare-terms."""


def sections(old: Saved, new: Saved, sides: Sides, failures: Sequence[str] = ()) -> list[Section]:
    """The difference term by term and parameter by parameter, and in how the two were counted.

    The first is always there, and holds the ``failures``; the others where there is something in them.
    """
    macs = _section(difference.terms(old, new), sides, TERMS, "multiply-accumulates by term", "MACs", failures)
    written = difference.beside(old, new)
    others = [(written, "elementwise", "contractions written elementwise, beside the count", "MACs")]
    others += [(difference.parameters(old, new), "params", "parameters by tensor", "params")]
    found = [_section(found, sides, name, title, unit) for found, name, title, unit in others if found.changes]
    about = _about(old, new, sides)
    return [macs, *found, *([about] if about else [])]


def equal(old: Saved, new: Saved) -> bool:
    """Whether the two have the same terms, parameters and operations that nobody knows."""
    found = (part(old, new) for part in (difference.terms, difference.beside, difference.parameters))
    return not any(one.changes for one in found) and set(old.uncounted) == set(new.uncounted)


def summary(old: Saved, new: Saved) -> str:
    """What became of the totals, in a line."""
    terms, params = difference.terms(old, new), difference.parameters(old, new)
    return f"{_step(terms.totals)} MACs ({terms.summary()}), {_step(params.totals)} parameters ({params.summary()})"


def _step(totals: tuple[int, int]) -> str:
    before, after = totals
    return f"{before:,}" if before == after else f"{before:,} -> {after:,} ({after - before:+,})"


def _section(
    found: Difference, sides: Sides, name: str, title: str, unit: str, failures: Sequence[str] = ()
) -> Section:
    keys = [f"{side}_{unit}".lower() for side in (sides.old, sides.new)]
    layout = Table(
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

    def row(path: str, kind: str, what: str, sizes: str, old: int, new: int) -> dict[str, Any]:
        amounts = {keys[0]: old, keys[1]: new, "difference": sides.sign * (new - old)}
        return {"path": path, "kind": kind, "what": what, "sizes": sizes, **amounts}

    rows = [
        row(c.path or "(model)", c.kind, sides.words[c.what], c.text(), c.amount(c.old), c.amount(c.new))
        for c in found.changes
    ]
    rows.append(row("", "", "equal", f"{found.equal:,} others", found.equal_size, found.equal_size))
    rows.append(row("", "", "total", "", *found.totals))
    out = [Row(values, records=[values], total=values["what"] in ("equal", "total")) for values in rows]
    out[-1] = replace(out[-1], failures=failures)
    return Section(layout, out, detail=name != TERMS)


def _about(old: Saved, new: Saved, sides: Sides) -> Section | None:
    """What differs in how the two were counted, as far as both say it; None where nothing does."""
    rows = [("count", old.name, new.name), *_unlike("uncounted", old.uncounted, new.uncounted)]
    if old.inputs is not None and new.inputs is not None:
        rows += [("input", *pair) for pair in zip_longest(old.inputs, new.inputs)]
    told = [(old.versions, new.versions)]
    told += [(old.asked.told(), new.asked.told())] if old.asked and new.asked else []
    for before, after in told:
        if before is not None and after is not None:
            rows += [(name, before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after))]
    rows = [row for row in rows if row[1] != row[2]]
    if not rows:
        return None
    columns = [Column("what", "what")]
    columns += [Column(side.lower(), side, code=True, wraps=16) for side in (sides.old, sides.new)]
    layout = Table(f"{sides.name}-how", f"{sides.old} against {sides.new}: how they were counted", columns)
    keys = [column.key for column in columns]
    values = [dict(zip(keys, row, strict=True)) for row in rows]
    return Section(layout, [Row(one, records=[one]) for one in values], detail=True)


def _unlike(what: str, old: Sequence[str], new: Sequence[str]) -> Iterable[tuple[str, str | None, str | None]]:
    yield from ((what, line, None) for line in old if line not in new)
    yield from ((what, None, line) for line in new if line not in old)
