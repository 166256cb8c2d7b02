"""Compare two rules of training FLOPs on one model: what each counts of every entry of its ledger, per token."""

from collections.abc import Sequence

from headcount.bench.case import Case, describe_input
from headcount.bench.errors import UsageError
from headcount.bench.table import Column, Row, Section, Table
from headcount.bench.training_flops import tokens_of
from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import divide


def section(case: Case, names: Sequence[str]) -> Section:
    """Return a row for each entry that one of two rules counts: FLOPs per token of each, and the difference.

    Raises UsageError where a rule does not apply to the model, and for another number of rules than two.
    """
    if len(names) != 2:
        raise UsageError(f"--rules takes two to compare, as palm 6n, or one with --columns; given: {', '.join(names)}")
    a, b = rules = [CONVENTIONS[name] for name in names]
    _, tokens = (tokens_of(case, rule) for rule in rules)
    parts = [({"path": entry.path or "(model)", "kind": entry.kind}, [entry]) for entry in case.ledger]
    rows = []
    for place, entries in [*parts, ({"path": "total", "kind": ""}, case.ledger)]:
        of_a, of_b = (divide(rule.flops(entries, tokens), tokens) for rule in rules)
        if of_a or of_b:
            values = {**place, "a": of_a, "b": of_b, "difference": divide(of_a - of_b, 1)}
            rows.append(Row(values, records=[values], total=entries is case.ledger))
    columns = [Column("path", "module"), Column("kind", "kind")]
    columns += [
        Column("a", a.name, unit="FLOPs", kind="int", of="FLOPs", priority=0),
        Column("b", b.name, unit="FLOPs", kind="int", of="FLOPs", priority=0),
        Column("difference", "difference", unit="FLOPs", kind="int", of="FLOPs", sign=True, priority=0),
    ]
    used, stored = case.ledger.active_params, case.ledger.params
    size = f"{used:,} of {stored:,} parameters are active" if used != stored else f"{stored:,} parameters"
    notes = [f"Input: {describe_input(case.lengths)}. FLOPs per token of a training step. {case.name}: {size}."]
    notes += [f"{rule.name}: {rule.about} Source: {rule.source}." for rule in dict.fromkeys(rules)]
    title = f"{case.name}: {a.name} against {b.name}"
    table = Table(f"{case.name}-rules", title, columns, notes)
    return Section(table, rows, facts={"model": case.name, "rules": list(names)})
