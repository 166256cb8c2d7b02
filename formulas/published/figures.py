"""Printed cells: the expression that gives a column's values, the digits that it prints, and the models of its rows.

The ``value`` of a figure is an expression of LETTERS, which are those of a row's model, and of letters ``given`` in
the row. ``value`` may be an expression for each ``kind`` of row; a row with a ``part`` has the letters of that part of
its model. A given text is a rounded number and stands for its interval, an integer or a quotient "3/4" is exact.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

from headcount.formulas import conventions
from headcount.formulas.conventions import CONVENTIONS, Rule
from headcount.formulas.ledger import Ledger, flops
from headcount.formulas.moh import activated_percent, shared_percent
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.rounding import LARGEST, MOST_DIGITS, Interval, decimals, ends, fixed, read

Case = Any
"""``ledger``, the exact ledger of a model, ``ideal_ledger``, that of its ideal form, None if it has none, and
``lengths``."""
Cases = Callable[[str, Mapping[str, Any]], Case]
"""Returns the case of a preset with fields replaced."""
MOST_ROUNDED = 12
"""The most rounded numbers in an expression, which is evaluated at all their ends."""
EMPTY = ("", "-", "–", "—")
"""Cells without a printed value."""

LETTERS: dict[str, Callable[[Ledger, Case, Rule], Any]] = {
    "T": lambda form, case, rule: case.lengths["seq_len"],
    "samples": lambda form, case, rule: case.lengths["batch_size"],
    "N": lambda form, case, rule: form.params,
    "macs": lambda form, case, rule: form.total_under(rule),
    "N_active": lambda form, case, rule: form.active_params,
    "N_norms": lambda form, case, rule: sum(entry.params for entry in form if entry.kind in ("norm", "rms_norm")),
    "N_embedding": lambda form, case, rule: sum(entry.params for entry in form if entry.kind == "embedding"),
    "N_router": lambda form, case, rule: form.select(conventions.router).params,
    "N_kv": lambda form, case, rule: form.select(lambda entry: re.search(r"\.[kv]_proj$", entry.path)).params,
    "looked_up": lambda form, case, rule: Fraction(
        sum(entry.size for entry in form if entry.kind == "embedding"), case.lengths["seq_len"]
    ),
    "attention": lambda form, case, rule: (
        flops(sum(entry.macs for entry in form if entry.kind in ("scores", "values"))) // case.lengths["seq_len"]
    ),
    "work": lambda form, case, rule: Fraction(rule.flops(form, case.lengths["seq_len"]), case.lengths["seq_len"]),
    "activated": lambda form, case, rule: activated_percent(form, case.ideal_ledger or form),
    "shared": lambda form, case, rule: shared_percent(case.ideal_ledger or form),
}
"""The letters of a model: T; ``samples`` of its input; parameters N, N_router of its routers, N_kv of its key and value
projections; ``macs`` of a forward pass under the rule; ``looked_up``, the elements of embeddings that a token looks up;
``attention``, the FLOPs per token of both T x T products in a forward pass; ``work``, the FLOPs per token of a training
step under the rule; percentages of heads of MoH."""
QUANTITIES = {
    "macs": ("MACs", "macs"),
    "params": ("All parameters, frozen ones included", "N"),
    "active": ("Parameters that a token uses, without the embedding", "N_active - N_embedding"),
    "activated": ("Heads that a token uses, of all heads of all layers", "activated"),
    "shared": ("Shared heads, of the heads that a token uses in all layers", "shared"),
}
"""Head and value of the columns of tables of MACs and parameters; bench/macs/published.py prints a new one."""


class UnknownCostError(ValueError):
    """A cost of a model is not known: the active parameters of one that selects them in a way that is not followed."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A printed column, rounded half up or ``truncated`` to the digits of each cell.

    ``scale``: what a printed number is multiplied by; ``tried``: rules tried where none fits; ``quantity``: one of
    QUANTITIES; ``judged``: whether it decides the verdicts of rows. ``formula``: its cells are expressions of the
    letters given in their rows, compared as integers. ``significant``: digits of an integer beyond which it has zeros;
    ``multiple``: a printed number is a multiple of so many last digits; ``trailing_zeros``: zeros at the end of an
    integer are no digits.
    """

    name: str
    head: str
    value: str | Mapping[str, str]
    rule: str = ""
    tried: Sequence[str] = ()
    quantity: str = ""
    judged: bool = True
    formula: bool = False
    scale: int = 1
    truncated: bool = False
    significant: int = 0
    multiple: int = 1
    trailing_zeros: bool = False

    def _step(self, value: Fraction, digits: str) -> Fraction:
        """Return the last digit of a printed ``value`` as a number."""
        if self.significant:
            return Fraction(10 ** max(len(str(floor(value))) - self.significant, 0))
        zeros = len(digits) - len(digits.rstrip("0")) if self.trailing_zeros and "." not in digits else 0
        return Fraction(self.multiple * 10**zeros, 10 ** decimals(digits))

    def interval(self, text: str) -> Interval:
        """Return the numbers that print as ``text``; ``high`` is the first that does not."""
        digits, _, unit = read(text)
        step = self._step(Fraction(digits), digits)
        low = Fraction(digits) - (0 if self.truncated else step / 2)
        return Interval(low * unit * self.scale, (low + step) * unit * self.scale)

    @property
    def other_digits(self) -> "Figure":
        """The figure with its digits cut off where it rounds them, and rounded where it cuts them off."""
        return replace(self, truncated=not self.truncated)

    @property
    def digits(self) -> str:
        """What happens to the digits that are not printed, in words."""
        return "cut off" if self.truncated else "rounded half up"

    def prints(self, value: Interval, text: str) -> bool:
        """Return whether a number of ``value`` prints as ``text``; a tie rounds up."""
        cell = self.interval(text)
        return value.low < cell.high and value.high >= cell.low

    def text(self, value: int | Fraction, like: str) -> str:
        """Return ``value`` with the unit and the decimals of ``like``."""
        digits, suffix, unit = read(like)
        number = Fraction(value) / unit / self.scale
        step = self._step(number, digits)
        rounded = floor(number / step + (0 if self.truncated else Fraction(1, 2))) * step
        return fixed(rounded, decimals(digits)).replace(",", "") + suffix

    def format(self, value: Interval, like: str) -> str:
        """Return ``value`` as ``like`` is printed, with two digits more; both ends where they differ."""
        digits, suffix, unit = read(like)
        places = 0 if self.formula else decimals(digits) + 2
        ends = dict.fromkeys(fixed(end / unit / self.scale, places) for end in (value.low, value.high))
        return " to ".join(ends) + suffix

    @property
    def multiplicity(self) -> Rule:
        """How many times the rule counts each entry."""
        return CONVENTIONS[self.rule or "exact"]

    @property
    def expression(self) -> str:
        """The expression, or that of each kind of row."""
        return self.value if isinstance(self.value, str) else "; ".join(f"{k}: {v}" for k, v in self.value.items())

    @property
    def statement(self) -> str:
        """Describe the figure in words."""
        if not self.quantity:
            rule = f"; work by {self.rule}: {self.multiplicity.about}" if self.rule else "."
            return f"{self.head}: {self.expression}{rule}"
        digits = f"{self.significant} significant" if self.significant else "the printed"
        digits = f"multiples of {self.multiple}" if self.multiple > 1 else f"{digits} digits"
        what = self.multiplicity.about.rstrip(".") if self.rule else self.head
        return f"{what}, {'truncated' if self.truncated else 'rounded half up'} to {digits}."


@dataclass(frozen=True, kw_only=True)
class Row:
    """A printed row.

    ``set``: changed fields of ``preset``; ``printed``: cells by figure; ``verdicts``: those other than reproduced, as
    typed; ``part``: a regular expression of module paths. ``explain``: by figure, what prints it and why (``because``):
    a ``set`` and ``given``, or ``truncated`` digits, or entries to ``adjust``, each a number of ``times`` of those that
    a convention of formulas/conventions.py ``select``s, with some sizes ``dims`` replaced, and, where the cell was
    rounded again, the number that it was ``rounded_from``. ``baseline``: the dense model that a routed one is compared
    with, a ``preset`` and changed fields. ``quality``: other printed cells by column name. ``input``: the shapes
    of the inputs of a user module in the place of ``preset``.
    """

    name: str
    printed: Mapping[str, str] = field(default_factory=dict)
    preset: str = ""
    kind: str = ""
    part: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, int | str] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    explain: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    input: str = ""
    quality: Mapping[str, str] = field(default_factory=dict)

    def number(self, figure: Figure) -> str:
        """Return a printed number; of a formula, the integer that it denotes at the row's letters, and 1 of none."""
        text = self.printed[figure.name]
        if text in EMPTY:
            return "1"
        return str(expression(text).value(self.given)) if figure.formula else text


def evaluate(
    row: Row,
    figure: Figure,
    cases: Cases,
    changed: Mapping[str, Any] | None = None,
    given: Mapping[str, int | str] | None = None,
) -> Interval:
    """Return the values of a cell at the ends of its rounded inputs, with some fields or givens replaced."""
    formula = expression(figure.value if isinstance(figure.value, str) else figure.value[row.kind])
    inputs = {name: ends(value) for name, value in {**row.given, **(given or {})}.items()}
    letters: dict[str, Any] = {}
    if row.preset:
        case = cases(row.preset, {**row.set, **(changed or {})})
        form = case.ledger.select(lambda entry: re.search(row.part, entry.path)) if row.part else case.ledger
        needed = (formula.letters - inputs.keys()) & LETTERS.keys()
        # letters that the formula does not need are named where it needs others
        letters = dict.fromkeys(LETTERS) | {name: LETTERS[name](form, case, figure.multiplicity) for name in needed}
        if "N_active" in needed and letters["N_active"] is None:
            raise UnknownCostError(f"the active parameters of {row.preset} are not known")
    used = {name: both if name in formula.letters else both[:1] for name, both in inputs.items()}
    if sum(len(both) > 1 for both in used.values()) > MOST_ROUNDED:
        raise ValueError(f"{formula} has more than {MOST_ROUNDED} rounded numbers")
    values = [formula.value({**letters, **dict(zip(used, corner, strict=True))}) for corner in product(*used.values())]
    if max(map(abs, values)) > LARGEST:
        raise ValueError(f"{formula} is a number of more than {MOST_DIGITS} digits")
    return Interval(Fraction(min(values)), Fraction(max(values)))
