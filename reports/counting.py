"""What a report needs torch for: functions of names and numbers whose results are plain data, for a worker process.

Each raises Disagreement where a count is not what it must be: no document is written from it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from headcount.bench import taken
from headcount.bench.macs import cases, compare, grid, published
from headcount.bench.measure import parse_counters
from headcount.bench.table import Row, Section
from headcount.formulas.published import tables
from headcount.formulas.published.expressions import Relation, expression

Letters = tuple[tuple[str, int], ...]
"""Letters with their sizes, as a key."""


class Disagreement(Exception):
    """A count, a verdict or a closed form is not as stated; the message is the first line that says so."""

    exit_code = 1


def done(sections: Iterable[Section]) -> list[Section]:
    """The sections with all their rows made. Disagreement where one of these fails."""
    return [replace(section, rows=_agreeing(section.rows)) for section in sections]


def _agreeing(rows: Iterable[Row]) -> list[Row]:
    made = list(rows)
    for failure in (failure for row in made for failure in row.failures):
        raise Disagreement(failure)
    return made


def rows(places: tuple[tuple[str, str], ...], kept: str | None = None) -> tuple[list[Row], dict[str, Any]]:
    """Rows of published tables, each by its table's and its own name, that are all of one model: counted once.

    ``kept``: the JSON of what the counters read in an earlier run. Second comes what they read, to be kept.
    """
    name, row = places[0]
    measured = _regenerated(name).measured(row, parse_counters(None), None, json.loads(kept or "null"))
    return _agreeing(_regenerated(name).row(row, measured) for name, row in places), taken.to_keep(measured)


@cache
def _regenerated(name: str) -> published.Regenerated:
    return published.Regenerated(tables.load(name))


def grid_section(spec: str) -> Section:
    """A grid counted by every counter."""
    return done([grid.section(grid.parse(spec), parse_counters(None), None)])[0]


def audit() -> list[Section]:
    """Every spelling under every counter on cpu and meta, and the causes of each difference."""
    from headcount.bench.macs import audit as spellings

    return done(spellings.sections(parse_counters(None), None))


def comparison(a: str, b: str) -> list[Section]:
    """Two models side by side, their turning points counted by PyTorch's own counter."""
    return done(compare.sections(*(cases.parse(text, (), {}) for text in (a, b)), ["torch"], None))


def derivation(argv: str) -> Section:
    """The closed form that ``python -m bench.derive`` finds for these arguments."""
    from headcount.bench.derive import __main__ as derive

    return done(derive.plan(derive.parser().parse_args(argv.split())).sections)[0]


def cost(text: str, letters: Letters) -> int:
    """An expression over the costs of formulas/published/claims.py, counted on built layers."""
    return expression(text).value(dict(letters), COSTS)


def countable(relation: Relation) -> bool:
    """Whether every cost in a relation is a built layer's."""
    return relation.costs <= COSTS.keys()


@cache
def _layer(form: str, **sizes: int) -> Mapping[str, Any]:
    """The record of one layer under PyTorch's own counter."""
    spec = " ".join(f"{letter}={size}" for letter, size in sizes.items())
    (section,) = done([grid.section(grid.parse(spec), ["torch"], None)])
    found = [record for row in section.rows for record in row.records if record["counter"] == "torch"]
    return next(record for record in found if record.get("form", "released") == form)


def _of(names: str, **fixed: int) -> Callable[..., Mapping[str, Any]]:
    """From letters to the record of the layer whose sizes are those called ``names``."""

    def layer(form: str = "released", **letters: int) -> Mapping[str, Any]:
        return _layer(form, **{name: letters[name] for name in names.split()}, **fixed)

    return layer


_moa, _mha, _moh = _of("d_m T K E D"), _of("d_m T", h=1), _of("h s r d_h g d_m T")


def _multi_query(*, T: int, d_m: int, K: int, D: int, **_: int) -> int:
    # a MoA layer without its router: K query heads, one key/value head
    return _layer("released", d_m=d_m, T=T, h=K, d_h=D, g=1)["macs"]


def _multi_query_projections(**letters: int) -> int:
    # a T + b T^2 are counted at T and at 2 T, and the projections are a T
    once, twice = (_multi_query(**{**letters, "T": T}) for T in (letters["T"], 2 * letters["T"]))
    return (4 * once - twice) // 2


def _params(record: Mapping[str, Any]) -> int:
    # the papers count layers without biases
    biases = sum(entry["params"] for entry in record["ledger"] if entry["kind"] in ("bias", "expert_bias"))
    return record["counted_params"] - biases


COSTS: dict[str, Callable[..., int]] = {
    "moa_macs": lambda **letters: _moa(**letters)["macs"],
    "mha_macs": lambda **letters: _mha(**letters)["macs"],
    "moa_params": lambda **letters: _params(_moa(**letters)),
    "mha_params": lambda **letters: _params(_mha(**letters)),
    "moa_router_macs": lambda **letters: _moa(**letters)["macs"] - _multi_query(**letters),
    "moa_projection_macs": _multi_query_projections,
    "moh_macs": lambda **letters: _moh(**letters)["macs"],
    "moh_ideal_macs": lambda **letters: _moh("ideal", **letters)["macs"],
    "moh_params": lambda **letters: _params(_moh(**letters)),
}
"""The costs of formulas/published/claims.py that are a built layer's, counted."""
