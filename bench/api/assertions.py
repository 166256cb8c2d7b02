"""``hc.assert_macs``: a count must be what an equation or a printed number says.

def test_my_attention_costs_what_the_paper_says():
    equation = "T*d*E + 2*K*T*d*D + 2*T*d*D + 2*K*T*T*D"
    hc.assert_macs(MyMoA(...), x, expected=equation, T=128, d=512, E=32, K=8, D=64)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from numbers import Integral
from typing import Any

from headcount.bench.api.count import NAMED, OPTIONS, count_macs
from headcount.bench.contractions.elementwise import CONTRACTION
from headcount.bench.contractions.module_tree import merged
from headcount.bench.counting.keywords import is_like_option, parameters_of
from headcount.bench.counting.result import Count
from headcount.formulas.published.expressions import evaluate
from headcount.formulas.published.figures import QUANTITIES, Figure
from headcount.formulas.published.rounding import Interval, measure
from headcount.formulas.published.rounding import read as read_number
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.targets import LENGTH_OF_LETTER, LENGTHS


def assert_macs(model: Any, *inputs: Any, expected: str | int | float, **keywords: Any) -> None:
    """Fail with an AssertionError that lists every product unless the model's MACs are ``expected``.

    ``inputs`` and keywords are count_macs'. An integer is exact, and so is an expression in the names of the other
    keywords that are integers: ``T=128``. A number with a unit, "1.8G" or "1.8 GMACs", holds at its digits: MACs that
    round to it; of "3.6 GFLOPs", the FLOPs. Of a name the keywords are its input lengths too. Raises ValueError for an
    expression that cannot be evaluated, TypeError for anything else, and what count_macs raises.
    """
    __tracebackhide__ = True
    words = re.findall(r"\w+", expected) if isinstance(expected, str) else []
    forward = getattr(model, "forward", None)
    named = parameters_of(forward) if callable(forward) else ()
    sizes = {
        name: value
        for name, value in keywords.items()
        if type(value) is int and (name in words or name not in named and not is_like_option(name, OPTIONS))
    }
    wanted = _read_expected(expected, sizes)
    if isinstance(model, NAMED):
        sizes = {name: size for name, size in sizes.items() if LENGTH_OF_LETTER.get(name, name) not in LENGTHS}
    counted = count_macs(model, *inputs, **{name: keywords[name] for name in keywords.keys() - sizes.keys()})
    if difference := wanted.difference(counted):
        which = f" ({counted.headline})" if counted.with_elementwise != counted.dispatched else ""
        lines = [f"{counted.macs:,} multiply-accumulates{which}, expected {difference}"]
        for entry in merged(counted.ledger):
            sizes_text = " ".join(f"{letter}={size}" for letter, size in entry.dims.items())
            lines.append(f"  {entry.size:>15,}  {entry.path or '(model)'}  {entry.kind}  {entry.times} x {sizes_text}")
        if not counted.included:
            products = counted.run.elementwise_products
            lines += [f"  not in it: {part.text()}" for part in products if part.kind == CONTRACTION]
        raise AssertionError("\n".join(lines))


@dataclass(frozen=True)
class ExactMacs:
    """MACs that a count must have, as they were ``written``."""

    macs: int
    written: Any

    def difference(self, counted: Count) -> str:
        """Return what was expected and by how much ``counted`` differs; empty where it does not."""
        less = counted.macs - self.macs
        return f"{self.macs:,} = {self.written} ({less:+,})" if less else ""


@dataclass(frozen=True)
class PrintedCost:
    """A rounded number of MACs or FLOPs, ``1.8G``, to which those of a count must round."""

    text: str
    figure: Figure

    def difference(self, counted: Count) -> str:
        """Return what was expected and how ``counted`` prints; empty where it prints so."""
        amount = counted.flops if self.figure.name == "flops" else counted.macs
        if self.figure.prints(Interval(Fraction(amount), Fraction(amount)), self.text):
            return ""
        printed = self.figure.interval(self.text)
        low, high = ceil(printed.low), ceil(printed.high) - 1
        unit = self.figure.head
        printed_as = self.figure.text(amount, self.text)
        return (
            f"{self.text}: {low:,} to {high:,} {unit}, which are {self.text} {self.figure.digits} to its digits; "
            f"{amount:,} {unit} are {printed_as}"
        )


def _read_expected(expected: Any, sizes: Mapping[str, int]) -> ExactMacs | PrintedCost:
    """Return the cost that is ``expected``, at the ``sizes`` of an expression.

    Raises ValueError for a text that is neither a number of MACs or FLOPs nor an expression, TypeError for others.
    """
    if isinstance(expected, str):
        if not is_printed(expected):
            expected = _in_usual_letters(expected)
        if is_printed(expected):
            kind = measure(expected)
            if kind not in ("", "MACs", "FLOPs"):
                raise ValueError(f"expected={expected!r} is of {kind}: give MACs, as 1.8G or 1.8 GMACs, or FLOPs")
            return PrintedCost(expected, QUANTITIES["flops" if kind == "FLOPs" else "macs"])
        try:
            macs = parse_int(expected.replace(",", ""))
        except ValueError:
            macs = evaluate(expected, sizes)
        return ExactMacs(macs, expected)
    if isinstance(expected, float) and expected.is_integer():
        return ExactMacs(int(expected), expected)
    if not isinstance(expected, Integral) or isinstance(expected, bool):
        raise TypeError(f"expected={expected!r}: give an integer or an expression")
    return ExactMacs(int(expected), expected)


UNIT = re.compile(r"([\d.,]+ ?)([kmgt])? ?(macs?|flops?|mult-?adds?|madds?)?", re.IGNORECASE)
"""A number, its unit and what it is of, in any letters and as other tools write them."""


def _in_usual_letters(text: str) -> str:
    """Return a number with a unit in the letters that are read here, ``1.8 GMACs``; another text as it is."""
    found = UNIT.fullmatch(text)
    if not found or not (found[2] or found[3]):
        return text
    unit, measured = (found[2] or "").upper(), found[3] or ""
    if measured.lower().startswith("m"):
        measured = "MACs"
    return f"{found[1]}{unit}{measured}"


def is_printed(text: str) -> bool:
    """Return whether a text is a number with an exponent, a unit, or what it is of, which holds at its digits."""
    try:
        return bool(read_number(text)[1] or measure(text))
    except ValueError:
        return False
