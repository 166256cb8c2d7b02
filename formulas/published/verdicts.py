"""Verdicts on printed rows: whether the ledger gives the printed number under the rule of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from headcount.formulas.ledger import Ledger
from headcount.formulas.published.columns import Case, Column, Row
from headcount.formulas.published.impossible import PrintedRow, no_common_rule
from headcount.formulas.published.rounding import UNITS, Printing
from headcount.formulas.published.tables import VERDICTS, PublishedTable


@dataclass(frozen=True)
class Verdict:
    """``status``: one of formulas.published.tables.VERDICTS; ``under_rule``: the MACs under the table's rule, None
    without one; ``because``: the arithmetic, None if the status needs none."""

    status: str
    under_rule: int | None
    because: str | None = None


@dataclass(frozen=True)
class VocabularyRange:
    """The vocabulary sizes at which the ledger's parameters print as a table does; may be empty."""

    low: int
    high: int


def judge(table: PublishedTable, cases: Mapping[str, Case]) -> dict[str, Verdict]:
    """Return the verdict on each row of ``table`` by row name, the worst of its judged columns.

    ``cases``: models by row name. The verdicts in the data file are not used.
    """
    macs, verdicts = table.column("macs"), {}
    contradictions = _contradictions(macs, table.rows, cases) if macs in table.judged else {}
    for row in table.rows:
        case = cases[row.name]
        found = [
            _of_column(column, row, case, contradictions.get(row.name, "") if column is macs else "")
            for column in table.judged
            if column.printed(row)
        ]
        worst = max((status for status, _ in found), key=VERDICTS.index, default="no printed value")
        because = "; ".join(filter(None, (because for _, because in found)))
        verdicts[row.name] = Verdict(worst, macs and macs.total(case), because or None)
    return verdicts


def _contradictions(macs: Column, rows: Sequence[Row], cases: Mapping[str, Case]) -> dict[str, str]:
    """Return, by row name, arguments that no rule prints the MACs of these rows."""
    texts = {row.name: text for row in rows if (text := macs.printed(row))}
    unit = UNITS[macs.printing.unit]
    return no_common_rule(
        [
            PrintedRow(name, int(Decimal(text[:-1]) * unit), macs.printing.step(text), cases[name].ledger)
            for name, text in texts.items()
        ]
    )


def _of_column(column: Column, row: Row, case: Case, contradiction: str) -> tuple[str, str]:
    """Return the verdict on a printed cell and the arithmetic, empty where it needs none."""
    printed, total = column.printed(row), column.total(case)
    printing = column.printing.like(printed)
    if printing.text(total) == printed:
        return "reproduced", ""
    shown = f"{total:,}" if isinstance(total, int) else f"{float(total):.2f}"
    by_rule = f"{shown} prints {printing.text(total)}, not {printed}"
    note = f". {row.note}" if row.note else ""
    terms = [(term, column.adjusted(term, case)) for term in row.adjust if term.of == column.quantity]
    adjusted = total + sum(amount for _, amount in terms)
    # if the cell was rounded twice, the sum must print the first rounding
    once = row.rounded_from.get(column.quantity, printed)
    twice = printing.text(Fraction(once[:-1]) * UNITS[once[-1]])
    if terms and column.printing.like(once).text(adjusted) == once and twice == printed:
        steps = "".join(f" {'+' if amount >= 0 else '-'} {abs(amount):,} ({term})" for term, amount in terms)
        again = f", which rounded again prints {printed}" if once != printed else ""
        return "explained", f"{by_rule}; {shown}{steps} = {adjusted:,} prints {once}{again}{note}"
    if contradiction:
        return "not reproducible", f"{by_rule}; {contradiction}{note}"
    return "unexplained", by_rule + note


def implied_vocabulary(printed: str, printing: Printing, ledger: Ledger) -> VocabularyRange:
    """Return the vocabularies V at which the model's parameters print as ``printed``.

    Parameters are linear in V: no weight has V twice.
    """
    holding = ledger.select(lambda entry: "V" in entry.weight)
    per_word = Ledger(tuple(replace(entry, weight={**entry.weight, "V": 1}) for entry in holding)).params
    fixed = ledger.params - holding.params
    fits = printing.interval(printed)
    low, high = -((fixed - fits.start) // per_word), (fits.stop - 1 - fixed) // per_word
    return VocabularyRange(max(low, 1), high)


def common_vocabulary(ranges: list[VocabularyRange]) -> VocabularyRange:
    """Return the intersection of ``ranges``; empty if ``high`` < ``low``."""
    return VocabularyRange(max(r.low for r in ranges), min(r.high for r in ranges))
