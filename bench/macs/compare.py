"""Compare two models: the parts of their difference, and the sizes at which their ranking changes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

from sympy import expand, sign

from headcount.bench.case import Case
from headcount.bench.closed_form.case import ConfigurationCase
from headcount.bench.column import Column, macs_column
from headcount.bench.counting.count import count
from headcount.bench.counting.result import Unknown
from headcount.bench.macs import cases
from headcount.bench.macs.cases import CountedCase, Side
from headcount.bench.macs.crossover import Crossover, crossovers
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.bench.snapshot import tables as snapshot
from headcount.formulas import conventions
from headcount.formulas.ledger import MAC_KINDS, Entry, Size, total_of
from headcount.formulas.parts import RULES
from headcount.formulas.published import tables as published
from headcount.formulas.symbols import symbol
from headcount.models.configs.base import ConfigError

NEAR = 64
"""Distance from a crossover that cannot be built within which a buildable one is searched."""


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
NO_CROSSOVER = "no crossover"


@dataclass(frozen=True)
class Amount:
    """A quantity of a part in A and in B, and A - B; None where it is not known.

    ``running_total``: of MACs, what B has with this part and those above as in A.
    """

    a: Size | None
    b: Size | None
    difference: Size | None
    running_total: Size | None = None


@dataclass(frozen=True)
class PartRow(Row):
    """A block or a kind of the two ledgers, or their total, with its amounts by key of the quantity."""

    part: str
    amounts: Mapping[str, Amount]
    total: bool = False


@dataclass(frozen=True)
class CrossoverRow(Row):
    """A change of sign of A - B at other sizes of a letter, or that there is none.

    ``exceptions``: the values of A - B at sizes at which it is not the polynomial.
    """

    account: str = shown(Column, "rule")
    letter: str = shown(Column, "letter", priority=0)
    difference: str = shown(Column, "A - B", wraps=20)
    below: int | None = shown(Column, "until", kind="int", priority=0)
    at_below: int | None = shown(macs_column, "A - B\nthere", sign=True, priority=2)
    above: int | None = shown(Column, "from", kind="int", priority=0)
    at_above: int | None = shown(macs_column, "A - B\nthere", sign=True, priority=2)
    counted: str = shown(Column, "check", priority=0)
    exceptions: Mapping[int, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()


def kind_in(side: Side) -> Callable[[Entry], str]:
    """Return the function of the kind of an entry."""
    return attrgetter("kind")


def _input_notes(a: Side, b: Side) -> list[str]:
    """Return the names of the two sides with their inputs, one sentence where the inputs are the same."""
    inputs = [", ".join(side.inputs) for side in (a, b)]
    if inputs[0] == inputs[1]:
        return [f"A: {a.name}. B: {b.name}. Input: {inputs[0]}."]
    return [f"{letter}: {side.name}, input {text}." for letter, side, text in zip("AB", (a, b), inputs, strict=True)]


def lengths_note(a: Side, b: Side) -> list[str]:
    """Return a sentence where the two sides have inputs of other sizes; both must state them."""
    for names, what in ((("tgt_len", "seq_len", "T"), "tokens"), (("batch_size",), "sequences")):
        sizes = [next((side.lengths[name] for name in names if name in side.lengths), None) for side in (a, b)]
        if None not in sizes and sizes[0] != sizes[1]:
            return [f"The inputs differ: {sizes[0]} {what} in A and {sizes[1]} in B."]
    return []


def macs_by_rule(a: Side, b: Side) -> list[Quantity]:
    """Return MACs by the rule of the first published table that has both presets, if any, and exact MACs."""
    for table in published.load_tables().values():
        # a table that prints no MACs has no rule for them
        if (macs := table.column("macs")) and {a.preset, b.preset} <= {row.target for row in table.rows}:
            statement = f"Rule of {table.name}: {macs.multiplicity.about}"
            return [Quantity("rule", "rule", partial(_size_by, macs.multiplicity), "MACs", statement), EXACT]
    return [EXACT]


def _size_by(multiplicity: Callable[[Entry], int], entry: Entry) -> Size:
    return multiplicity(entry) * entry.size


def tables(a: Side, b: Side, counters: Sequence[str], device: str | None) -> list[Table]:
    """Return the differences by block and by kind, parameters by block, and the crossovers, an iterator of rows.

    The differences of two modules, of the user or of configurations, are by term and by parameter instead of by block.
    """
    macs = macs_by_rule(a, b)
    notes = _input_notes(a, b)
    notes += lengths_note(a, b)
    notes += [f"{rule.head}: {rule.statement}" for rule in macs]
    title = f"{a.name} against {b.name}"
    by_kind = part_table("kind", f"{title}: MACs by kind", by_part(kind_in, a, b, macs), macs, notes)
    if all(isinstance(side, CountedCase | ConfigurationCase) for side in (a, b)):
        # the paths of a closed form are those of another one alone
        is_closed = all(isinstance(side, Case) for side in (a, b))
        of_a, of_b = (count(side) if is_closed and isinstance(side, Case) else cases.count_of(side) for side in (a, b))
        found = [*snapshot.tables(of_a, of_b, snapshot.COMPARED, names=(a.name, b.name)), by_kind]
        return [*found, *_crossovers(a, b, macs, counters, device)] if a.letters() and b.letters() else found
    by_block = part_table("block", f"{title}: MACs by block", by_part(attrgetter("part_of"), a, b, macs), macs, notes)
    params = by_part(attrgetter("part_of"), a, b, PARAMS, with_zeros=True)
    of_params = part_table("block", f"{title}: parameters by block", params, PARAMS, name="compare-params")
    return [by_block, by_kind, of_params, *_crossovers(a, b, macs, counters, device)]


def by_part(
    part_in: Callable[[Side], Callable[[Entry], str]], a: Side, b: Side, quantities: Sequence[Quantity],
    with_zeros: bool = False,
) -> list[PartRow]:  # fmt: skip
    """Return a row for each part of the two ledgers, and their total.

    ``part_in`` returns the function of the part of an entry, for each side. Parts without an amount are left out unless
    ``with_zeros``.
    """
    entries_of: list[dict[str, list[Entry]]] = [{}, {}]
    for entries, side in zip(entries_of, (a, b), strict=True):
        part_of = part_in(side)
        for entry in side.ledger_by_module:
            entries.setdefault(part_of(entry), []).append(entry)
    found = {**entries_of[0], **entries_of[1]}
    order = [*RULES, *MAC_KINDS]
    parts = sorted(found, key=lambda part: order.index(part) if part in order else len(order))
    sums = {one.key: sum(map(one.amount, b.ledger_by_module)) for one in quantities if one.of == "MACs"}
    rows = []
    for part in parts:
        amounts = {}
        for one in quantities:
            amounts[one.key] = _amount(one, *(entries.get(part, ()) for entries in entries_of))
            if one.key in sums:
                sums[one.key] += amounts[one.key].difference or 0
                amounts[one.key] = replace(amounts[one.key], running_total=sums[one.key])
        if with_zeros or any(one.a or one.b for one in amounts.values()):
            rows.append(PartRow(part, amounts))
    totals = {one.key: _amount(one, a.ledger_by_module, b.ledger_by_module, sums.get(one.key)) for one in quantities}
    return [*rows, PartRow("total", totals, total=True)]


def _amount(
    quantity: Quantity, of_a: Iterable[Entry], of_b: Iterable[Entry], running_total: Size | None = None
) -> Amount:
    """Return a quantity of the entries of both sides."""
    left, right = (total_of(map(quantity.amount, entries)) for entries in (of_a, of_b))
    return Amount(left, right, None if left is None or right is None else left - right, running_total)


def part_table(
    what: str, title: str, rows: Sequence[PartRow], quantities: Sequence[Quantity], notes: Sequence[str] = (),
    name: str = "",
) -> Table[PartRow]:  # fmt: skip
    """Return the table of the parts of the two ledgers; ``what`` is a part."""
    columns = [Column(what, what, value=attrgetter("part"))]
    for one in quantities:
        columns += [
            _amount_column(one, "a", f"a_{one.key}", "A"),
            _amount_column(one, "b", f"b_{one.key}", "B"),
            _amount_column(one, "difference", f"difference_{one.key}", "A - B", sign=True, priority=0),
        ]
        if one.of == "MACs":
            columns.append(_amount_column(one, "running_total", f"sum_{one.key}", "running total", priority=3))
    return Table(name or f"compare-{what}", title, columns, rows, notes)


def _amount_column(quantity: Quantity, name: str, key: str, head: str, **options: Any) -> Column:
    def value(row: PartRow) -> Size | None:
        return getattr(row.amounts[quantity.key], name)

    return Column(key, f"{quantity.head}\n{head}", kind="int", of=quantity.of, value=value, **options)


def _crossovers(
    a: Side, b: Side, rules: Sequence[Quantity], counters: Sequence[str], device: str | None
) -> list[Table[CrossoverRow]]:
    """Return the table of crossovers, whose rows are an iterator, as they take long; none where no size changes."""
    moved = dict.fromkeys(letter for s in (a, b) for letter in s.letters() if letter != "T")
    notes = ["T is every input length at once."]
    if moved:
        notes[0] += f" Changed in A or in B alone, in all layers, everything else fixed: {', '.join(moved)}"
        notes[0] += " (g changes with h where every head has its own keys and values)." if "h" in moved else "."
    movable = [("T", "AB")] if all("T" in s.letters() for s in (a, b)) else []
    movable += [(letter, which) for which, s in (("A", a), ("B", b)) for letter in s.letters() if letter != "T"]
    changes = [Change(a, b, letter, which, rule) for rule in rules for letter, which in movable]
    title = f"{a.name} against {b.name}: sizes where A - B changes its sign"
    rows = (row for change in changes for row in _rows_of_change(change, counters, device))
    table = Table("compare-crossovers", title, columns_of(CrossoverRow), rows, notes, note_column="counted")
    return [table] if changes else []


@dataclass(frozen=True)
class Change:
    """Other sizes of a letter on the sides ``which``: "A", "B" or both; ``rule`` counts the difference.

    ``built`` caches A and B by size, because a user module is run for each size.
    """

    a: Side
    b: Side
    letter: str
    which: str
    rule: Quantity
    built: dict[int, list[Side]] = field(default_factory=dict)

    def difference_at(self, size: Size) -> Size:
        """Return A - B at a size, an integer or a symbol."""
        left, right = (
            sum(map(self.rule.amount, s.ledger_in(self.letter, size) if side in self.which else s.ledger))
            for side, s in (("A", self.a), ("B", self.b))
        )
        return left - right

    def build(self, size: int) -> list[Side]:
        """Return A and B at an integer. Raises ConfigError where they cannot be built."""
        if size not in self.built:
            pair = (("A", self.a), ("B", self.b))
            self.built[size] = [s.at(self.letter, size) if side in self.which else s for side, s in pair]
        return self.built[size]

    def why_not(self, size: int) -> str:
        """Return why A and B cannot be built at an integer; empty where they can."""
        try:
            self.build(size)
        except ConfigError as error:
            return f"{self.letter} = {size}: {error}"
        return ""

    def nearest_buildable(self, crossover: Crossover) -> Crossover | None:
        """Return a crossover between the nearest sizes that can be built; None where there is none within NEAR."""
        below, above = self._buildable(crossover.below, -1), self._buildable(crossover.above, 1)
        if below is None or above is None:
            return None
        wider = Crossover(below, above, self.difference_at(below), self.difference_at(above))
        return wider if sign(wider.at_below) != sign(wider.at_above) else None

    def _buildable(self, start: int, step: int) -> int | None:
        """Return the nearest size from ``start`` on, in steps of 1 or -1, that can be built."""
        near = range(start, max(-1, start + step * NEAR), step)
        return next((size for size in near if not self.why_not(size)), None)


def _rows_of_change(change: Change, counters: Sequence[str], device: str | None) -> Iterator[CrossoverRow]:
    letter, unknown = change.letter, symbol(change.letter)
    difference = expand(change.difference_at(unknown))
    # no experts or heads may be a size, no tokens is none
    least = 1 if letter == "T" or change.why_not(0) else 0
    # A router over 0 heads or 1 head is omitted, so the polynomial may hold from 2 on only.
    small = {} if letter == "T" else {n: change.difference_at(n) for n in range(least, 2)}
    exceptions = {n: value for n, value in small.items() if value != difference.subs(unknown, n)}
    values = " and ".join(f"{value:,} at {letter} = {n}" for n, value in exceptions.items())
    apart = [f"A - B is {values}"] if values else []
    row = CrossoverRow(
        account=change.rule.head,
        letter=letter if change.which == "AB" else f"{letter} of {change.which}",
        difference=str(difference).replace("**", "^"),
        below=None,
        at_below=None,
        above=None,
        at_above=None,
        counted=NO_CROSSOVER,
        exceptions=exceptions,
        notes=apart,
    )
    found = crossovers(difference, unknown, least, exceptions)
    for crossover in found:
        reasons = [why for n in (crossover.below, crossover.above) if (why := change.why_not(n))]
        built = change.nearest_buildable(crossover) if reasons else crossover
        counted, notes, failures = _confirm(change, built, counters, device) if built else ("cannot be built", [], [])
        notes = [*apart, *reasons[:1], *notes]
        yield replace(row, **vars(built or crossover), counted=counted, notes=notes, failures=failures)
    if not found:
        yield row


def _confirm(
    change: Change, crossover: Crossover, counters: Sequence[str], device: str | None
) -> tuple[str, list[str], list[str]]:
    """Count A and B at both integers, and return the verdict on the closed form, notes and failures."""
    if change.rule is not EXACT:
        return "closed form", [], []
    if not counters:
        return "not counted", [], []
    failures = []
    for size, expected in ((crossover.below, crossover.at_below), (crossover.above, crossover.at_above)):
        left, right = (cases.counted(side, counters, device) for side in change.build(size))
        for name in left:
            of_a, of_b = left[name], right[name]
            if isinstance(of_a, Unknown):
                return "no module", [of_a.reason], []
            if isinstance(of_b, Unknown):
                return "no module", [of_b.reason], []
            if of_a - of_b != expected:
                failures.append(f"{change.letter} = {size}: {name} does not count a difference of {expected:,}")
    return ("no" if failures else ", ".join(counters)), failures, failures
