"""Where the difference between two models comes from, and where their ranking turns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.ledgers import describe_input
from bench.sections import Row, Section
from bench.subjects import Subject
from bench.table import Column, Table
from formulas import conventions
from formulas.ledger import MAC_KINDS, Entry, Ledger
from formulas.published import tables
from models.config import ConfigError

BLOCKS: dict[str, Callable[[Entry], int]] = {
    "attention": conventions.attention,
    "feed-forward": conventions.feed_forward,
    "vocabulary": conventions.vocabulary,
}


@dataclass(frozen=True)
class Account:
    """One way to bill a ledger: its name in a column's head, what it bills, and the statement of it."""

    head: str
    bills: Callable[[Entry], int]
    statement: str


EXACT = Account("exact", conventions.exact, conventions.statement(conventions.exact))


def block(entry: Entry) -> str:
    """attention, feed-forward, vocabulary or other."""
    return next((name for name, holds in BLOCKS.items() if holds(entry)), "other")


def accounts(a: Subject, b: Subject) -> list[Account]:
    """The rule of the first published table that has both presets, where there is one; then exact."""
    for name in tables.NAMES:
        table = tables.load(name)
        # A table that prints no MACs has no rule for them.
        if table.convention and {a.preset, b.preset} <= {row.preset for row in table.rows}:
            convention = conventions.by_name(table.convention)
            return [Account("rule", convention, f"Rule of {name}: {conventions.statement(convention)}"), EXACT]
    return [EXACT]


def sections(a: Subject, b: Subject, counters: Sequence[str], device: str | None) -> Iterator[Section]:
    """The differences by block and by kind, parameters by block, and the turning points."""
    ways = accounts(a, b)
    yield _steps("block", block, a, b, ways)
    yield _steps("kind", lambda entry: entry.kind, a, b, ways)
    yield _params(a, b)
    yield _turns(a, b, ways, counters, device)


def _about(a: Subject, b: Subject) -> list[str]:
    inputs = dict.fromkeys(describe_input(subject.lengths) for subject in (a, b))
    return [f"A: {a.name}. B: {b.name}. Input: {'; '.join(inputs)}."]


def _steps(what: str, key, a: Subject, b: Subject, ways: Sequence[Account]) -> Section:
    columns = [Column(what, what, width=13)]
    for way in ways:
        columns += [
            Column(f"a_{way.head}", f"{way.head}\nA", kind="int", width=14),
            Column(f"b_{way.head}", f"{way.head}\nB", kind="int", width=14),
            Column(f"difference_{way.head}", f"{way.head}\nA less B", kind="int", width=15, sign=True),
            Column(f"sum_{way.head}", f"{way.head}\nfrom B to A", kind="int", width=14),
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
    return Section(layout, [*rows, Row(total, records=[total])])


def _names(key, a: Subject, b: Subject) -> list[str]:
    found = list(dict.fromkeys(key(entry) for subject in (a, b) for entry in subject.ledger))
    order = [*BLOCKS, "other", *MAC_KINDS]
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def _grouped(ledger: Ledger, key, bills) -> dict[str, int]:
    totals: dict[str, int] = {}
    for entry in ledger:
        totals[key(entry)] = totals.get(key(entry), 0) + bills(entry) * entry.size
    return totals


def _params(a: Subject, b: Subject) -> Section:
    columns = [Column("block", "block", width=13)]
    for key, head in (("params", "params"), ("active_params", "active")):
        columns += [
            Column(f"a_{key}", f"{head}\nA", kind="int", width=12),
            Column(f"b_{key}", f"{head}\nB", kind="int", width=12),
            Column(f"difference_{key}", f"{head}\nA less B", kind="int", width=13, sign=True),
        ]
    rows = []
    for name in (*_names(block, a, b), "total"):
        values = {"block": name}
        for key in ("params", "active_params"):
            x, y = (_part(subject.ledger, name, key) for subject in (a, b))
            values |= {f"a_{key}": x, f"b_{key}": y, f"difference_{key}": x - y}
        rows.append(Row(values, records=[values]))
    layout = Table("compare-params", f"{a.name} against {b.name}: parameters by block", columns)
    return Section(layout, rows)


def _part(ledger: Ledger, name: str, of: str) -> int:
    return getattr(ledger.select(lambda entry: name in ("total", block(entry))), of)


def _turns(a: Subject, b: Subject, ways: Sequence[Account], counters, device) -> Section:
    layout = Table(
        "compare-turns",
        f"{a.name} against {b.name}: where the ranking turns",
        [
            Column("account", "account", width=7),
            Column("letter", "letter", width=9),
            Column("difference", "A less B", width=44),
            Column("below", "last at", kind="int", width=9),
            Column("at_below", "A less B\nthere", kind="int", width=15, sign=True),
            Column("above", "first at", kind="int", width=9),
            Column("at_above", "A less B\nthere", kind="int", width=15, sign=True),
            Column("counted", "counted there", width=13),
        ],
        notes_above=["T is every input length at once; K and E of A or of B are changed alone, all else as it is."],
        note_column="counted",
    )
    return Section(layout, _turn_rows(a, b, ways, counters, device))


def _turn_rows(a: Subject, b: Subject, ways, counters, device) -> Iterator[Row]:
    from bench.turning import symbol, turns

    movable = [("T", "AB")] if all("T" in s.letters() for s in (a, b)) else []
    movable += [(letter, which) for which, s in (("A", a), ("B", b)) for letter in s.letters() if letter != "T"]
    for way in ways:
        for letter, which in movable:
            unknown = symbol(letter)
            left, right = (
                (s.ledger_in(letter, unknown) if side in which else s.ledger).billed(way.bills)
                for side, s in (("A", a), ("B", b))
            )
            difference = (left - right).expand() if hasattr(left - right, "expand") else left - right
            values = {"account": way.head, "letter": letter if which == "AB" else f"{letter} of {which}"}
            values["difference"] = str(difference).replace("**", "^")
            found = turns(difference, unknown)
            for turn in found:
                counted, notes, failures = _confirm(a, b, letter, which, turn, way, counters, device)
                row = {**values, **vars(turn), "counted": counted}
                yield Row(row, notes=notes, records=[row], failures=failures)
            if not found:
                row = {**values, "below": None, "at_below": None, "above": None, "at_above": None}
                row["counted"] = "never turns"
                yield Row(row, records=[row])


def _confirm(a, b, letter, which, turn, way, counters, device) -> tuple[str, list[str], list[str]]:
    """Whether counts at the two integers have the differences of the closed form."""
    failures = []
    for size, expected in ((turn.below, turn.at_below), (turn.above, turn.at_above)):
        try:
            sides = [s.at(letter, size) if side in which else s for side, s in (("A", a), ("B", b))]
        except ConfigError as error:
            return "cannot be built", [f"{letter} = {size}: {error}"], []
        if way is not EXACT:
            continue
        left, right = (side.counted(counters, device) for side in sides)
        for name in left:
            reasons = [reading for reading in (left[name], right[name]) if isinstance(reading, str)]
            if reasons:
                return "no module", reasons[:1], []
            if left[name] - right[name] != expected:
                failures.append(f"{letter} = {size}: {name} does not count a difference of {expected:,}")
    if way is not EXACT:
        return "closed form", [], []
    if not counters:
        return "not asked", [], []
    return ("no" if failures else ", ".join(counters)), failures, failures
