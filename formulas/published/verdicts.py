"""Verdicts on printed cells: whether the expression of a column gives the printed number, and the arithmetic."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import Ledger
from headcount.formulas.published.figures import Case, Cases, Figure, Row, evaluate
from headcount.formulas.published.impossible import PrintedRow, no_common_rule
from headcount.formulas.published.rounding import Interval, fixed, number
from headcount.formulas.published.tables import Fit, PublishedTable

VERDICTS = (
    "reproduced", "explained", "explained (sizes fitted)", "not reproducible", "no rule found", "no printed value",
)  # fmt: skip
"""Verdicts on printed numbers, from the best on; ``not reproducible`` is proved, ``no rule found`` is not."""


@dataclass(frozen=True)
class Judged:
    """A cell with its verdict; ``value``: what the rule gives; ``because``: the arithmetic, where it needs any."""

    row: Row
    figure: Figure
    printed: str
    value: Interval
    verdict: str
    because: str = ""

    @property
    def expected(self) -> str:
        """The verdict as typed."""
        return self.row.verdicts.get(self.figure.name, "reproduced")

    @property
    def shown(self) -> str:
        """The value, written as the cell is printed."""
        return self.figure.format(self.value, self.row.number(self.figure))

    @property
    def last_digits(self) -> Fraction:
        """The value, of an interval its nearest end, minus the printed number in units of the last printed digit.

        The figure is printed from -1/2 on, and below 1/2.
        """
        cell = self.figure.interval(self.row.number(self.figure))
        nearest = max(self.value.low, min(self.value.high, cell.middle))
        return (nearest - cell.middle) / (cell.high - cell.low)


def judge(table: PublishedTable, cases: Cases) -> Iterator[Judged]:
    """Yield every printed cell of the judged columns of ``table`` with its verdict; typed verdicts are not used."""
    fitted = {(row, figure): fit for fit in table.fits for row in fit.models for figure in fit.figures}
    found = {id(fit): solutions(table, fit, cases) for fit in table.fits}
    contradictions = _contradictions(table, cases)
    for row, figure in product(table.rows, table.judged):
        if (text := row.printed.get(figure.name)) is None:
            continue
        value, printed = evaluate(row, figure, cases), row.number(figure)
        if fit := fitted.get((row.name, figure.name)):
            verdict = _fitted(fit, found[id(fit)])
        elif figure.prints(value, printed):
            verdict = "reproduced", row.note
        else:
            contradiction = contradictions.get(row.name, "") if figure.quantity == "macs" else ""
            verdict = _explained(row, figure, printed, value, cases, contradiction)
        yield Judged(row, figure, text, value, *verdict)


def of_row(cells: Sequence[Judged]) -> tuple[str, str, str]:
    """Return the worst verdict on the cells of a row, the worst as typed, and the arithmetic of all."""
    worst, typed = (
        max(found, key=VERDICTS.index, default="no printed value")
        for found in ([cell.verdict for cell in cells], [cell.expected for cell in cells])
    )
    return worst, typed, "; ".join(cell.because for cell in cells if cell.because)


def _contradictions(table: PublishedTable, cases: Cases) -> dict[str, str]:
    """Return, by row name, arguments that no rule prints the MACs of these rows."""
    macs, rows = table.column("macs"), []
    for row in table.rows if macs in table.judged else ():
        if text := row.printed.get(macs.name):
            cell, ledger = macs.interval(text), cases(row.preset, {}).ledger
            rows.append(PrintedRow(row.name, int(number(text)), int(cell.high - cell.low), ledger))
    return no_common_rule(rows)


def _fitted(fit: Fit, found: int) -> tuple[str, str]:
    tried = ", ".join(f"{name} {min(sizes)} to {max(sizes)}" for name, sizes in fit.sizes.items())
    because = f"{found:,} of the sizes tried ({tried}) print every row" + (f"; {fit.note}" if fit.note else "")
    return ("explained (sizes fitted)" if found == fit.solutions and found else "no rule found"), because


def adjustments(row: Row, figure: Figure, case: Case) -> list[tuple[str, int]]:
    """Return the entries that explain a cell: what they are, and what they add to the value."""
    found, account = [], "params" if figure.quantity == "params" else "size"
    for term in row.explain.get(figure.name, {}).get("adjust", ()):
        sizes = term.get("dims", {})
        chosen = case.ledger.select(CONVENTIONS[term["select"]])
        amount = term["times"] * sum(getattr(entry.with_dims(**sizes), account) for entry in chosen)
        shown = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
        found.append((term["select"].replace("_", " ") + (f" with {shown}" if shown else ""), amount))
    return found


def _explained(
    row: Row, figure: Figure, printed: str, value: Interval, cases: Cases, contradiction: str
) -> tuple[str, str]:
    """Return the verdict on a cell that its rule does not print, and the arithmetic."""
    total, instead = value.low, row.explain.get(figure.name, {})
    by_rule = f"{_shown(total)} prints {figure.text(total, printed)}, not {printed}" if figure.quantity else ""
    explain = _adjusted if "adjust" in instead else _changed
    if instead and (because := explain(row, figure, printed, value, cases)):
        fitted = " (sizes fitted)" if instead.get("fitted") else ""
        return f"explained{fitted}", _join(by_rule, because, instead.get("because", ""))
    if because := by_other_digits(figure, value, printed):
        return "explained", _join(by_rule, because, row.note)
    if contradiction:
        return "not reproducible", _join(by_rule, contradiction, row.note)
    by_rules = {rule: evaluate(row, replace(figure, rule=rule), cases) for rule in figure.tried}
    if prints := [rule for rule, one in by_rules.items() if figure.prints(one, printed)]:
        shown = " and ".join(f"{rule} gives {figure.format(by_rules[rule], printed)}" for rule in prints)
        return "explained", _join(by_rule, shown, row.note)
    tried = ", ".join(f"{rule} {figure.format(one, printed)}" for rule, one in by_rules.items())
    return "no rule found", _join(by_rule, f"no rule tried prints it: {tried}" if tried else "", row.note)


def cut_off(cells: Sequence[tuple[Figure, Interval, str]]) -> set[str]:
    """Return the names of the columns of a table that are cut off throughout: some of their cells are printed by
    cutting digits off alone, none by rounding alone. One cell decides nothing, unless the rest of the table is cut too.
    """
    cut, only_cut, only_rounded = Counter[str](), Counter[str](), Counter[str]()
    for figure, value, text in cells:
        cuts, rounds = (replace(figure, truncated=truncated).prints(value, text) for truncated in (True, False))
        cut[figure.name] += cuts
        only_cut[figure.name] += cuts and not rounds
        only_rounded[figure.name] += rounds and not cuts
    whole = cut.total() > 1 and not only_rounded.total()
    return {name for name in cut if only_cut[name] and not only_rounded[name] and (cut[name] > 1 or whole)}


def by_other_digits(figure: Figure, value: Interval, printed: str) -> str:
    """Return that a cell is printed with its digits cut off, or rounded where the figure cuts them; empty if not."""
    other = figure.other_digits
    return f"{figure.format(value, printed)} prints {printed} {other.digits}" if other.prints(value, printed) else ""


def _adjusted(row: Row, figure: Figure, printed: str, value: Interval, cases: Cases) -> str:
    """Return the sum of the value and of entries that prints a cell; empty if it does not."""
    # if the cell was rounded twice, the sum must print the first rounding
    total, once = value.low, row.explain[figure.name].get("rounded_from", printed)
    terms = adjustments(row, figure, cases(row.preset, row.set))
    adjusted = total + sum(amount for _, amount in terms)
    if figure.text(adjusted, once) != once or figure.text(number(once), printed) != printed:
        return ""
    steps = "".join(f" {'+' if amount >= 0 else '-'} {abs(amount):,} ({term})" for term, amount in terms)
    again = f", which rounded again prints {printed}" if once != printed else ""
    return f"{_shown(total)}{steps} = {int(adjusted):,} prints {once}{again}"


def _changed(row: Row, figure: Figure, printed: str, value: Interval, cases: Cases) -> str:
    """Return what a cell is at other sizes, by another expression or with other digits; empty if that does not print
    it."""
    instead = row.explain[figure.name]
    other = replace(figure, **{name: instead[name] for name in ("value", "truncated") if name in instead})
    changed = evaluate(row, other, cases, instead.get("set"), instead.get("given"))
    if not other.prints(changed, printed):
        return ""
    sizes = {**instead.get("set", {}), **instead.get("given", {})}
    at = ", ".join(f"{name} {size}" for name, size in sizes.items())
    how = _join(at, str(instead.get("value", "")))
    cut = f" prints {printed} {other.digits}" if "truncated" in instead else ""
    return f"{how}: {figure.format(changed, printed)}{cut}" if how else f"{figure.format(changed, printed)}{cut}"


def _shown(total: Fraction) -> str:
    return f"{int(total):,}" if total.denominator == 1 else fixed(total, 2)


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def solutions(table: PublishedTable, fit: Fit, cases: Cases) -> int:
    """Return how many of the sizes that ``fit`` tries print every cell of its rows."""
    cells = [
        (row, figure, row.printed[figure.name])
        for row in table.rows
        if row.name in fit.models
        for figure in table.columns
        if figure.name in fit.figures and figure.name in row.printed
    ]

    def prints(sizes: Mapping[str, Any]) -> bool:
        # fields of the preset, or letters of a row without one
        return all(
            figure.prints(evaluate(row, figure, cases, *((sizes, {}) if row.preset else ({}, sizes))), text)
            for row, figure, text in cells
        )

    return sum(prints(dict(zip(fit.sizes, sizes, strict=True))) for sizes in product(*fit.sizes.values()))


def implied_vocabulary(printed: str, figure: Figure, ledger: Ledger) -> Interval:
    """Return the least and the largest vocabulary V at which the model's parameters print as ``printed``.

    Parameters are linear in V: no weight has V twice. The interval may be empty.
    """
    holding = ledger.select(lambda entry: "V" in entry.weight)
    per_word = Ledger(tuple(replace(entry, weight={**entry.weight, "V": 1}) for entry in holding)).params
    fixed, fits = ledger.params - holding.params, figure.interval(printed)
    low, high = -((fixed - ceil(fits.low)) // per_word), (ceil(fits.high) - 1 - fixed) // per_word
    return Interval(max(low, 1), high)


def common_vocabulary(ranges: Sequence[Interval]) -> Interval:
    """Return the intersection of ``ranges``; empty if ``high`` < ``low``."""
    return Interval(max(one.low for one in ranges), min(one.high for one in ranges))
