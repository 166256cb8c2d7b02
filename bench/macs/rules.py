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
    rows = []
    for entry in case.ledger:
        row = _row(
            {"path": entry.path or "(model)", "kind": entry.kind},
            [rule.flops([entry], tokens) for rule in rules],
            tokens,
        )
        if row.values["a"] or row.values["b"]:
            rows.append(row)
    rows.append(_row({"path": "total", "kind": ""}, [rule.flops(case.ledger, tokens) for rule in rules], tokens))
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


def _row(values: dict[str, str], counted: Sequence[int], tokens: int) -> Row:
    a, b = (divide(flops, tokens) for flops in counted)
    values = {**values, "a": a, "b": b, "difference": divide(a - b, 1)}
    return Row(values, records=[values], total=values["path"] == "total")
