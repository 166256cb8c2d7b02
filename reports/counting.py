"""What takes a report long: functions of names and numbers whose results are plain data, for a worker process.

Each raises Disagreement where a count is not what it must be: no document is written from it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from headcount.bench import result_cache
from headcount.bench.macs import cases, compare, grid, published
from headcount.bench.measure import parse_counters
from headcount.bench.table import Row, Section
from headcount.formulas.published import claims, proofs, tables
from headcount.formulas.published.expressions import Relation, expression
from headcount.reports.heat_map import Cell, cells

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


def rows(places: tuple[tuple[str, str], ...], kept: Mapping | None = None) -> tuple[list[Row], dict[str, Any]]:
    """Rows of published tables, each by its table's and its own name, that are all of one model: counted once.

    ``kept``: what the counters read in an earlier run. Second comes what they read, to be kept. Rows come without
    their records, which hold whole ledgers.
    """
    name, row = places[0]
    measured = _regenerated(name).measured(row, parse_counters(None), kept)
    made = _agreeing(_regenerated(name).row(row, measured) for name, row in places)
    return [replace(one, records=()) for one in made], result_cache.to_cache(measured)


@cache
def _regenerated(name: str) -> published.Regenerated:
    return published.Regenerated(tables.load(name))


def grid_agreement(spec: str) -> dict[str, int]:
    """What of a grid counted by every counter comes out: ``points`` and the ``readings`` of them; readings that are
    ``as_predicted``; points with a ``printed`` equation, and those where it and what it leaves out ``add_up``."""
    (section,) = done([grid.section(grid.parse(spec), parse_counters(None), None)])
    records = [record for row in section.rows for record in row.records]
    counted = [record for record in records if record["counter"] != "closed-form"]
    points = [record for record in records if record["counter"] == "closed-form"]
    printed = [record for record in points if record["printed_equation_macs"] is not None]
    return {
        "points": len(points),
        "readings": len(counted),
        "as_predicted": sum(record["macs"] == record["predicted_macs"] for record in counted),
        "printed": len(printed),
        "add_up": sum(r["printed_equation_macs"] + sum(r["omitted_macs"].values()) == r["macs"] for r in printed),
    }


def audit() -> list[Cell]:
    """Every spelling under every counter on cpu and meta, and the causes of each difference."""
    from headcount.bench.macs import audit as spellings

    readings, _ = done(spellings.sections(parse_counters(None), None))
    return cells(readings.rows)


def comparison(a: str, b: str) -> list[Section]:
    """Two models side by side, their turning points counted by PyTorch's own counter."""
    return done(compare.sections(*(cases.parse(text, (), {}) for text in (a, b)), ["torch"], None))


def searches(name: str, largest_sum: int) -> list[proofs.Search]:
    """The searches of a claim's relation as printed and as executed, up to a sum of all letters."""
    (claim,) = (one for one in claims.load().claims if one.name == name)
    return [proofs.search(claim, relation, largest_sum) for relation in (claim.as_printed, claim.as_executed)]


def terms() -> dict[str, Any]:
    """The closed forms of the layers that the explorer shows, term by term."""
    from headcount.reports.explorer.forms import forms
    from headcount.reports.explorer.terms import as_data

    return as_data(forms())


def derivation(argv: str) -> Section:
    """The closed form that ``python -m bench.derive`` finds for these arguments."""
    from headcount.bench.derive import __main__ as derive

    return done(derive.plan(derive.parser().parse_args(argv.split())).sections)[0]


def example(title: str) -> list[list[str]]:
    """What the commands of an example print, line by line."""
    from headcount.reports.examples import EVERY

    return EVERY[title].outputs()


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
"""The costs of formulas/published/costs.py that are a built layer's, counted."""
