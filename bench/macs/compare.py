"""Where the difference between two models comes from, and where their ranking turns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sympy import expand, sign

from headcount.bench.case import Case, describe_input
from headcount.bench.macs import cases
from headcount.bench.macs.cases import ModuleCase
from headcount.bench.macs.turning import Turn, turns
from headcount.bench.snapshot.sections import COMPARED
from headcount.bench.snapshot.sections import sections as saved_sections
from headcount.bench.table import Column, Row, Section, Table
from headcount.formulas import conventions
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size
from headcount.formulas.published import tables
from headcount.formulas.symbols import symbol
from headcount.models.configs.base import ConfigError

BLOCKS: dict[str, Callable[[Entry], int]] = {
    "attention": conventions.attention,
    "feed-forward": conventions.feed_forward,
    "vocabulary": conventions.vocabulary,
}


@dataclass(frozen=True)
class Way:
    """One way to bill a ledger: its name in a column's head, what it bills, and the statement of it."""

    head: str
    bills: Callable[[Entry], int]
    statement: str


Compared = Case | ModuleCase

NEAR = 64
"""How far from a turning point that cannot be built one is looked for that can."""

EXACT = Way("exact", conventions.exact, conventions.statement(conventions.exact))


TURN_COLUMNS = [
    Column("account", "account"),
    Column("letter", "letter", width=9, priority=0),
    Column("difference", "A less B", width=44, wraps=16),
    Column("below", "last at", kind="int", width=9, priority=0),
    Column("at_below", "A less B\nthere", kind="int", width=15, sign=True, of="MACs", priority=2),
    Column("above", "first at", kind="int", width=9, priority=0),
    Column("at_above", "A less B\nthere", kind="int", width=15, sign=True, of="MACs", priority=2),
    Column("counted", "counted there", priority=0),
]
"""Rows come one by one: each column has room for what is to come."""


def block(entry: Entry) -> str:
    """attention, feed-forward, vocabulary or other."""
    return next((name for name, holds in BLOCKS.items() if holds(entry)), "other")


def ways_to_bill(a: Compared, b: Compared) -> list[Way]:
    """The rule of the first published table that has both presets, where there is one; then exact."""
    for table in tables.typed().values():
        # A table that prints no MACs has no rule for them.
        if (macs := table.column("macs")) and {a.preset, b.preset} <= {row.preset for row in table.rows}:
            return [Way("rule", macs.bills, f"Rule of {table.name}: {conventions.statement(macs.bills)}"), EXACT]
    return [EXACT]


def sections(a: Compared, b: Compared, counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """The differences by block and by kind, parameters by block, and the turning points.

    Two modules have no blocks that we know: theirs are by term and by parameter.
    """
    ways = ways_to_bill(a, b)
    modules = isinstance(a, ModuleCase) and isinstance(b, ModuleCase)
    if modules:
        yield from saved_sections(a.saved, b.saved, COMPARED)
    else:
        yield _steps("block", block, a, b, ways)
    yield _steps("kind", lambda entry: entry.kind, a, b, ways)
    if not modules:
        yield _params(a, b)
    if not modules or all(side.letters() for side in (a, b)):
        yield _turns(a, b, ways, counters, device)


def _about(a: Compared, b: Compared) -> list[str]:
    inputs = dict.fromkeys(describe_input(side.lengths) for side in (a, b))
    return [f"A: {a.name}. B: {b.name}. Input: {'; '.join(inputs)}."]


def _steps(what: str, key, a: Compared, b: Compared, ways: Sequence[Way]) -> Section:
    columns = [Column(what, what)]
    for way in ways:
        columns += [
            Column(f"a_{way.head}", f"{way.head}\nA", kind="int", of="MACs"),
            Column(f"b_{way.head}", f"{way.head}\nB", kind="int", of="MACs"),
            Column(
                f"difference_{way.head}",
                f"{way.head}\nA less B",
                kind="int",
                sign=True,
                of="MACs",
                priority=0,
            ),
            Column(f"sum_{way.head}", f"{way.head}\nfrom B to A", kind="int", of="MACs", priority=3),
        ]
    layout = Table(
        f"compare-{what}",
        f"{a.name} against {b.name}: MACs by {what}",
        columns,
        notes_above=[*_about(a, b), *(f"{way.head}: {way.statement}" for way in ways)],
    )
    billed = {way.head: tuple(_grouped(s.ledger, key, way.bills) for s in (a, b)) for way in ways}
    names = [name for name in _names(key, a, b) if any(p.get(name) for pair in billed.values() for p in pair)]
    rows, sums = [], {way.head: sum(billed[way.head][1].values()) for way in ways}
    for name in names:
        values = {what: name}
        for head, (left, right) in billed.items():
            difference = left.get(name, 0) - right.get(name, 0)
            sums[head] += difference
            values |= {f"a_{head}": left.get(name, 0), f"b_{head}": right.get(name, 0)}
            values |= {f"difference_{head}": difference, f"sum_{head}": sums[head]}
        rows.append(Row(values, records=[values]))
    total = {what: "total"}
    for head, (left, right) in billed.items():
        x, y = sum(left.values()), sum(right.values())
        total |= {f"a_{head}": x, f"b_{head}": y, f"difference_{head}": x - y, f"sum_{head}": sums[head]}
    return Section(layout, [*rows, Row(total, records=[total], total=True)])


def _names(key, a: Compared, b: Compared) -> list[str]:
    found = list(dict.fromkeys(key(entry) for side in (a, b) for entry in side.ledger))
    order = [*BLOCKS, *MAC_KINDS]
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def _grouped(ledger: Ledger, key, bills) -> dict[str, int]:
    totals: dict[str, int] = {}
    for entry in ledger:
        totals[key(entry)] = totals.get(key(entry), 0) + bills(entry) * entry.size
    return totals


def _params(a: Compared, b: Compared) -> Section:
    columns = [Column("block", "block")]
    for key, head in (("params", "params"), ("active_params", "active")):
        columns += [
            Column(f"a_{key}", f"{head}\nA", kind="int", of="params"),
            Column(f"b_{key}", f"{head}\nB", kind="int", of="params"),
            Column(f"difference_{key}", f"{head}\nA less B", kind="int", sign=True, of="params", priority=0),
        ]
    rows = []
    for name in (*_names(block, a, b), "total"):
        values = {"block": name}
        for key in ("params", "active_params"):
            x, y = (_part(side.ledger, name, key) for side in (a, b))
            values |= {f"a_{key}": x, f"b_{key}": y, f"difference_{key}": x - y}
        rows.append(Row(values, records=[values], total=name == "total"))
    layout = Table("compare-params", f"{a.name} against {b.name}: parameters by block", columns)
    return Section(layout, rows)


def _part(ledger: Ledger, name: str, of: str) -> int:
    return getattr(ledger.select(lambda entry: name in ("total", block(entry))), of)


def _turns(a: Compared, b: Compared, ways: Sequence[Way], counters, device) -> Section:
    moved = dict.fromkeys(letter for s in (a, b) for letter in s.letters() if letter != "T")
    notes = ["T is every input length at once."]
    if moved:
        notes[0] += f" Of A or of B alone, in every layer and with all else as it is: {', '.join(moved)}"
        notes[0] += " (and g with it, where every head has keys and values of its own)." if "h" in moved else "."
    uneven = [f"{', '.join(s.uneven())} of {side}" for side, s in (("A", a), ("B", b)) if s.uneven()]
    if uneven:
        notes.append(f"Left out, because they differ from layer to layer: {'; '.join(uneven)}.")
    layout = Table(
        "compare-turns",
        f"{a.name} against {b.name}: where the ranking turns",
        TURN_COLUMNS,
        notes_above=notes,
        note_column="counted",
    )
    return Section(layout, _turn_rows(a, b, ways, counters, device))


def _turn_rows(a: Compared, b: Compared, ways, counters, device) -> Iterator[Row]:
    movable = [("T", "AB")] if all("T" in s.letters() for s in (a, b)) else []
    movable += [(letter, which) for which, s in (("A", a), ("B", b)) for letter in s.letters() if letter != "T"]
    for way in ways:
        for letter, which in movable:
            yield from _rows_of(Change(a, b, letter, which, way), counters, device)


@dataclass(frozen=True)
class Change:
    """One letter of one side, or of both, that takes other sizes; the difference is billed one ``way``.

    ``built`` keeps the sides at each size: a user's module is run anew for each.
    """

    a: Compared
    b: Compared
    letter: str
    which: str
    way: Way
    built: dict[int, list[Compared]] = field(default_factory=dict)

    def less(self, size: Size) -> Size:
        """A less B."""
        left, right = (
            (s.ledger_in(self.letter, size) if side in self.which else s.ledger).billed(self.way.bills)
            for side, s in (("A", self.a), ("B", self.b))
        )
        return left - right

    def sides(self, size: int) -> list[Compared]:
        """A and B at an integer. ConfigError where they cannot be built."""
        if size not in self.built:
            pair = (("A", self.a), ("B", self.b))
            self.built[size] = [s.at(self.letter, size) if side in self.which else s for side, s in pair]
        return self.built[size]

    def refusal(self, size: int) -> str | None:
        """Why A and B cannot be built at an integer, if they cannot."""
        try:
            self.sides(size)
        except ConfigError as error:
            return f"{self.letter} = {size}: {error}"
        return None

    def least(self) -> int:
        """The least size: 0 where A and B can be built with none, else 1."""
        return 1 if self.letter == "T" or self.refusal(0) else 0

    def between_built(self, turn: Turn) -> Turn | None:
        """``turn`` as one between sizes that can be built, where its own cannot; None where there are none near."""
        ends = []
        for start, step in ((turn.below, -1), (turn.above, 1)):
            near = range(start, max(-1, start + step * NEAR), step)
            ends.append(next((size for size in near if not self.refusal(size)), None))
        if None in ends:
            return None
        wider = Turn(*ends, *map(self.less, ends))
        return wider if sign(wider.at_below) != sign(wider.at_above) else None


def _rows_of(change: Change, counters, device) -> Iterator[Row]:
    letter = change.letter
    unknown = symbol(letter)
    difference = expand(change.less(unknown))
    least = change.least()
    # A router over no head or over one is left out: the polynomial may begin behind that.
    small = {} if letter == "T" else {n: change.less(n) for n in range(least, 2)}
    exceptions = {n: value for n, value in small.items() if value != difference.subs(unknown, n)}
    values = {"account": change.way.head, "letter": letter if change.which == "AB" else f"{letter} of {change.which}"}
    values["difference"] = str(difference).replace("**", "^")
    apart = " and ".join(f"{value:,} at {letter} = {n}" for n, value in exceptions.items())
    apart = [f"A less B is {apart}"] if apart else []
    found = turns(difference, unknown, least, exceptions)
    for turn in found:
        reason = change.refusal(turn.below) or change.refusal(turn.above)
        built = change.between_built(turn) if reason else turn
        counted, notes, failures = _confirm(change, built, counters, device) if built else ("cannot be built", [], [])
        notes = [*apart, *([reason] if reason else []), *notes]
        row = {**values, **vars(built or turn), "counted": counted}
        yield Row(row, notes=notes, records=[{**row, "exceptions": exceptions}], failures=failures)
    if not found:
        row = {**values, "below": None, "at_below": None, "above": None, "at_above": None, "counted": "never turns"}
        yield Row(row, notes=apart, records=[{**row, "exceptions": exceptions}])


def _confirm(change: Change, turn: Turn, counters, device) -> tuple[str, list[str], list[str]]:
    """Whether counts at the two integers have the differences of the closed form."""
    if change.way is not EXACT:
        return "closed form", [], []
    if not counters:
        return "not asked", [], []
    failures = []
    for size, expected in ((turn.below, turn.at_below), (turn.above, turn.at_above)):
        left, right = (cases.counted(side, counters, device) for side in change.sides(size))
        for name in left:
            reasons = [reading for reading in (left[name], right[name]) if isinstance(reading, str)]
            if reasons:
                return "no module", reasons[:1], []
            if left[name] - right[name] != expected:
                failures.append(f"{change.letter} = {size}: {name} does not count a difference of {expected:,}")
    return ("no" if failures else ", ".join(counters)), failures, failures
