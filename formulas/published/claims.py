"""The papers' sentences about cost, as relations between costs: data, typed in claims.toml.

A relation is a text such as ``moa_macs() < mha_macs()`` over letters and named costs; a cost may be taken at
other letters, ``moa_macs(E=E + 1)`` (see :mod:`headcount.formulas.published.expressions`).
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.resources import files

from headcount.formulas import conventions, mha, moa, moh, moh_ideal
from headcount.formulas.ledger import Size
from headcount.formulas.published.expressions import Expression, Relation, expression, relation
from headcount.formulas.published.rounding import UNITS
from headcount.formulas.published.tables import PublishedTable


@dataclass(frozen=True)
class Paper:
    """Where sentences come from, what their two costs are called, and what they mean where that needs saying."""

    name: str
    source: str
    printed: str
    executed: str
    about: str = ""


@dataclass(frozen=True)
class Threshold:
    """The value of ``letter`` at which both sides of an equality are the same is asked for."""

    letter: str
    relation: Relation


@dataclass(frozen=True)
class Claim:
    """A sentence with its place, its premise, and its relation under the printed and under the exact costs.

    ``premise``: letters by others, in order. ``assume``: lower bounds of letters, ``K > 1`` or ``E >= K``.
    ``cases``: conditions on one letter, ``s == 1`` or ``s > 1``, that cover all its values and have formulas of
    their own. ``shown``: letters by others, put into a formula where it is shown.
    """

    name: str
    paper: str
    place: str
    sentence: str
    letters: tuple[str, ...]
    premise: Mapping[str, Expression]
    assume: tuple[Relation, ...]
    as_printed: Relation
    as_executed: Relation
    because: str
    cases: tuple[Relation, ...] = ()
    shown: Mapping[str, Expression] = field(default_factory=dict)
    threshold: Threshold | None = None

    def complete(self, letters: Mapping[str, Size]) -> dict[str, Size]:
        """``letters`` with those that the premise gives."""
        found = dict(letters)
        for letter, given in self.premise.items():
            found[letter] = given.value(found, costs())
        return found


@dataclass(frozen=True)
class Ratio:
    """A sentence that one printed row costs at most a part of another."""

    name: str
    paper: str
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
    """The typed claims. ValueError for a text that is no relation or no expression."""
    data = tomllib.loads(files("headcount.formulas.published").joinpath("claims.toml").read_bytes().decode())
    return Claims(
        {name: Paper(**paper) for name, paper in data["paper"].items()},
        tuple(_claim(**claim) for claim in data["claim"]),
        tuple(Ratio(**ratio) for ratio in data["ratio"]),
        tuple(NamedModel(**model) for model in data["named_model"]),
    )


def _claim(
    *, letters, premise, assume, as_printed, as_executed, cases=(), shown=None, threshold=None, **texts
) -> Claim:
    return Claim(
        letters=tuple(letters),
        premise={letter: expression(text) for letter, text in premise.items()},
        assume=tuple(bound(text) for text in assume),
        as_printed=statement(as_printed),
        as_executed=statement(as_executed),
        cases=tuple(relation(text) for text in cases),
        shown={letter: expression(text) for letter, text in (shown or {}).items()},
        threshold=threshold and Threshold(threshold["letter"], relation(threshold["relation"])),
        **texts,
    )


def statement(text: str) -> Relation:
    """What a sentence says, ``<``, ``<=`` or ``==``. ValueError for any other text."""
    found = relation(text)
    if found.operator not in ("<", "<=", "=="):
        raise ValueError(f"{text!r} is no relation <, <= or == between two sides")
    return found


def bound(text: str) -> Relation:
    """A lower bound of a letter, ``K > 1`` or ``E >= K``. ValueError for any other text."""
    found = relation(text)
    if found.operator not in (">", ">=") or {found.left.text} != found.left.letters:
        raise ValueError(f"{text!r} is no lower bound of a letter")
    return found


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


def printed_ratio(ratio: Ratio, table: PublishedTable) -> Fraction:
    """The ratio of the two printed MAC cells."""
    printed = {row.name: row.cells.get("macs") for row in table.rows}
    units = {name: Fraction(text[:-1]) * UNITS[text[-1]] for name, text in printed.items() if text}
    return units[ratio.row] / units[ratio.against]
