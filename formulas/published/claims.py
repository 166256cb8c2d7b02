"""The papers' sentences about cost, as relations between costs, and the search for where they fail.

A relation is a text such as ``moa_macs() < mha_macs()`` over letters and named costs; a cost may be taken at
other letters, ``moa_macs(E=E + 1)``. Letters are integers, which give truth, or sympy symbols, which give the
difference of both sides as a formula.
"""

import ast
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import combinations, pairwise
from typing import Any

from headcount.formulas import conventions, mha, moa, moh, moh_ideal
from headcount.formulas.ledger import Size
from headcount.formulas.published.rounding import UNITS
from headcount.formulas.published.tables import PublishedTable

VERDICTS = ("holds", "holds only as printed", "fails")
LARGEST_SUM = 20
"""The search tries every point whose letters add up to at most this."""


@dataclass(frozen=True)
class Paper:
    """Where sentences come from, what their two costs are called, and what they mean where that needs saying."""

    source: str
    printed: str
    executed: str
    about: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence with its place, its premise, and its relation under the printed and under the exact costs.

    ``cases``: conditions on one letter, ``s == 1`` or ``s > 1``, that cover all its values and have formulas of
    their own. ``shown``: letters by others, put into a formula where it is shown. ``threshold``: a ``letter`` and
    a relation ``left == right``, for the value of the letter at which it holds.
    """

    name: str
    paper: str
    place: str
    sentence: str
    letters: Sequence[str]
    premise: Mapping[str, str]
    assume: Sequence[str]
    as_printed: str
    as_executed: str
    because: str
    cases: Sequence[str] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    threshold: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ratio:
    """A sentence that one printed row costs at most a part of another."""

    name: str
    place: str
    sentence: str
    table: str
    row: str
    against: str
    at_most: str


@dataclass(frozen=True)
class NamedModel:
    """A model that the paper names outside its tables; ``nearest`` is the preset of a table that is closest."""

    name: str
    place: str
    preset: str
    nearest: str


@dataclass(frozen=True)
class Claims:
    """Everything of formulas/published/claims.toml."""

    papers: Mapping[str, Paper]
    claims: tuple[Claim, ...]
    ratios: tuple[Ratio, ...]
    named_models: tuple[NamedModel, ...]


def load() -> Claims:
    """The typed claims."""
    data = tomllib.loads(files("headcount.formulas.published").joinpath("claims.toml").read_bytes().decode())
    return Claims(
        {name: Paper(**paper) for name, paper in data["paper"].items()},
        tuple(Claim(**claim) for claim in data["claim"]),
        tuple(Ratio(**ratio) for ratio in data["ratio"]),
        tuple(NamedModel(**model) for model in data["named_model"]),
    )


def costs() -> dict[str, Callable[..., Size]]:
    """The costs that a relation may name, each a function of all letters."""
    return {
        "moa_macs_eq18": lambda *, T, K, D, d_m, **_: moa.macs_eq18(T=T, K=K, D=D, d_m=d_m),
        "mha_macs_eq19": lambda *, T, d_m, **_: mha.macs_eq19(T=T, d_m=d_m),
        "moa_params_eq20": lambda *, E, D, d_m, **_: moa.params_eq20(E=E, D=D, d_m=d_m),
        "mha_params_eq20": lambda *, d_m, **_: mha.params_eq20(d_m=d_m),
        "moa_macs": lambda **letters: _moa(**letters).macs,
        "mha_macs": lambda **letters: _mha(**letters).macs,
        "moa_params": lambda **letters: _moa(**letters).params,
        "mha_params": lambda **letters: _mha(**letters).params,
        "moa_router_macs": lambda **letters: _moa(**letters).billed(conventions.router),
        "moa_projection_macs": lambda **letters: _moa(**letters).billed(_projections),
        "moh_macs": lambda **letters: _moh(moh, **letters).macs,
        "moh_ideal_macs": lambda **letters: _moh(moh_ideal, **letters).macs,
        "moh_params": lambda **letters: _moh(moh, **letters).params,
    }


def _projections(entry) -> int:
    """The linear layers but for the router."""
    return conventions.projections(entry) - conventions.router(entry)


def _moa(*, T, K, E, D, d_m):
    return moa.layer("", B=1, T=T, S=T, d_m=d_m, E=E, K=K, D=D)


def _mha(*, T, d_m, **_):
    # heads of any width with h d_h = d_m cost the same
    return mha.layer("", B=1, T=T, S=T, d_m=d_m, h=1, d_h=d_m, g=1, bias=False)


def _moh(form, *, T, h, s, r, d_h, g, d_m):
    return form.layer("", B=1, T=T, S=T, d_m=d_m, h=h, s=s, r=r, d_h=d_h, g=g)


def value(text: str, letters: Mapping[str, Size], named: Mapping[str, Callable[..., Size]] | None = None) -> Any:
    """What an expression or a relation gives at ``letters``; ``named`` replaces :func:`costs`."""
    functions = costs() if named is None else named
    scope = {name: _at_letters(function, letters) for name, function in functions.items()}
    return eval(_code(text), {"__builtins__": {}}, {**scope, **letters})


@cache
def _code(text):
    return compile(text, text, "eval")


def _at_letters(function, letters):
    return lambda **other: function(**{**letters, **other})


def complete(claim: Claim, letters: Mapping[str, Size]) -> dict[str, Size]:
    """``letters`` with those that the claim's premise gives."""
    found = dict(letters)
    for letter, text in claim.premise.items():
        found[letter] = value(text, found)
    return found


def parts(relation: str) -> tuple[str, str, str]:
    """A relation's left side, operator and right side. Raises ValueError for a text that is not one."""
    operators = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "=="}
    tree = ast.parse(relation, mode="eval").body
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in operators:
        raise ValueError(f"{relation!r} is no relation <, <= or == between two sides")
    return ast.unparse(tree.left), operators[type(tree.ops[0])], ast.unparse(tree.comparators[0])


@dataclass(frozen=True)
class Search:
    """``counterexample``: the smallest point, by sum and then by order, at which a relation fails, None where
    none of the ``tried`` points is one."""

    counterexample: dict[str, int] | None
    tried: int


def search(claim: Claim, relation: str, largest_sum: int = LARGEST_SUM) -> Search:
    """Try ``relation`` at every point of positive integers that add up to at most ``largest_sum``."""
    tried = 0
    for letters in _admitted(claim, largest_sum):
        tried += 1
        if not value(relation, letters):
            return Search(letters, tried)
    return Search(None, tried)


def first_point(claim: Claim) -> dict[str, int]:
    """The point that a search tries first. Raises StopIteration where ``assume`` admits none."""
    return next(_admitted(claim, LARGEST_SUM))


def _admitted(claim: Claim, largest_sum: int) -> Iterator[dict[str, int]]:
    for point in _points(claim.letters, largest_sum):
        letters = complete(claim, point)
        if all(value(text, letters) for text in claim.assume):
            yield letters


def _points(letters: Sequence[str], largest_sum: int) -> Iterator[dict[str, int]]:
    for total in range(1, largest_sum + 1):
        # cuts between 1..total: every way to write the sum in order
        for cuts in combinations(range(1, total), len(letters) - 1):
            sizes = (b - a for a, b in pairwise((0, *cuts, total)))
            yield dict(zip(letters, sizes, strict=True))


def verdict(printed: Search, executed: Search) -> str:
    """One of VERDICTS, from the searches of both relations of a claim."""
    if printed.counterexample is not None:
        return "fails"
    return "holds" if executed.counterexample is None else "holds only as printed"


def printed_ratio(ratio: Ratio, table: PublishedTable) -> Fraction:
    """The ratio of the two printed MAC cells."""
    printed = {row.name: row.macs for row in table.rows}
    units = {name: Fraction(text[:-1]) * UNITS[text[-1]] for name, text in printed.items() if text}
    return units[ratio.row] / units[ratio.against]
