"""Tables of one model: its ledger by module and kind, the parts of each reported count, two rules of training."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from headcount.bench import table as printed
from headcount.bench.case import Case, describe_input
from headcount.bench.counting.case import as_records, disagreements, rule_agreement
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.result import Row, Table, columns_of, format_macs, shown
from headcount.bench.table import TONES, Column, Section, macs_column, params_column
from headcount.bench.training_flops import tokens_of
from headcount.formulas.conventions import CONVENTIONS, Rule
from headcount.formulas.ledger import MAC_KINDS, Ledger, divide
from headcount.formulas.summary import sizes

SHARE = Column("share", "share", unit="%", kind="fixed", digits=2)
COSTS = (
    macs_column("macs", "MACs", priority=0),
    SHARE,
    Column("elements", "elements", kind="int", of="elements", priority=4),
    params_column("params", "params"),
    params_column("active_params", "params\nactive", priority=3),
)
ABOUT = (
    "MACs: multiply-accumulates of one forward pass. Elements: outputs of an operation without any. A * stands for "
    "the index of a repeated layer, all repetitions together."
)
CAUSES = "where each tool's error comes from"


@dataclass(frozen=True)
class CauseRow(Row):
    """Calls that cause an error, with their place in the tool's source; ``counter`` stands in a count's first row."""

    counter: str = shown(Column, "counter")
    macs: int = shown(macs_column, "MACs", sign=True, priority=0)
    what: str = shown(Column, "what", priority=2)
    name: str = shown(Column, "call", priority=0, wraps=20)
    calls: int = shown(Column, "calls", kind="int", priority=3)
    place: str = shown(Column, "place in the tool's source", wraps=20)


def sections(case: Case, count: Count, heading: str) -> Iterator[Section]:
    """Yield the ledger of ``count``, that of ``case``, entry by entry, its sums by kind, and its counters."""
    name = case.name
    columns = [Column("path", "module"), Column("kind", "kind"), Column("sizes", "sizes", priority=2), *COSTS]
    reasons = dict.fromkeys(f"No counts: {tool.reason}." for tool in count.tools if tool.reason)
    notes = [f"Input: {describe_input(case.lengths)}.", ABOUT, *reasons]
    failures = disagreements(count, name)
    ledger, total = count.ledger, count.ledger.macs
    rows = [
        _row(entry.path or "(model)", Ledger((entry,)), total, kind=entry.kind, sizes=sizes(entry)) for entry in ledger
    ]
    rows.append(_row("total", ledger, total, kind="", sizes=""))
    records = as_records(name, case, count)
    rows[0] = replace(rows[0], records=records, failures=failures)
    yield Section(printed.Table(name, heading, columns, notes), rows, below=list(failures), detail=True)

    kinds = dict.fromkeys(entry.kind for entry in ledger)
    by_kind = [_row(kind, ledger.select(lambda entry, kind=kind: entry.kind == kind), total) for kind in kinds]
    by_kind.append(_row("total", ledger, total))
    yield Section(printed.Table(f"{name}-kinds", f"{name}: by kind", [Column("path", "kind"), *COSTS]), by_kind)
    if count.tools and not reasons:
        section = counters_section(f"{name}-counters", f"{name}: counters", records[1:])
        # the ledger's rows have the records
        yield replace(section, rows=[replace(row, records=()) for row in section.rows])
    causes = [record for record in records if record.get("causes")]
    if causes:
        yield causes_table(f"{name}-causes", f"{name}: {CAUSES}", causes)


def sentence(counts: Sequence[Count], in_flops: bool) -> str:
    """Return the costs of presets, and the number of wrong counts."""
    parts = []
    for count in counts:
        ledger = count.ledger
        active = f", {ledger.active_params:,} of them active" if ledger.active_params != ledger.params else ""
        cost = format_macs(ledger.macs, in_flops)
        parts.append(f"{count.name}: {cost}, {ledger.params:,} parameters{active}")
    return "; ".join([*parts, *rule_agreement(tool for count in counts for tool in count.tools)]) + "."


def _row(path: str, ledger: Ledger, total: int, **more: Any) -> printed.Row:
    """Return the sums of a part of the ledger: its share of the ``total`` MACs, elements of operations without MACs."""
    elements = [entry.size for entry in ledger if entry.kind not in MAC_KINDS]
    values = {
        "path": path,
        "macs": ledger.macs,
        "share": Fraction(100 * ledger.macs, total) if total and len(elements) < len(ledger) else None,
        "elements": sum(elements) if elements else None,
        "params": ledger.params,
        "active_params": ledger.active_params,
        **more,
    }
    return printed.Row(values, total=path == "total")


def counters_section(name: str, heading: str, cells: Sequence[Mapping[str, Any]], check: bool = False) -> Section:
    """Return each counter's reported count, its error, what it adds where that is known, and whether it is explained.

    ``cells`` are records of counts. A counter that fails is a failure; with ``check`` so is a count that is not
    explained.
    """
    columns = [
        Column("counter", "counter"),
        Column("version", "version", priority=3),
        Column("device", "device", priority=2),
        macs_column("macs", "reported\nMACs", priority=0),
        macs_column("difference", "error", sign=True, priority=0),
        Column("because", "what it adds", priority=0, wraps=16),
        Column("verdict", "explained", priority=0, tones=TONES),
    ]
    if not any(cell.get("additions") for cell in cells):
        del columns[-2]
    rows = []
    for cell in cells:
        added = ", ".join(f"{kind} {amount:+,}" for kind, amount in cell.get("additions", {}).items())
        failures, notes = [], []
        if cell["failed"]:
            verdict, notes = "failed", [f"failed: {cell['failed']}"]
            failures = [f"{cell['counter']} failed: {cell['failed']}"]
        elif cell["explained"]:
            verdict = "explained" if cell["difference"] else "equal"
        else:
            verdict = "unexplained"
            notes = [f"{cell['counter']} reads {cell['macs']:,}, its rules predict {cell['predicted_macs']:,}"]
            failures = list(notes) if check else []
        if cell.get("unverified"):
            unverified = f"its rules are unverified for {', '.join(cell['unverified'])}"
            notes.append(unverified)
            failures = [f"{failure} ({unverified})" for failure in failures]
        if cell["counted_there_because"]:
            notes.append(f"on {cell['device']}: {cell['counted_there_because'].rstrip('.')}")
        values = {key: cell[key] for key in ("counter", "version", "device", "macs", "difference")}
        rows.append(printed.Row({**values, "because": added, "verdict": verdict}, notes, [cell], failures))
    return Section(printed.Table(name, heading, columns, note_column="verdict"), rows)


def causes_table(name: str, heading: str, counts: Iterable[Mapping[str, Any]]) -> Table[CauseRow]:
    """Return the causes of each counter's difference, from the records of its counts."""
    rows = []
    for count in counts:
        for position, cause in enumerate(count["causes"]):
            rows.append(CauseRow("" if position else count["counter"], **cause))
    return Table(name, heading, columns_of(CauseRow), rows, detail=True)


@dataclass(frozen=True)
class RuleRow(Row):
    """FLOPs per token of an entry by two rules of a training step; ``difference`` is the first less the second."""

    path: str
    kind: str
    a: int
    b: int
    difference: int
    total: bool = False


@dataclass(frozen=True)
class RuleComparison:
    """Two rules on a model: a row for each entry that one of them counts, and the total."""

    case: Case
    rules: Sequence[Rule]
    rows: Sequence[RuleRow]


def compare_rules(case: Case, names: Sequence[str]) -> RuleComparison:
    """Return FLOPs per token by the two rules ``names``.

    Raises UsageError where a rule does not apply to the model, and for another number of rules than two.
    """
    if len(names) != 2:
        raise UsageError(f"--rules takes two to compare, as palm 6n, or one with --columns; given: {', '.join(names)}")
    rules = [CONVENTIONS[name] for name in names]
    _, tokens = (tokens_of(case, rule) for rule in rules)
    parts = [(entry.path or "(model)", entry.kind, [entry]) for entry in case.ledger]
    rows = []
    for path, kind, entries in [*parts, ("total", "", case.ledger)]:
        a, b = (divide(rule.flops(entries, tokens), tokens) for rule in rules)
        if a or b:
            rows.append(RuleRow(path, kind, a, b, divide(a - b, 1), total=entries is case.ledger))
    return RuleComparison(case, rules, rows)


def rules_table(found: RuleComparison) -> Table[RuleRow]:
    """Return the table of two rules."""
    case, (a, b) = found.case, found.rules
    per_token = partial(Column, unit="FLOPs", kind="int", of="FLOPs", priority=0)
    columns = [
        Column("path", "module"),
        Column("kind", "kind"),
        per_token("a", a.name),
        per_token("b", b.name),
        per_token("difference", "difference", sign=True),
    ]
    used, stored = case.ledger.active_params, case.ledger.params
    size = f"{used:,} of {stored:,} parameters are active" if used != stored else f"{stored:,} parameters"
    notes = [f"Input: {describe_input(case.lengths)}. FLOPs per token of a training step. {case.name}: {size}."]
    notes += [f"{rule.name}: {rule.about} Source: {rule.source}." for rule in dict.fromkeys(found.rules)]
    title = f"{case.name}: {a.name} against {b.name}"
    facts = {"model": case.name, "rules": [a.name, b.name]}
    return Table(f"{case.name}-rules", title, columns, found.rows, notes, facts=facts)


def rules_sentence(comparisons: Sequence[RuleComparison]) -> str:
    """Return what each rule counts of each model."""
    parts = []
    for found in comparisons:
        total, (a, b) = found.rows[-1], found.rules
        parts.append(f"{found.case.name}: {total.a:,} FLOPs per token by {a.name}, {total.b:,} by {b.name}")
    return f"{'; '.join(parts)}."
