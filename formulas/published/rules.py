"""Rules tried on a printed cell that its own rule does not print, or on a whole column whose rule is sought."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log10
from typing import Any

from headcount.formulas.conventions import TRAINING
from headcount.formulas.published.figures import (
    CACHES,
    COSTS,
    EMPTY,
    FORWARD_COSTS,
    OF_TRAINING,
    OTHER_MACS,
    SHARES,
    Cases,
    Figure,
    Row,
    cut_off,
    evaluate,
    rounded_up,
)
from headcount.formulas.published.rounding import Interval, number, read, significant

FORWARD = ("exact", "exact_and_norms", "projections", "projections_and_ffn_biases", "equations_18_19")
"""Rules of a forward pass."""
PARAMETERS = {
    "all": "N",
    "active": "N_active",
    "all without embeddings": "N - N_embedding",
    "active without embeddings": "N_active - N_embedding",
}
LENGTHS = tuple(2**power for power in range(7, 18))
"""Sequence lengths tried where a rule does not print a cost."""
Applies = Callable[[Row, str], str]
"""Returns why a rule does not apply to the target of a row; empty where it does, as no rule does."""


@dataclass(frozen=True)
class Attempt:
    """A column under another rule, in another unit or at another length; ``change`` is what the latter are called."""

    figure: Figure
    rule: str
    change: str = ""

    @property
    def name(self) -> str:
        """The rule and the change, in words."""
        return (self.rule + self.change).strip()


@dataclass(frozen=True)
class Tried:
    """A rule tried on a column: the number of cells that it prints, its largest deviation in percent, and the cells
    that it does not print, with what it gives. ``digits``: what happens to digits in place of rounding, in words."""

    rule: str
    prints: int
    deviation: Fraction
    missed: Sequence[str] = ()
    digits: str = ""


def _units(figure: Figure) -> dict[str, Figure]:
    """Return a column of a cost in each unit by the words that name it, its own first."""
    value: Any = figure.value
    quantity = figure.quantity
    if quantity in FORWARD_COSTS:
        # a column of FLOPs may hold MACs, and the other way round, or be of a token or a sample
        unit, share = quantity.split("_", 1) if "_" in quantity else (quantity, "")
        share = share and f"_{share}"
        tried = [quantity, *(other + share for other in COSTS), *(unit + other for other in SHARES)]
        costs = {name: FORWARD_COSTS[name] for name in tried}
        return {f" {head}": replace(figure, quantity=name, value=text) for name, (head, text) in costs.items()}
    if quantity in ("training_flops", "training_flops_per_token"):
        values = {"": value, " MACs for FLOPs": f"{value} / 2"}
        if quantity == "training_flops_per_token":
            values[" per sample"] = f"{value} * T / samples"
        return {words: replace(figure, value=text) for words, text in values.items()}
    if quantity == "mfu":
        return {"": figure, " with recomputation": replace(figure, value=str(value).replace("model_work", "work"))}
    if quantity in CACHES:
        sizes = [CACHES[quantity], *(one for name, one in CACHES.items() if name != quantity)]
        return {f" {head}": one for size in sizes for head, one in _sizes(figure, size).items()}
    return {"": figure}


def _sizes(figure: Figure, size: Figure) -> dict[str, Figure]:
    """Return a column of KV caches as another ``size`` of them, of bytes also in units of 1,024, and of float32."""
    plain = replace(figure, quantity=size.name, value=size.value, binary=False)
    if "bytes" not in size.head:
        return {size.head: plain}
    double = replace(plain, value=f"2 * {size.value}")
    return {
        size.head: plain,
        f"{size.head} in KiB, MiB or GiB": replace(plain, binary=True),
        f"{size.head} of float32": double,
        f"{size.head} of float32 in KiB, MiB or GiB": replace(double, binary=True),
    }


def attempts(figure: Figure, every: bool = False) -> list[Attempt]:
    """Return a column under each change to try: another rule, or another unit.

    ``every``: each rule in each unit, and rules of training too for a cost of a forward pass.
    """
    if figure.quantity in CACHES:
        return [Attempt(column, figure.rule, size) for size, column in _units(figure).items()]
    if not (figure.is_of_training or "macs" in figure.letters):
        values = PARAMETERS if figure.value in PARAMETERS.values() else {figure.expression: figure.value}
        own_first = sorted(values.items(), key=lambda item: item[1] != figure.value)
        return [Attempt(replace(figure, value=value), name) for name, value in own_first]
    units = _units(figure)
    own = next(iter(units))
    tried = [
        Attempt(replace(column, rule=rule), rule, unit)
        for rule in (TRAINING if figure.is_of_training else FORWARD)
        for unit, column in units.items()
        if every or unit == own or rule == figure.rule
    ]
    for name, letter in OTHER_MACS.items() if "macs" in figure.letters else ():
        for unit, column in units.items():
            if every or unit == own:
                value = re.sub(r"\bmacs\b", letter, str(column.value))
                tried.append(Attempt(replace(column, value=value), "", f"{unit} of {name}"))
    if every and "macs" in figure.letters:
        costs = {" per token": "work", " per token, forward": "work / 3", " per batch": "work * T"}
        costs[" per token, MACs for FLOPs"] = "work / 2"
        for change, value in costs.items():
            tried += [Attempt(replace(figure, value=value, rule=rule), rule, change) for rule in TRAINING]
    return tried


def _distinct(tried: Iterable[tuple[Attempt, Any]]) -> list[tuple[Attempt, Any]]:
    """Return attempts with their values, without those whose rule has the value already, as per token of one token, and
    without parameters that have it, as active ones of a model without experts."""
    kept: list[tuple[Attempt, Any]] = []
    for attempt, value in tried:
        rule, binary = attempt.figure.rule, attempt.figure.binary
        of_rule = [known for other, known in kept if (other.figure.rule, other.figure.binary) == (rule, binary)]
        if value not in of_rule:
            kept.append((attempt, value))
    return kept


def find_held(figure: Figure, cells: Sequence[tuple[Row, Interval]], cases: Cases) -> Attempt | None:
    """Return the cost that a column holds in place of its own, as MACs under FLOPs; None where it holds its own.

    It is one by the same rule that prints at least half of the numbers, rounded or cut off, and more than the own
    cost of the column. ``cells``: its rows with what its rule gives.
    """
    others = [one for one in attempts(figure) if one.rule == figure.rule and one.figure != figure]
    held, most = None, sum(prints_anyhow(figure, value, row.number(figure)) for row, value in cells)
    for one in others:
        prints = 0
        # a cost that is not known is not held
        with suppress(ValueError):
            prints = sum(
                prints_anyhow(one.figure, evaluate(row, one.figure, cases), row.number(figure)) for row, _ in cells
            )
        if prints > most and 2 * prints >= len(cells):
            held, most = one, prints
    return held


def prints_anyhow(figure: Figure, value: Interval, text: str) -> bool:
    """Return whether a cell is printed, rounded or cut off."""
    return figure.prints(value, text) or bool(figure.other_digits(value, text))


def try_rules(
    row: Row, figure: Figure, value: Interval, cases: Cases, why_not: Applies, held: str = ""
) -> tuple[list[Attempt], str]:
    """Return the single changes that print a cell of which its rule gives ``value``, and in words what was tried.

    A cost by the same rule in another unit may also be printed with other digits than those of the column. ``held``
    are the words for what the column holds, which ``figure`` then is, in place of its own cost.
    """
    printed = row.number(figure)
    changed = _distinct(_at_other_rules(row, figure, cases, why_not))
    longer = list(_at_lengths(row, figure, cases))
    prints = [(one, found, "") for one, found in changed + longer if one.figure.prints(found, printed)]
    of_rule = [(one, found) for one, found in changed if one.rule == figure.rule]
    others = [(one, found, one.figure.other_digits(found, printed)) for one, found in of_rule]
    # the column's own rule, in another unit or at another length, comes before other rules
    prints = (
        [attempt for attempt in prints if attempt[0].rule == figure.rule]
        or [attempt for attempt in others if attempt[-1]]
        or prints
    )
    by_rule = f"{held} {figure.format(value, printed)}" if held else f"by the rule {figure.format(value, printed)}"
    if prints:
        shown = " and ".join(
            f"{_words_of(one, figure)} {in_words(one.figure, found, printed, digits)}" for one, found, digits in prints
        )
        return [one for one, _, _ in prints], f"{by_rule}; {shown}"
    shown = ", ".join(f"{one.name} {one.figure.format(found, printed)}" for one, found in changed)
    lengths = f", nor is it printed at T = {LENGTHS[0]}, {LENGTHS[1]}, … up to {LENGTHS[-1]:,}" if longer else ""
    ratio = significant(value.low / figure.scale / number(printed))
    off = f"{by_rule}, {ratio} times" if held else f"the rule gives {ratio} times"
    return [], f"{off} the printed number; no rule tried prints it: {shown}{lengths}"


def in_words(figure: Figure, value: Interval, printed: str, digits: str) -> str:
    """Return a value, and with which ``digits`` a cell is printed where these are others than those of the column."""
    return f"{figure.format(value, printed)} prints {printed} {digits}" if digits else figure.format(value, printed)


def is_other_cost(one: Attempt, figure: Figure) -> bool:
    """Return whether an attempt is the own rule of ``figure`` for another cost than the one of its head."""
    has_head = one.figure.quantity in {*FORWARD_COSTS, *CACHES} and one.change in _units(figure)
    return has_head and one.rule == figure.rule


def _words_of(one: Attempt, figure: Figure) -> str:
    """Return the words before the number of an attempt that prints a cell."""
    return f"this number holds{one.change}," if is_other_cost(one, figure) else f"{one.name} gives"


def _at_other_rules(row: Row, figure: Figure, cases: Cases, why_not: Applies) -> Iterator[tuple[Attempt, Interval]]:
    """Yield each attempt that applies to a model whose costs it needs are known, with the cell by it."""
    for one in attempts(figure):
        if not why_not(row, one.figure.rule) and _has_other_units(one.figure, [row.number(figure)]):
            with suppress(ValueError):
                yield one, evaluate(row, one.figure, cases)


def _has_other_units(figure: Figure, texts: Iterable[str]) -> bool:
    """Return whether a column in units of 1,024 has other numbers than without them; any other column is one."""
    decimal = replace(figure, binary=False)
    return not figure.binary or any(figure.interval(text) != decimal.interval(text) for text in texts)


def _at_lengths(row: Row, figure: Figure, cases: Cases) -> Iterator[tuple[Attempt, Interval]]:
    """Yield a cost by its rule at each of LENGTHS for which the model has positions; none where it has no length."""
    if not figure.letters & {*OF_TRAINING, "macs", "cache"} or cases(row, {}).length is None:
        return
    for size in LENGTHS:
        with suppress(ValueError):
            yield Attempt(figure, figure.rule, f" at T = {size:,}"), evaluate(row, figure, cases, {"seq_len": size})


def find_rule(figure: Figure, rows: Sequence[Row], cases: Cases, why_not: Applies) -> list[Tried]:
    """Return the rules tried on a column of ``rows``, best first: most cells printed, then least deviation."""
    cells = [(row, row.number(figure)) for row in rows if row.printed.get(figure.name, "") not in EMPTY]
    tried = []
    for one in attempts(figure, every=True):
        # a rule that does not apply to a row is no rule of the column
        applies = not any(why_not(row, one.figure.rule) for row, _ in cells)
        if applies and _has_other_units(one.figure, [text for _, text in cells]):
            with suppress(ValueError):
                tried.append((one, [evaluate(row, one.figure, cases) for row, _ in cells]))
    fits = []
    for one, values in _distinct(tried):
        judged = [(one.figure, value, text) for value, (_, text) in zip(values, cells, strict=True)]
        cut, up = bool(cut_off(judged)), bool(rounded_up(judged))
        under = replace(one.figure, truncated=cut, upward=up)
        missed = [
            f"{row.name}: {row.printed[figure.name]} printed, {under.format(value, text)} by the rule"
            for value, (row, text) in zip(values, cells, strict=True)
            if not under.prints(value, text)
        ]
        far = max(abs(value.low / figure.scale / number(text) - 1) for _, value, text in judged)
        digits = under.digits if cut or up else ""
        name = f"{one.name}, digits {digits}" if digits else one.name
        fits.append(Tried(name, len(cells) - len(missed), 100 * far, missed, digits))
    return sorted(fits, key=lambda fit: (-fit.prints, fit.deviation))


LARGEST_IN_UNITS = 10**6
"""A printed number without a unit from here on is one of ones."""


def column_units(figures: Iterable[Figure], rows: Sequence[Row], cases: Cases) -> dict[str, str]:
    """Return the unit, K to P, of each column whose printed numbers name none and are so many times too small.

    It is the unit of most numbers of the column: a number that is another power of 1,000 off is wrong.
    """
    units = {}
    for figure in figures:
        powers = Counter[int]()
        for row in rows:
            if has_no_unit(row, figure):
                with suppress(ValueError):
                    ratio = evaluate(row, figure, cases).middle / figure.scale / number(row.printed[figure.name])
                    powers[round(log10(ratio) / 3) if ratio > 0 else 0] += 1
        (power, _), *_ = powers.most_common(1) or [(0, 0)]
        if 1 <= power <= 5:
            units[figure.name] = ("KMBTP" if "parameters" in figure.head else "KMGTP")[power - 1]
    return units


def has_no_unit(row: Row, figure: Figure) -> bool:
    """Return whether a row prints a short number without a unit of a column."""
    text = row.printed.get(figure.name, "")
    return text not in EMPTY and not figure.formula and not read(text)[1] and number(text) < LARGEST_IN_UNITS
