"""Compare two models: the parts of their difference, and the sizes at which their ranking changes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from sympy import expand, sign

from headcount.bench.case import Case, describe_input
from headcount.bench.macs import cases
from headcount.bench.macs.cases import CountedCase
from headcount.bench.macs.crossover import Crossover, crossovers
from headcount.bench.snapshot.sections import COMPARED
from headcount.bench.snapshot.sections import sections as saved_sections
from headcount.bench.table import Column, Row, Section, Table, macs_column
from headcount.formulas import conventions
from headcount.formulas.ledger import MAC_KINDS, Entry, Size, total_of
from headcount.formulas.published import tables
from headcount.formulas.symbols import symbol
from headcount.models.configs.base import ConfigError

BLOCKS: dict[str, Callable[[Entry], int]] = {
    "attention": conventions.attention,
    "feed-forward": conventions.feed_forward,
    "vocabulary": conventions.vocabulary,
}
NEAR = 64
"""Distance from a crossover that cannot be built within which a buildable one is searched."""
Compared = Case | CountedCase


@dataclass(frozen=True)
class Quantity:
    """A quantity compared part by part: the key and head of its columns, its amount in an entry, and its unit.

    ``statement``: the rule by which MACs are counted.
    """

    key: str
    head: str
    amount: Callable[[Entry], Size]
    of: str
    statement: str = ""


EXACT = Quantity("exact", "exact", attrgetter("macs"), "MACs", conventions.exact.about)
PARAMS = [
    Quantity("params", "params", attrgetter("params"), "params"),
    Quantity("active_params", "active", attrgetter("active_params"), "params"),
]
CROSSOVER_COLUMNS = [
    Column("account", "account"),
    Column("letter", "letter", width=9, priority=0),
    Column("difference", "A - B", width=44, wraps=16),
    Column("below", "last at", kind="int", width=9, priority=0),
    macs_column("at_below", "A - B\nthere", width=15, sign=True, priority=2),
    Column("above", "first at", kind="int", width=9, priority=0),
    macs_column("at_above", "A - B\nthere", width=15, sign=True, priority=2),
    Column("counted", "counted there", priority=0),
]
"""Columns reserve their widths, because rows are printed one by one."""


def block_in(side: Compared) -> Callable[[Entry], str]:
    """Return the function of the block of an entry: attention, feed-forward, vocabulary or other."""
    if isinstance(side, CountedCase):
        return lambda entry: side.blocks[entry.path]
    return lambda entry: next((name for name, holds in BLOCKS.items() if holds(entry)), "other")


def kind_in(side: Compared) -> Callable[[Entry], str]:
    """Return the function of the kind of an entry."""
    return attrgetter("kind")


def lengths_note(a: Compared, b: Compared) -> list[str]:
    """Return a sentence where the two sides have inputs of other sizes; both must state them."""
    for names, what in ((("tgt_len", "seq_len", "T"), "tokens"), (("batch_size",), "sequences")):
        sizes = [next((side.lengths[name] for name in names if name in side.lengths), None) for side in (a, b)]
        if None not in sizes and sizes[0] != sizes[1]:
            return [f"The inputs differ: {sizes[0]} {what} in A and {sizes[1]} in B."]
    return []


def macs_by_rule(a: Compared, b: Compared) -> list[Quantity]:
    """Return MACs by the rule of the first published table that has both presets, if any, and exact MACs."""
    for table in tables.load_tables().values():
        # a table that prints no MACs has no rule for them
        if (macs := table.column("macs")) and {a.preset, b.preset} <= {row.target for row in table.rows}:
            statement = f"Rule of {table.name}: {macs.multiplicity.about}"
            return [Quantity("rule", "rule", partial(_size_by, macs.multiplicity), "MACs", statement), EXACT]
    return [EXACT]


def _size_by(multiplicity: Callable[[Entry], int], entry: Entry) -> Size:
    return multiplicity(entry) * entry.size


def sections(a: Compared, b: Compared, counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """Yield the differences by block and by kind, parameters by block, and the crossovers.

    Two user modules have no known blocks: their differences are by term and by parameter.
    """
    macs = macs_by_rule(a, b)
    inputs = dict.fromkeys(describe_input(side.lengths) for side in (a, b))
    notes = [f"A: {a.name}. B: {b.name}. Input: {'; '.join(inputs)}."]
    notes += lengths_note(a, b)
    notes += [f"{rule.head}: {rule.statement}" for rule in macs]
    modules = isinstance(a, CountedCase) and isinstance(b, CountedCase)
    if modules:
        yield from saved_sections(a.count, b.count, COMPARED, names=(a.name, b.name))
    else:
        yield _by_part(Table("compare-block", "MACs by block", [Column("block", "block")], notes), block_in, a, b, macs)
    table = Table("compare-kind", "MACs by kind", [Column("kind", "kind")], notes)
    yield _by_part(table, kind_in, a, b, macs)
    if not modules:
        table = Table("compare-params", "parameters by block", [Column("block", "block")])
        yield _by_part(table, block_in, a, b, PARAMS)
    if not modules or all(side.letters() for side in (a, b)):
        yield _crossovers(a, b, macs, counters, device)


def _by_part(
    table: Table, part_in: Callable[[Compared], Callable[[Entry], str]], a: Compared, b: Compared,
    quantities: Sequence[Quantity],
) -> Section:  # fmt: skip
    """Return a row for each part of the two ledgers, and their total.

    ``part_in`` returns the function of the part of an entry, for each side. MACs have a running total from B to A, and
    parts without any are left out.
    """
    columns = [*table.columns]
    for key, head, of in ((one.key, one.head, one.of) for one in quantities):
        columns += [
            Column(f"a_{key}", f"{head}\nA", kind="int", of=of),
            Column(f"b_{key}", f"{head}\nB", kind="int", of=of),
            Column(f"difference_{key}", f"{head}\nA - B", kind="int", sign=True, of=of, priority=0),
        ]
        if of == "MACs":
            columns.append(macs_column(f"sum_{key}", f"{head}\nrunning total", priority=3))
    entries_of: list[dict[str, list[Entry]]] = [{}, {}]
    for by_part, side in zip(entries_of, (a, b), strict=True):
        part_of = part_in(side)
        for entry in side.ledger:
            by_part.setdefault(part_of(entry), []).append(entry)
    found = {**entries_of[0], **entries_of[1]}
    order = [*BLOCKS, *MAC_KINDS]
    parts = sorted(found, key=lambda part: order.index(part) if part in order else len(order))
    sums = {one.key: sum(map(one.amount, b.ledger)) for one in quantities}
    rows = []
    for part in (*parts, "total"):
        total, values = part == "total", {columns[0].key: part}
        for one in quantities:
            left, right = (
                total_of(map(one.amount, side.ledger if total else by_part.get(part, ())))
                for by_part, side in zip(entries_of, (a, b), strict=True)
            )
            difference = None if None in (left, right) else left - right
            values |= {f"a_{one.key}": left, f"b_{one.key}": right, f"difference_{one.key}": difference}
            if one.of == "MACs":
                sums[one.key] += 0 if total else left - right
                values[f"sum_{one.key}"] = sums[one.key]
        if total or quantities is PARAMS or any(values[f"{side}_{one.key}"] for one in quantities for side in "ab"):
            rows.append(Row(values, records=[values], total=total))
    title = f"{a.name} against {b.name}: {table.title}"
    return Section(replace(table, title=title, columns=columns), rows)


def _crossovers(a: Compared, b: Compared, rules: Sequence[Quantity], counters, device) -> Section:
    moved = dict.fromkeys(letter for s in (a, b) for letter in s.letters() if letter != "T")
    notes = ["T is every input length at once."]
    if moved:
        notes[0] += f" Changed in A or in B alone, in all layers, everything else fixed: {', '.join(moved)}"
        notes[0] += " (g changes with h where every head has its own keys and values)." if "h" in moved else "."
    layout = Table(
        "compare-crossovers",
        f"{a.name} against {b.name}: crossovers",
        CROSSOVER_COLUMNS,
        notes_above=notes,
        note_column="counted",
    )
    movable = [("T", "AB")] if all("T" in s.letters() for s in (a, b)) else []
    movable += [(letter, which) for which, s in (("A", a), ("B", b)) for letter in s.letters() if letter != "T"]
    changes = [Change(a, b, letter, which, rule) for rule in rules for letter, which in movable]
    return Section(layout, (row for change in changes for row in _rows_of_change(change, counters, device)))


@dataclass(frozen=True)
class Change:
    """Other sizes of a letter on the sides ``which``: "A", "B" or both; ``rule`` counts the difference.

    ``built`` caches A and B by size, because a user module is run for each size.
    """

    a: Compared
    b: Compared
    letter: str
    which: str
    rule: Quantity
    built: dict[int, list[Compared] | str] = field(default_factory=dict)

    def difference_at(self, size: Size) -> Size:
        """Return A - B at a size, an integer or a symbol."""
        left, right = (
            sum(map(self.rule.amount, s.ledger_in(self.letter, size) if side in self.which else s.ledger))
            for side, s in (("A", self.a), ("B", self.b))
        )
        return left - right

    def build(self, size: int) -> list[Compared] | str:
        """Return A and B at an integer, or why they cannot be built."""
        if size not in self.built:
            pair = (("A", self.a), ("B", self.b))
            try:
                self.built[size] = [s.at(self.letter, size) if side in self.which else s for side, s in pair]
            except ConfigError as error:
                self.built[size] = f"{self.letter} = {size}: {error}"
        return self.built[size]

    def nearest_buildable(self, crossover: Crossover) -> Crossover | None:
        """Return a crossover between the nearest sizes that can be built; None where there is none within NEAR."""
        ends = []
        for start, step in ((crossover.below, -1), (crossover.above, 1)):
            near = range(start, max(-1, start + step * NEAR), step)
            ends.append(next((size for size in near if not isinstance(self.build(size), str)), None))
        if None in ends:
            return None
        wider = Crossover(*ends, *map(self.difference_at, ends))
        return wider if sign(wider.at_below) != sign(wider.at_above) else None


def _rows_of_change(change: Change, counters, device) -> Iterator[Row]:
    letter, unknown = change.letter, symbol(change.letter)
    difference = expand(change.difference_at(unknown))
    # no experts or heads may be a size, no tokens is none
    least = 1 if letter == "T" or isinstance(change.build(0), str) else 0
    # A router over 0 heads or 1 head is omitted, so the polynomial may hold from 2 on only.
    small = {} if letter == "T" else {n: change.difference_at(n) for n in range(least, 2)}
    exceptions = {n: value for n, value in small.items() if value != difference.subs(unknown, n)}
    values = {"account": change.rule.head, "letter": letter if change.which == "AB" else f"{letter} of {change.which}"}
    values["difference"] = str(difference).replace("**", "^")
    apart = " and ".join(f"{value:,} at {letter} = {n}" for n, value in exceptions.items())
    apart = [f"A - B is {apart}"] if apart else []
    found = crossovers(difference, unknown, least, exceptions)
    for crossover in found:
        reasons = [why for n in (crossover.below, crossover.above) if isinstance(why := change.build(n), str)]
        built = change.nearest_buildable(crossover) if reasons else crossover
        counted, notes, failures = _confirm(change, built, counters, device) if built else ("cannot be built", [], [])
        row = {**values, **vars(built or crossover), "counted": counted}
        records = [{**row, "exceptions": exceptions}]
        yield Row(row, notes=[*apart, *reasons[:1], *notes], records=records, failures=failures)
    if not found:
        row = {**values, "below": None, "at_below": None, "above": None, "at_above": None, "counted": "no crossover"}
        yield Row(row, notes=apart, records=[{**row, "exceptions": exceptions}])


def _confirm(change: Change, crossover: Crossover, counters, device) -> tuple[str, list[str], list[str]]:
    """Count A and B at both integers, and return the verdict on the closed form, notes and failures."""
    if change.rule is not EXACT:
        return "closed form", [], []
    if not counters:
        return "not counted", [], []
    failures = []
    for size, expected in ((crossover.below, crossover.at_below), (crossover.above, crossover.at_above)):
        left, right = (cases.counted(side, counters, device) for side in change.build(size))
        for name in left:
            reasons = [reading for reading in (left[name], right[name]) if isinstance(reading, str)]
            if reasons:
                return "no module", reasons[:1], []
            if left[name] - right[name] != expected:
                failures.append(f"{change.letter} = {size}: {name} does not count a difference of {expected:,}")
    return ("no" if failures else ", ".join(counters)), failures, failures
