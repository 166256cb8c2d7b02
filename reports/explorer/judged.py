"""The papers' rows as the explorer judges them: what may be billed, each part with its total, and how it is rounded."""

from collections.abc import Callable, Iterator
from typing import Any

from headcount.bench.case import Case
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry, Ledger
from headcount.formulas.published.columns import Column, Row
from headcount.formulas.published.rounding import SHIFTS, UNITS, Printing
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import Verdict
from headcount.reports.facts import Facts

_KINDS = {
    "scores": "first T S product (scores)",
    "values": "second T S product (values)",
    "conv": "convolutions",
    "bias": "other biases",
    "expert_bias": "biases of experts",
    "norm": "norms",
    "rms_norm": "norms without a mean",
    "softmax": "softmax",
    "activation": "activations",
    "elementwise": "elementwise",
    "pooling": "pooling",
    "embedding": "embedding",
    "rope": "rotary positions",
}
_LINEAR = {
    conventions.router: "routers",
    conventions.vocabulary_projection: "vocabulary projection",
    conventions.attention: "attention projections",
    conventions.feed_forward: "feed-forward layers",
}


def part(entry: Entry) -> str:
    """What an entry is to somebody who bills it. KeyError for a kind without words."""
    if conventions.projections(entry):
        return next((text for bills, text in _LINEAR.items() if bills(entry)), "other linear layers")
    return "feed-forward biases" if conventions.ffn_biases(entry) else _KINDS[entry.kind]


def tables(facts: Facts) -> dict[str, Any]:
    """Return the tables that print MACs or parameters: the parts of each model, and by column the rule and the rows.

    ``parts``: by the part's words, whether it is a contraction; ``models``: by preset and quantity, the total of each
    part; ``bills`` of a column: how many times the rule counts each part.
    """
    models: dict[str, dict[str, dict[str, int]]] = {}
    parts: dict[str, bool] = {}
    found = []
    for table in facts.tables.values():
        columns = [one for column in table.columns for one in _columns(facts, table, column)]
        for row in table.rows if columns else ():
            ledger = facts.ledger(row.preset)
            for of in (column["of"] for column in columns):
                models.setdefault(row.preset, {})[of] = _totals(ledger, _ACCOUNTS[of])
            for entry in ledger:
                parts[part(entry)] = parts.get(part(entry), False) or conventions.exact(entry)
        if columns:
            found.append({"name": table.name, "title": table.title, "columns": columns})
    return {"parts": parts, "models": models, "tables": found}


_ACCOUNTS: dict[str, Callable[[Entry], int]] = {
    "macs": lambda entry: entry.size,
    "params": lambda entry: entry.params,
}


def _totals(ledger: Ledger, account: Callable[[Entry], int]) -> dict[str, int]:
    out: dict[str, int] = {}
    for entry in ledger:
        if account(entry):
            out[part(entry)] = out.get(part(entry), 0) + account(entry)
    return out


def _columns(facts: Facts, table: PublishedTable, column: Column) -> Iterator[dict[str, Any]]:
    """A column for each of its printed names; none for a quantity that is no sum over entries."""
    if column.quantity not in _ACCOUNTS:
        return
    bills = _bills(facts, table, column)
    for name in getattr(column, "names", ("",)):
        yield {
            "of": column.quantity,
            "as": name.removeprefix(column.quantity),
            "rule": column.statement,
            "bills": bills,
            "print": _printing(column.printing),
            "rows": [_row(row, printed, column, facts.verdicts(table.name)[row.name])
                     for row in table.rows if (printed := _cell(column, row, name))],
        }  # fmt: skip


def _cell(column: Column, row: Row, name: str) -> str | None:
    """What the table prints of this row under one of the column's names."""
    return row.cells.get(column.quantity, {}).get(name) if name else column.printed(row)


def _bills(facts: Facts, table: PublishedTable, column: Column) -> dict[str, int]:
    """How many times the rule counts each part. ArithmeticError where it cuts one, or where the sum is another."""
    account, bills = _ACCOUNTS[column.quantity], getattr(column, "multiplicity", lambda entry: 1)
    found: dict[str, int] = {}
    for row in table.rows:
        ledger = facts.ledger(row.preset)
        for entry in (entry for entry in ledger if account(entry)):
            if found.setdefault(part(entry), bills(entry)) != bills(entry):
                raise ArithmeticError(f"the rule of {table.name} bills a part of {part(entry)}")
        if sum(found[text] * size for text, size in _totals(ledger, account).items()) != column.total(_of(row)):
            raise ArithmeticError(f"{table.name}, {row.name}: the parts are not the rule's total")
    return found


def _of(row: Row) -> Case:
    return Case.of(row.preset)


def _row(row: Row, printed: str, column: Column, verdict: Verdict) -> list[Any]:
    """Name, preset, the printed cell, verdict and reason where the column is judged, and what closes its gap."""
    adjust = [[str(term), column.adjusted(term, _of(row))] for term in row.adjust if term.of == column.quantity]
    said = [verdict.status, verdict.because or ""] if column.judged else ["", ""]
    return [row.name, row.preset, printed, *said, *([adjust] if adjust else [])]


def _printing(printing: Printing) -> dict[str, Any]:
    """How numbers are rounded; ``decimals`` -1: as many as the cell has."""
    shift = SHIFTS[printing.rounding]
    return {
        "unit": printing.unit,
        "scale": UNITS[printing.unit],
        "shift": [shift.numerator, shift.denominator],
        "decimals": printing.decimals,
        "significant": printing.significant or 0,
        "multiple": printing.multiple,
    }
