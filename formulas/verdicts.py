"""The verdict on a printed row: does its number come out of the ledger under the table's one rule?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from formulas import conventions
from formulas.arguments import PrintedRow, no_common_rule
from formulas.ledger import Ledger
from formulas.published.tables import Adjustment, PublishedTable, Row
from formulas.rounding import UNITS


@dataclass(frozen=True)
class Verdict:
    """``status``: one of formulas.published.tables.VERDICTS; ``under_rule``: the MACs that the table's rule
    bills; ``because``: the arithmetic, None where the status needs none."""

    status: str
    under_rule: int
    because: str | None = None


@dataclass(frozen=True)
class VocabularyRange:
    """The vocabulary sizes at which the ledger's parameters print as ``printed``; empty where none do."""

    printed: str
    low: int
    high: int

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high


def judge(table: PublishedTable, ledgers: Mapping[str, Ledger]) -> dict[str, Verdict]:
    """The verdict on each row of ``table`` by row name; ``ledgers`` holds each row's exact ledger by row name."""
    printing, convention = table.macs_printing, conventions.by_name(table.convention)
    printed_rows = [
        PrintedRow(
            row.name,
            int(Decimal(row.macs[:-1]) * UNITS[printing.unit]),
            printing.step(row.macs),
            ledgers[row.name],
        )
        for row in table.rows
        if row.macs
    ]
    contradictions = no_common_rule(printed_rows)
    verdicts = {}
    for row in table.rows:
        total = ledgers[row.name].billed(convention)
        verdicts[row.name] = _judge_row(row, total, printing, ledgers[row.name], contradictions.get(row.name))
    return verdicts


def _judge_row(row: Row, total, printing, ledger, contradiction) -> Verdict:
    if row.macs is None:
        return Verdict("nothing printed", total)
    if printing.text(total) == row.macs:
        return Verdict("reproduced", total)
    by_rule = f"{total:,} prints {printing.text(total)}, not {row.macs}"
    if row.adjust:
        terms = [(term, billed(term, ledger)) for term in row.adjust]
        adjusted = total + sum(amount for _, amount in terms)
        if printing.text(adjusted) == row.macs:
            steps = "".join(f" {'+' if amount >= 0 else '-'} {abs(amount):,} ({name(term)})" for term, amount in terms)
            note = f". {row.note}" if row.note else ""
            return Verdict("explained", total, f"{by_rule}; {total:,}{steps} = {adjusted:,} prints {row.macs}{note}")
    if contradiction:
        return Verdict("no rule", total, f"{by_rule}; {contradiction}")
    return Verdict("unexplained", total, by_rule)


def billed(adjustment: Adjustment, ledger: Ledger) -> int:
    """What ``adjustment`` adds to a row's total: its entries' sizes, with the sizes it replaces."""
    selection = conventions.by_name(adjustment.select)
    entries = [entry.with_dims(**adjustment.dims) for entry in ledger.select(selection)]
    return adjustment.times * sum(entry.size for entry in entries)


def name(adjustment: Adjustment) -> str:
    """An adjustment in words: ``router with E = 16``."""
    sizes = ", ".join(f"{letter} = {size}" for letter, size in adjustment.dims.items())
    return adjustment.select.replace("_", " ") + (f" with {sizes}" if sizes else "")


def implied_vocabulary(printed: str, table: PublishedTable, ledger: Ledger) -> VocabularyRange:
    """The vocabularies V at which the model's parameters print as ``printed``.

    Parameters are linear in V: every weight that holds V holds it once.
    """
    holding = ledger.select(lambda entry: "V" in entry.weight)
    per_word = Ledger(tuple(replace(entry, weight={**entry.weight, "V": 1}) for entry in holding)).params
    fixed = ledger.params - holding.params
    fits = table.params_printing.interval(printed)
    low, high = -((fixed - fits.start) // per_word), (fits.stop - 1 - fixed) // per_word
    return VocabularyRange(printed, max(low, 1), high)


def common_vocabulary(ranges: list[VocabularyRange]) -> VocabularyRange:
    """The vocabularies that all ``ranges`` share; empty (``high`` < ``low``) where no one size fits all."""
    return VocabularyRange("all", max(r.low for r in ranges), min(r.high for r in ranges))
