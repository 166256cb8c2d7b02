"""Published tables of training FLOPs, utilisation and parameters: one printed cell is a figure with a verdict.

A TOML file with ``[[figure]]`` is such a table. A figure is a column: its ``value`` is an expression of the letters of
a row, ``given`` there, and of its model: N parameters, N_active, N_norms, T, ``attention``, the FLOPs per token of both
T x T products in a forward pass, and ``work``, the FLOPs per token of a training step under ``rule``. ``value`` may be
an expression for each ``kind`` of row; a row with a ``part`` has these letters for that part of its model. A given text
is a rounded number and stands for its interval, an integer or a quotient "3/4" is exact. ``explain`` replaces sizes or
givens of one row, ``fit`` counts the sizes that print its rows.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.resources.abc import Traversable
from itertools import product
from typing import Any

from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import flops
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.tables import FOLDER, Printed, find, read_toml

READ = ("pdf", "transcription", "repository file", "web page")
"""Kinds of sources from which tables were typed."""
Cases = Callable[[str, Mapping[str, Any]], Any]
"""Returns the case of a preset with fields replaced: ``ledger``, its exact ledger, and ``lengths``."""


@dataclass(frozen=True)
class Interval:
    """The numbers from ``low`` to ``high``; equal where a number is exact."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, text: str, trailing_zeros: bool = False) -> "Interval":
        """Return the numbers that print as ``text``: half a last digit to both sides.

        ``trailing_zeros``: the last digit of an integer is its last that is not 0. Raises ValueError for no number.
        """
        mantissa, _, exponent = text.replace(",", "").upper().partition("E")
        step = Fraction(1, 10 ** len(mantissa.partition(".")[2]))
        if trailing_zeros and "." not in mantissa:
            step *= 10 ** (len(mantissa) - len(mantissa.rstrip("0")))
        power = Fraction(10) ** int(exponent or 0)
        return cls((Fraction(mantissa) - step / 2) * power, (Fraction(mantissa) + step / 2) * power)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A printed column. ``scale``: what a printed number is multiplied by; ``tried``: rules tried where none fits.

    ``formula``: its cells are expressions of the letters given in their rows, compared as integers.
    """

    name: str
    head: str
    value: str | Mapping[str, str]
    rule: str = ""
    scale: int = 1
    trailing_zeros: bool = False
    truncated: bool = False
    tried: tuple[str, ...] = ()
    formula: bool = False

    def prints(self, value: Interval, text: str) -> bool:
        """Return whether a number of ``value`` prints as ``text``; a tie rounds up."""
        cell = Interval.of(text, self.trailing_zeros)
        shift = (cell.high - cell.low) / 2 if self.truncated else 0
        return value.low / self.scale < cell.high + shift and value.high / self.scale >= cell.low + shift

    def format(self, value: Interval, text: str) -> str:
        """Return ``value`` as ``text`` is printed, with two digits more; both ends where they differ."""
        mantissa, _, exponent = text.upper().partition("E")
        digits = 0 if self.formula else len(mantissa.partition(".")[2]) + 2
        scale = self.scale * 10 ** int(exponent or 0)
        ends = dict.fromkeys(_decimal(end / scale, digits) for end in (value.low, value.high))
        return " to ".join(ends) + (f"E{exponent}" if exponent else "")

    @property
    def text(self) -> str:
        """The expression, or that of each kind of row."""
        return self.value if isinstance(self.value, str) else "; ".join(f"{k}: {v}" for k, v in self.value.items())

    @property
    def statement(self) -> str:
        """Describe the figure in words."""
        rule = f"; work by {self.rule}: {CONVENTIONS[self.rule].about}" if self.rule else "."
        return f"{self.head}: {self.text}{rule}"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A printed row. ``set``: changed fields of ``preset``; ``printed``: cells by figure; ``verdicts``: those other
    than reproduced, as typed; ``explain``: by figure, the ``set`` and ``given`` that print it, whether ``truncated``,
    and why; ``part``: a regular expression of module paths."""

    name: str
    printed: Mapping[str, str]
    preset: str = ""
    kind: str = ""
    part: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, int | str] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    explain: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Sizes found from printed figures: the ``sizes`` tried, the ``solutions`` that print every cell of ``models``."""

    models: tuple[str, ...]
    figures: tuple[str, ...]
    sizes: Mapping[str, tuple[int, ...]]
    solutions: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class FigureTable(Printed):
    """A printed table; ``read``: one of READ; ``address``: where it can be read; ``second``: the address of a second
    source, in which each printed figure was read again, digit by digit; ``also``: other sources, or those of a part of
    its figures or sizes; a table without both was read once; ``about``: a remark."""

    read: str
    address: str
    figures: tuple[Figure, ...]
    models: tuple[Model, ...]
    fits: tuple[Fit, ...] = ()
    about: str = ""
    second: str = ""
    also: str = ""

    @property
    def reading(self) -> str:
        """Describe the source of the table in words."""
        again = [f"each figure again in {self.second}"] * bool(self.second) + [f"also {self.also}"] * bool(self.also)
        return f"Read: {self.read}, {self.address}; {'; '.join(again) or 'read once'}."


@dataclass(frozen=True)
class Judged:
    """A cell with its verdict; ``value``: what the rule gives, None without one; ``because``: the arithmetic."""

    model: Model
    figure: Figure
    printed: str
    value: Interval | None
    verdict: str
    because: str = ""

    @property
    def expected(self) -> str:
        """The verdict as typed."""
        return self.model.verdicts.get(self.figure.name, "reproduced")

    @property
    def shown(self) -> str:
        """The value, written as the cell is printed."""
        return self.figure.format(self.value, _number(self.model, self.figure, self.printed))

    @property
    def last_digits(self) -> Fraction:
        """The value, of an interval its nearest end, minus the printed number in units of the last printed digit.

        The figure is printed from -1/2 on, and below 1/2.
        """
        cell = Interval.of(_number(self.model, self.figure, self.printed), self.figure.trailing_zeros)
        unit = cell.high - cell.low
        printed = (cell.low + cell.high + self.figure.truncated * unit) / 2
        nearest = max(self.value.low, min(self.value.high, printed * self.figure.scale)) / self.figure.scale
        return (nearest - printed) / unit


def names(folder: Traversable = FOLDER) -> tuple[str, ...]:
    """Return the names of all tables of figures, in order."""
    return tuple(data["name"] for data in read_toml("figure", folder))


def load(name: str, folder: Traversable = FOLDER) -> FigureTable:
    """Return the table called ``name``. Raises ValueError for an unknown name, rule or way of reading."""
    data = dict(find(name, "figure", folder))
    figures = tuple(Figure(**{**one, "tried": tuple(one.get("tried", ()))}) for one in data.pop("figure"))
    for rule in (rule for figure in figures for rule in (figure.rule, *figure.tried)):
        if rule and rule not in CONVENTIONS:
            raise ValueError(f"unknown rule {rule!r} of {name}; choose from {', '.join(CONVENTIONS)}")
    if data["read"] not in READ:
        raise ValueError(f"read of {name} must be one of {', '.join(READ)}, not {data['read']!r}")
    models = tuple(Model(**one) for one in data.pop("model"))
    return FigureTable(
        **{**data, "fits": tuple(_fit(**one) for one in data.pop("fits", ()))}, figures=figures, models=models
    )


def _fit(*, models, figures, sizes, **others) -> Fit:
    """Return a fit; sizes are listed, or given as ``{ from, to, step }``."""
    tried = {
        letter: tuple(range(one["from"], one["to"] + 1, one.get("step", 1))) if isinstance(one, dict) else tuple(one)
        for letter, one in sizes.items()
    }
    return Fit(models=tuple(models), figures=tuple(figures), sizes=tried, **others)


def judge(table: FigureTable, cases: Cases) -> Iterator[Judged]:
    """Yield every printed cell of ``table`` with its verdict; typed verdicts are not used."""
    fitted = {(model, figure): fit for fit in table.fits for model in fit.models for figure in fit.figures}
    found = {id(fit): solutions(table, fit, cases) for fit in table.fits}
    for model, figure in product(table.models, table.figures):
        if (text := model.printed.get(figure.name)) is None:
            continue
        number, value = _number(model, figure, text), evaluate(model, figure, cases)
        fit = fitted.get((model.name, figure.name))
        if fit:
            yield Judged(model, figure, text, value, *_fitted(fit, found[id(fit)]))
        elif figure.prints(value, number):
            yield Judged(model, figure, text, value, "reproduced", model.note)
        else:
            yield Judged(model, figure, text, value, *_explained(model, figure, number, cases))


def _number(model: Model, figure: Figure, text: str) -> str:
    """Return a printed number; of a formula, the integer that it denotes at the row's letters."""
    return str(expression(text).value(model.given)) if figure.formula else text


def _fitted(fit: Fit, found: int) -> tuple[str, str]:
    tried = ", ".join(f"{name} {min(sizes)} to {max(sizes)}" for name, sizes in fit.sizes.items())
    because = f"{found:,} of the sizes tried ({tried}) print every row" + (f"; {fit.note}" if fit.note else "")
    return ("explained (sizes fitted)" if found == fit.solutions and found else "unexplained"), because


def _explained(model: Model, figure: Figure, text: str, cases: Cases) -> tuple[str, str]:
    if instead := model.explain.get(figure.name):
        changed = evaluate(model, figure, cases, instead.get("set"), instead.get("given"))
        if replace(figure, truncated=instead.get("truncated", figure.truncated)).prints(changed, text):
            instead_of = {**instead.get("set", {}), **instead.get("given", {})}
            sizes = ", ".join(f"{name} {value}" for name, value in instead_of.items())
            shown = f"{sizes}: {figure.format(changed, text)}; " * bool(sizes)
            return "explained", f"{shown}{instead['because']}"
    if figure.tried:
        by_rule = {rule: evaluate(model, figure, cases, rule=rule) for rule in figure.tried}
        if not any(figure.prints(value, text) for value in by_rule.values()):
            shown = ", ".join(f"{rule} {figure.format(value, text)}" for rule, value in by_rule.items())
            return "not reproducible", "; ".join(filter(None, (f"no rule tried prints it: {shown}", model.note)))
    return "unexplained", model.note


def solutions(table: FigureTable, fit: Fit, cases: Cases) -> int:
    """Return how many of the sizes that ``fit`` tries print every cell of its rows."""
    models = [model for model in table.models if model.name in fit.models]
    figures = [figure for figure in table.figures if figure.name in fit.figures]

    def prints(sizes: Mapping[str, int]) -> bool:
        cells = ((model, figure) for model in models for figure in figures if figure.name in model.printed)
        # fields of the preset, or letters of a row without one
        return all(
            f.prints(evaluate(m, f, cases, sizes if m.preset else {}, {} if m.preset else sizes), m.printed[f.name])
            for m, f in cells
        )

    return sum(prints(dict(zip(fit.sizes, sizes, strict=True))) for sizes in product(*fit.sizes.values()))


def evaluate(
    model: Model,
    figure: Figure,
    cases: Cases,
    changed: Mapping[str, Any] | None = None,
    given: Mapping[str, int | str] | None = None,
    rule: str | None = None,
) -> Interval:
    """Return the values of a cell at the ends of its rounded inputs, with some fields, givens or the rule replaced."""
    letters = _letters(model, rule or figure.rule, cases, changed or {}) if model.preset else {}
    inputs = {name: _ends(value) for name, value in {**model.given, **(given or {})}.items()}
    formula = expression(figure.value if isinstance(figure.value, str) else figure.value[model.kind])
    ends = [
        formula.value({**letters, **dict(zip(inputs, corner, strict=True))})
        for corner in product(*(inputs[name] if name in formula.letters else inputs[name][:1] for name in inputs))
    ]
    return Interval(Fraction(min(ends)), Fraction(max(ends)))


def _letters(model: Model, rule: str, cases: Cases, changed: Mapping[str, Any]) -> dict[str, Any]:
    case = cases(model.preset, {**model.set, **changed})
    tokens, form = case.lengths["seq_len"], case.ledger
    if model.part:
        form = form.select(lambda entry: re.search(model.part, entry.path))
    out = {
        "T": tokens,
        "N": form.params,
        "macs": form.total_under(CONVENTIONS[rule]) if rule else form.macs,
        "N_active": form.active_params,
        "N_norms": sum(entry.params for entry in form if entry.kind in ("norm", "rms_norm")),
        "N_embedding": sum(entry.params for entry in form if entry.kind == "embedding"),
        "attention": flops(sum(entry.macs for entry in form if entry.kind in ("scores", "values"))) // tokens,
    }
    if rule:
        out["work"] = Fraction(CONVENTIONS[rule].flops(form, tokens), tokens)
    return out


def _ends(value: int | str) -> tuple[int | Fraction, ...]:
    """Return an exact number, or both ends of a rounded one."""
    if isinstance(value, int):
        return (value,)
    if "/" in value:
        return (Fraction(value),)
    rounded = Interval.of(value)
    return rounded.low, rounded.high


def _decimal(value: Fraction, digits: int) -> str:
    """Return ``value`` rounded half up to ``digits`` decimals."""
    scaled = (2 * value * 10**digits + 1) // 2
    whole, rest = divmod(abs(int(scaled)), 10**digits)
    return f"{'-' if scaled < 0 else ''}{whole:,}" + (f".{rest:0{digits}}" if digits else "")
