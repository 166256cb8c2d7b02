"""Verdicts on printed cells: whether the expression of a column gives the printed number, and the arithmetic."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import Ledger
from headcount.formulas.published.figures import (
    EMPTY,
    MIN_WHOLE,
    Case,
    Cases,
    Figure,
    Row,
    cut_off,
    evaluate,
    rounded_up,
)
from headcount.formulas.published.impossible import PrintedRow, no_common_rule
from headcount.formulas.published.rounding import LARGEST, Interval, fixed, number, read
from headcount.formulas.published.rules import (
    Applies,
    Attempt,
    find_held,
    in_words,
    is_other_cost,
    prints_anyhow,
    try_rules,
)
from headcount.formulas.published.tables import Fit, PublishedTable

VERDICTS = (
    "reproduced", "explained", "explained (sizes fitted)", "not reproducible", "no rule found", "no printed value",
)  # fmt: skip
"""Verdicts on printed numbers, from the best on; ``not reproducible`` is proved, ``no rule found`` is not."""

ANOTHER_UNIT = "another unit"
"""In which a number is that its rule gives with another prefix."""


@dataclass(frozen=True)
class Judged:
    """A cell with its verdict.

    Attributes:
        row, figure: its row and its column.
        printed: as printed.
        value: what the rule gives.
        verdict: one of VERDICTS.
        because: the arithmetic, where it needs any.
        holds: the cost that its column holds in place of its own, with which it is compared, in words, or its own cost
            where it prints that one beside others; empty where another rule or length prints it.
        digits: how it is printed where its digits are others than those of the column, in words.
        instead: the number that should be printed where no rule prints this one, or it is of another cost than others.
        by: what it counts by another rule or length, in words, or ANOTHER_UNIT.
    """

    row: Row
    figure: Figure
    printed: str
    value: Interval
    verdict: str = ""
    because: str = ""
    holds: str = ""
    digits: str = ""
    instead: str = ""
    by: str = ""

    @property
    def expected(self) -> str:
        """The verdict as typed; the one found where the table has none."""
        return self.verdict if self.row.verdicts is None else self.row.verdicts.get(self.figure.name, "reproduced")

    @property
    def shown(self) -> str:
        """The value, written as the cell is printed."""
        return self.figure.format(self.value, self.row.number(self.figure))

    @property
    def difference(self) -> str:
        """What the value prints in place of the printed number; empty where it prints that."""
        if self.verdict in ("reproduced", "no printed value"):
            return ""
        printed = self.row.number(self.figure)
        return f"{_shown(self.value.low)} prints {self.figure.text(self.value.low, printed)}, not {printed}"

    @property
    def last_digits(self) -> Fraction:
        """The value, of an interval its nearest end, minus the printed number in units of the last printed digit.

        The figure is printed from -1/2 on, and below 1/2.
        """
        cell = self.figure.interval(self.row.number(self.figure))
        nearest = max(self.value.low, min(self.value.high, cell.middle))
        return (nearest - cell.middle) / (cell.high - cell.low)


def judge(table: PublishedTable, cases: Cases, why_not: Applies = lambda row, rule: "") -> list[Judged]:
    """Return every printed cell of the judged columns of ``table`` with its verdict; typed verdicts are not used.

    A column whose digits are cut off throughout is judged so. Raises ValueError for a value that cannot be computed.
    """
    figures = {figure.name: replace(figure, rule=table.rule_of(figure)) for figure in table.judged}
    by_rule = [
        Judged(row, figures[name], text, _by_rule(row, figures[name], cases))
        for row in table.rows
        for name, text in row.printed.items()
        if name in figures
    ]
    numbers = [cell for cell in by_rule if cell.printed not in EMPTY and not cell.figure.formula]
    held = {
        name: find_held(figure, [(cell.row, cell.value) for cell in numbers if cell.figure.name == name], cases)
        for name, figure in figures.items()
    }
    texts = []
    for cell in numbers:
        one = held[cell.figure.name]
        value = evaluate(cell.row, one.figure, cases) if one else cell.value
        texts.append((one.figure if one else cell.figure, value, cell.row.number(cell.figure)))
    cut, up = cut_off(texts), rounded_up(texts)
    fitted, contradictions = _fitted(table, cases), _contradictions(table, cases)
    found = []
    for cell in by_rule:
        figure = replace(cell.figure, truncated=cell.figure.truncated or cell.figure.name in cut)
        cell = replace(cell, figure=figure)
        contradiction = contradictions.get(cell.row.name, "") if figure.quantity == "macs" else ""
        if fit := fitted.get((cell.row.name, figure.name)):
            found.append(replace(cell, verdict=fit[0], because=fit[1]))
        else:
            found.append(_with_verdict(cell, held[figure.name], contradiction, figure.name in up, cases, why_not))
    return found


def _by_rule(row: Row, figure: Figure, cases: Cases) -> Interval:
    try:
        return evaluate(row, figure, cases)
    except ValueError as error:
        raise ValueError(f"line {row.line}: {error}") from None


def with_digits(table: PublishedTable, cells: Sequence[Judged]) -> PublishedTable:
    """Return a table whose judged columns have the digits of their ``cells``."""
    figures = {cell.figure.name: cell.figure for cell in cells}
    return replace(table, columns=tuple(figures.get(column.name, column) for column in table.columns))


def of_row(cells: Sequence[Judged]) -> tuple[str, str, str]:
    """Return the worst verdict on the cells of a row, the worst as typed, and the arithmetic of all."""
    worst, typed = (
        max(found, key=VERDICTS.index, default="no printed value")
        for found in ([cell.verdict for cell in cells], [cell.expected for cell in cells])
    )
    return worst, typed, _join(*(text for cell in cells for text in (cell.difference, cell.because)))


def _contradictions(table: PublishedTable, cases: Cases) -> dict[str, str]:
    """Return, by row name, arguments that no rule prints the MACs of these rows, of a column that states its rule."""
    macs, rows = table.column("macs"), []
    for row in table.rows if macs in table.judged and macs.rule else ():
        if row.printed.get(macs.name, "") not in EMPTY:
            text = row.number(macs)
            cell, ledger = macs.interval(text), cases(row, {}).ledger
            rows.append(PrintedRow(row.name, int(number(text)), int(cell.high - cell.low), ledger))
    return no_common_rule(rows)


def _fitted(table: PublishedTable, cases: Cases) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the verdict on each cell of a fit, and how many sizes print it, by row and figure."""
    verdicts: dict[tuple[str, str], tuple[str, str]] = {}
    for fit in table.fits:
        found = solutions(table, fit, cases)
        tried = ", ".join(f"{name} {min(sizes)} to {max(sizes)}" for name, sizes in fit.tried.items())
        because = _join(f"{found:,} of the sizes tried ({tried}) print every row", fit.note)
        verdict = "explained (sizes fitted)" if found == fit.solutions and found else "no rule found"
        verdicts |= dict.fromkeys(product(fit.models, fit.figures), (verdict, because))
    return verdicts


def _with_verdict(
    cell: Judged, held: Attempt | None, contradiction: str, is_up: bool, cases: Cases, why_not: Applies
) -> Judged:
    """Return a cell that no fit explains with its verdict, and the arithmetic with the row's note.

    ``held``: the cost that its column holds in place of its own; ``is_up``: the column is rounded up throughout.
    """
    row, figure, value = cell.row, cell.figure, cell.value

    def found(verdict: str, *because: str, **more: Any) -> Judged:
        return replace(cell, verdict=verdict, because=_join(*because, row.note), **more)

    if cell.printed in EMPTY:
        return found("no printed value")
    printed = row.number(figure)
    if figure.prints(value, printed) and not held:
        return found("reproduced")
    typed = row.explain.get(figure.name, {})
    explain = _adjusted if "adjust" in typed else _changed
    if typed and (because := explain(row, figure, printed, value, cases)):
        fitted = " (sizes fitted)" if typed.get("fitted") else ""
        # the reason of the cell stands in place of the note of the row
        return replace(cell, verdict=f"explained{fitted}", because=_join(because, typed.get("because", "")))
    words = before = ""
    if held:
        words = (
            f"the column headed {figure.head} holds{held.change},"
            if is_other_cost(held, figure)
            else f"{held.name} gives"
        )
        before = f"by the rule {figure.format(value, printed)}; {words} "
        figure = replace(held.figure, truncated=figure.truncated)
        value = evaluate(row, figure, cases)
    is_plain = figure.prints(value, printed)
    digits = "" if is_plain else figure.other_digits(value, printed, is_up)
    if digits or is_plain:
        whole = ", as each number of the column" if digits == "rounded up" else ""
        because = f"{before}{in_words(figure, value, printed, digits)}{whole}"
        return found("explained", because, digits=digits, holds=held.change.strip() if held else "")
    texts = {end: figure.text(end, printed) for end in (value.low, value.high)}
    # a value far below the last printed digit would be 0
    both = (text if re.search("[1-9]", text) else _shown(end / figure.scale) for end, text in texts.items())
    instead = "" if figure.formula else " to ".join(dict.fromkeys(both))
    if held and prints_anyhow(cell.figure, cell.value, printed):
        because = f"{cell.figure.head}, as headed; {words} {figure.format(value, printed)} in this row"
        return found("explained", because, holds=cell.figure.head, instead=instead)
    other, cut = figure.in_other_unit(value, printed)
    if other:
        right = figure.text(value.middle, other)
        how = f" {cut}" if cut else ""
        return found("explained", f"{before}{other}{how} with another unit", instead=right, by=ANOTHER_UNIT)
    # a wrong number that is nearer to the own cost of its column may hold either
    is_nearer = held and _times(value, printed, figure) < _times(cell.value, printed, figure)
    more = {"instead": instead, "holds": held.change.strip() if held and is_nearer else ""}
    if contradiction:
        return found("not reproducible", contradiction, **more)
    changes, because = try_rules(row, figure, value, cases, why_not, words)
    if changes:
        first = changes[0]
        # a number that a length prints too is not of another cost
        if all(is_other_cost(one, figure) for one in changes):
            return found("explained", because, holds=first.change.strip(), instead=instead)
        return found("explained", because, by=" or ".join(one.name for one in changes))
    up = figure.other_digits(value, printed, is_up=True)
    whole = f"a column counts as rounded up only where all its numbers are, {MIN_WHOLE} or more"
    shown = f"{in_words(figure, value, printed, up)}, but {whole}"
    return found("no rule found", because, shown if up else "", **more)


def _times(value: Interval, printed: str, figure: Figure) -> Fraction:
    """Return how many times the larger of a value and a printed number is the smaller; LARGEST for no value."""
    one, other = value.middle, number(printed) * figure.scale
    return max(one / other, other / one) if one > 0 else Fraction(LARGEST)


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


def _adjusted(row: Row, figure: Figure, printed: str, value: Interval, cases: Cases) -> str:
    """Return the sum of the value and of entries that prints a cell; empty if it does not."""
    # if the cell was rounded twice, the sum must print the first rounding
    total, once = value.low, row.explain[figure.name].get("rounded_from", printed)
    terms = adjustments(row, figure, cases(row, {}))
    adjusted = total + sum(amount for _, amount in terms)
    if read(figure.text(adjusted, once)) != read(once) or read(figure.text(number(once), printed)) != read(printed):
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
        (row, figure, row.number(figure))
        for row in table.rows
        if row.name in fit.models
        for figure in table.columns
        if figure.name in fit.figures and figure.name in row.printed
    ]

    def prints(sizes: Mapping[str, Any]) -> bool:
        # fields of the preset, or letters of a row without one
        return all(
            figure.prints(evaluate(row, figure, cases, *((sizes, {}) if row.target else ({}, sizes))), text)
            for row, figure, text in cells
        )

    return sum(prints(dict(zip(fit.sizes, sizes, strict=True))) for sizes in product(*fit.tried.values()))


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
