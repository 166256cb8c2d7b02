"""The verdict on a printed row: does its number come out of the ledger under the table's one rule?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from headcount.formulas import conventions
from headcount.formulas.ledger import OTHER_KINDS, Ledger
from headcount.formulas.moh import activated_percent
from headcount.formulas.published.impossible import PrintedRow, no_common_rule
from headcount.formulas.published.rounding import UNITS
from headcount.formulas.published.tables import Adjustment, PublishedTable, Row


@dataclass(frozen=True)
class Verdict:
    """``status``: one of formulas.published.tables.VERDICTS; ``under_rule``: the MACs that the table's rule
    bills, None without one; ``because``: the arithmetic, None where the status needs none."""

    status: str
    under_rule: int | None
    because: str | None = None


@dataclass(frozen=True)
class VocabularyRange:
    """The vocabulary sizes at which the ledger's parameters print as ``printed``; empty where none do."""

    printed: str
    low: int
    high: int

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high


def judge(
    table: PublishedTable, ledgers: Mapping[str, Ledger], ideals: Mapping[str, Ledger] | None = None
) -> dict[str, Verdict]:
    """The verdict on each row of ``table`` by row name, the worst of those on its judged columns.

    ``ledgers`` holds each row's exact ledger by row name, ``ideals`` that of the form that skips unselected heads.
    """
    judged = [_Column(table, column) for column in table.judged]
    contradictions = _contradictions(table, ledgers) if "macs" in table.judged else {}
    verdicts = {}
    for row in table.rows:
        form, ideal = ledgers[row.name], (ideals or {}).get(row.name)
        found = [column.verdict(row, ledgers, ideal, contradictions.get(row.name)) for column in judged]
        worst = max(found, key=lambda verdict: SEVERITY.index(verdict.status))
        under_rule = form.billed(conventions.by_name(table.convention)) if table.convention else None
        because = "; ".join(verdict.because for verdict in found if verdict.because)
        verdicts[row.name] = Verdict(worst.status, under_rule, because or None)
    return verdicts


SEVERITY = ("nothing printed", "reproduced", "explained", "no rule", "unexplained")


def _contradictions(table, ledgers) -> dict[str, str]:
    printing = table.macs_printing
    rows = [
        PrintedRow(
            row.name, int(Decimal(row.macs[:-1]) * UNITS[printing.unit]), printing.step(row.macs), ledgers[row.name]
        )
        for row in table.rows
        if row.macs
    ]
    return no_common_rule(rows)


class _Column:
    """One judged column of a table: what its rule makes of a ledger, and whether that is what is printed."""

    def __init__(self, table: PublishedTable, name: str) -> None:
        self.table, self.name = table, name
        rules = {"macs": table.macs_printing, "params": table.params_printing, "activated": table.activated_printing}
        self.printing = rules[name]

    def printed(self, row: Row) -> str | None:
        if self.name == "params":
            return row.params.get(self.table.params_columns[0])
        return getattr(row, self.name)

    def total(self, form: Ledger, ideal: Ledger) -> int | Fraction:
        if self.name == "macs":
            return form.billed(conventions.by_name(self.table.convention))
        return form.params if self.name == "params" else activated_percent(form, ideal)

    def verdict(
        self, row: Row, ledgers: Mapping[str, Ledger], ideal: Ledger | None, contradiction: str | None
    ) -> Verdict:
        form, printed = ledgers[row.name], self.printed(row)
        if printed is None:
            return Verdict("nothing printed", None)
        printing, total = self.printing.like(printed), self.total(form, ideal or form)
        if printing.text(total) == printed:
            return Verdict("reproduced", None)
        shown = f"{total:,}" if isinstance(total, int) else f"{float(total):.2f}"
        by_rule = f"{shown} prints {printing.text(total)}, not {printed}"
        note = f". {row.note}" if row.note else ""
        terms = [(term, billed(term, form)) for term in row.adjust if term.of == self.name]
        adjusted = total + sum(amount for _, amount in terms)
        if terms and printing.text(adjusted) == printed:
            steps = "".join(f" {'+' if amount >= 0 else '-'} {abs(amount):,} ({name(term)})" for term, amount in terms)
            because = f"{by_rule}; {shown}{steps} = {adjusted:,} prints {printed}{note}"
            return Verdict("explained", None, because)
        if contradiction and self.name == "macs":
            return Verdict("no rule", None, f"{by_rule}; {contradiction}{note}")
        near = near_misses(self.table, row, ledgers) if self.name == "macs" else ""
        return Verdict("unexplained", None, by_rule + near + note)


def near_misses(table: PublishedTable, row: Row, ledgers: Mapping[str, Ledger]) -> str:
    """Each kind without MACs that, billed once more, prints ``row``, with a row that it then misprints."""
    convention, out = conventions.by_name(table.convention), ""

    def text(of: Row, kind: str) -> str:
        form = ledgers[of.name]
        extra = sum(entry.size for entry in form if entry.kind == kind)
        return table.macs_printing.like(of.macs).text(form.billed(convention) + extra)

    for kind in OTHER_KINDS:
        if text(row, kind) == row.macs:
            broken = [other for other in table.rows if other.macs and text(other, kind) != other.macs]
            fault = f", but {broken[0].name} {text(broken[0], kind)}, not {broken[0].macs}" if broken else ""
            out += f"; with each {kind} element billed it prints {row.macs}{fault}"
    return out


def billed(adjustment: Adjustment, ledger: Ledger) -> int:
    """What ``adjustment`` adds to a row's total: its entries' sizes or parameters, with the sizes it replaces."""
    selection = conventions.by_name(adjustment.select)
    entries = [entry.with_dims(**adjustment.dims) for entry in ledger.select(selection)]
    of = "params" if adjustment.of == "params" else "size"
    return adjustment.times * sum(getattr(entry, of) for entry in entries)


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
