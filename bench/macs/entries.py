"""Tables of a closed form: its ledger by module and kind, and two rules of training FLOPs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import repeat

from headcount.bench.accounts import ACCOUNTS, Assumptions, check, statement, values
from headcount.bench.case import Case, describe_input
from headcount.bench.closed_form.rules import model_of
from headcount.bench.column import Column, macs_column, params_column
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.macs.columns import Accounts, account_column
from headcount.bench.result import Result, Row, Table, columns_of, format_macs, format_params, shown
from headcount.bench.training_flops import RuleRefused, find_rule, flops_per_token
from headcount.formulas.conventions import CONVENTIONS, Rule
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, divide
from headcount.formulas.summary import sizes

ABOUT = (
    "MACs: multiply-accumulates of one forward pass. Elements: outputs of an operation without any. A * stands for "
    "the index of a repeated layer, all repetitions together."
)


@dataclass(frozen=True)
class LedgerRow(Row):
    """Sums over a part of a ledger: an entry, the entries of a kind, or all.

    Attributes:
        path: module of an entry.
        kind: what is done.
        sizes: sizes of an entry, as text.
        macs: multiply-accumulates.
        share: ``macs`` in percent of the ledger's; None where nothing is multiplied.
        elements: outputs of operations without MACs; None where there are none.
        params: parameters.
        active_params: those that a token uses.
        total: the row of all entries.
    """

    path: str = shown(Column, "module")
    kind: str = shown(Column, "kind")
    sizes: str = shown(Column, "sizes", priority=2)
    macs: int = shown(macs_column, "MACs", priority=0)
    share: Fraction | None = shown(Column, "share", unit="%", kind="fixed", digits=2)
    elements: int | None = shown(Column, "elements", kind="int", of="elements", priority=4)
    params: int = shown(params_column, "params")
    active_params: int | None = shown(params_column, "params\nactive", priority=3)
    total: bool = False


def tables(case: Case, count: Count, heading: str) -> list[Table[LedgerRow]]:
    """Return the ledger of ``count``, the closed form of ``case``, entry by entry, and its sums by kind."""
    name, ledger = case.name, count.ledger
    row = partial(_row, ledger.macs)
    rows = [row([one], one.path or "(model)", one.kind, sizes(one)) for one in ledger]
    entries_by_kind: dict[str, list[Entry]] = {}
    for one in ledger:
        entries_by_kind.setdefault(one.kind, []).append(one)
    kinds = [row(own, kind=kind) for kind, own in entries_by_kind.items()]
    rows.append(row(ledger, "total", total=True))
    kinds.append(row(ledger, kind="total", total=True))

    _, kind_column, _, *costs = columns = columns_of(LedgerRow)
    notes = [f"Input: {describe_input(case.lengths)}.", *case.notes, ABOUT]
    facts = {"count": count.with_values(notes=tuple(case.notes)), "input": dict(case.lengths)}
    entries = Table(name, heading, columns, rows, notes, facts=facts, detail=True)
    return [entries, Table(f"{name}-kinds", f"{name}: by kind", [kind_column, *costs], kinds)]


def _row(
    all_macs: int, entries: Iterable[Entry], path: str = "", kind: str = "", sizes: str = "", total: bool = False
) -> LedgerRow:
    part = Ledger(tuple(entries))
    elements = [entry.size for entry in part if entry.kind not in MAC_KINDS]
    return LedgerRow(
        path,
        kind,
        sizes,
        macs=part.macs,
        share=Fraction(100 * part.macs, all_macs) if all_macs and len(elements) < len(part) else None,
        elements=sum(elements) if elements else None,
        params=part.params,
        active_params=part.active_params,
        total=total,
    )


def sentence(counts: Sequence[Count], in_flops: bool) -> str:
    """Return the costs of closed forms."""
    parts = []
    for count in counts:
        ledger = count.ledger
        used = ledger.active_params
        active = f", active {format_params(used, '')}" if used not in (None, ledger.params) else ""
        parts.append(f"{count.name}: {format_macs(ledger.macs, in_flops)}, {format_params(ledger.params)}{active}")
    return f"{'; '.join(parts)}."


@dataclass(frozen=True)
class RuleRow(Row):
    """FLOPs per token of an entry by two rules of a training step; ``difference`` is the first less the second."""

    path: str
    kind: str
    a: int
    b: int
    difference: int
    total: bool = False


def compare_rules(case: Case, names: Sequence[str]) -> Result:
    """Return the FLOPs per token of a model by the two rules ``names``, and their differences.

    It has a row for each entry that one of them counts, and the total. Raises UsageError where a rule does not apply.
    """
    a, b = rules = [CONVENTIONS[name] for name in names]
    for rule in rules:
        # raises where one does not apply
        flops_per_token(case, rule)

    def row(path: str, kind: str, part: Ledger, total: bool = False) -> RuleRow:
        first, second = (case.flops_per_token(rule, part) for rule in rules)
        return RuleRow(path, kind, first, second, divide(first - second, 1), total)

    parts = [row(one.path or "(model)", one.kind, Ledger((one,))) for one in case.ledger]
    total = row("total", "", case.ledger, total=True)
    rows = [*(one for one in parts if one.a or one.b), total]
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
    notes += map(_about, dict.fromkeys(rules))
    title = f"{case.name}: {a.name} against {b.name}"
    facts = {"model": case.name, "rules": [a.name, b.name]}
    table = Table(f"{case.name}-rules", title, columns, rows, notes, facts=facts)
    return _result(table, case.name, rules, [total.a, total.b])


def _result(
    table: Table, name: str, rules: Sequence[Rule], flops: Sequence[int | Fraction], shares: Iterable[str] = repeat("")
) -> Result:
    """Return a table with what each rule counts of the model called ``name``, and ``shares`` of a peak in words."""
    first, *others = zip(flops, rules, shares, strict=False)
    parts = [f"{first[0]:,} FLOPs per token by {first[1].name}{first[2]}"]
    parts += [f"{size:,} by {rule.name}{share}" for size, rule, share in others]
    return Result([table], lambda: f"{name}: {', '.join(parts)}.")


def _about(rule: Rule) -> str:
    return f"{rule.name}: {rule.about} Source: {rule.source}."


@dataclass(frozen=True)
class RuleTotal(Row):
    """FLOPs per token of a training step of a whole model by a rule, over those of the first rule that applies.

    Both are None where the rule does not apply to the model, for the ``reason``.
    """

    rule: str = shown(Column, "rule")
    flops: int | Fraction | None = shown(Column, "FLOPs\nper token", unit="FLOPs", kind="int", of="FLOPs", priority=0)
    ratio: Fraction | None = shown(Column, "of the\nfirst", kind="fixed", digits=4)
    accounts: Accounts = Accounts()
    reason: str = ""

    @property
    def notes(self) -> list[str]:
        """The reasons for what is missing."""
        return [f"{self.reason}."] if self.reason else self.accounts.notes


def rule_totals(
    model: Case | Count, name: str, names: Sequence[str], columns: Sequence[str], given: Assumptions
) -> Result:
    """Return the FLOPs per token of the model called ``name`` by the rules ``names``; a dash where one does not apply.

    ``columns``: accounts of a rule to add, as mfu, under ``given``. Raises UsageError where no rule applies, and for
    other columns.
    """
    of_rules = [key for key, account in ACCOUNTS.items() if "rule" in account.needs]
    for column in columns:
        if column not in of_rules:
            raise UsageError(f"--columns of rules are {', '.join(of_rules)}, not {column}")
    rules = [find_rule(one, model) for one in dict.fromkeys(names)]
    flops: dict[Rule, int | Fraction] = {}
    refused: dict[Rule, RuleRefused] = {}
    for rule in rules:
        try:
            flops[rule] = flops_per_token(model_of(model, rule), rule)
        except RuleRefused as error:
            refused[rule] = error
    if not flops:
        raise refused[rules[0]]
    first, *_ = flops.values()
    rows = []
    for rule in rules:
        if rule in flops:
            assumed = replace(given, rule=rule.name)
            check(columns, assumed)
            accounts = Accounts(*values(columns, model_of(model, rule), assumed))
            rows.append(RuleTotal(rule.name, flops[rule], Fraction(flops[rule]) / first, accounts))
        else:
            rows.append(RuleTotal(rule.name, None, None, Accounts(dict.fromkeys(columns)), refused[rule].reason))
    notes = [
        f"Input: {'; '.join(model.inputs)}. FLOPs per token of a training step, forward and backward.",
        *map(_about, flops),
    ]
    notes += filter(None, [statement(columns, given)])
    shown = [*columns_of(RuleTotal), *map(account_column, columns)]
    table = Table("rules", f"{name}: rules of training", shown, rows, notes, note_column="rule", facts={"model": name})
    return _result(
        table, name, [*flops], [*flops.values()], [_utilisations(row) for row in rows if row.flops is not None]
    )


def _utilisations(row: RuleTotal) -> str:
    """Return MFU and HFU by a rule for a sentence; empty without any."""
    found = {name: value for name in ("mfu", "hfu") if (value := row.accounts.values.get(name)) is not None}
    texts = [f"{name.upper()} {ACCOUNTS[name].column().text(value)} %" for name, value in found.items()]
    return f" ({', '.join(texts)})" if texts else ""
