"""The exact costs of formulas/claims.py, counted by PyTorch's own counter on built layers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headcount.formulas.published.expressions import Relation
from headcount.reports import results

Layer = Callable[..., dict[str, Any]]
"""From a point of a grid, and MoH's form, to the record of the layer there."""


def costs(layer: Layer | None = None) -> dict[str, Callable[..., int]]:
    """The named costs that are a built layer's, each a function of all letters; ``layer`` counts one."""
    count = layer or results.counted_layer

    def of(letters: Mapping[str, int], names: str, **fixed: int) -> dict[str, int]:
        return {name: letters[name] for name in names.split()} | fixed

    def moa(letters) -> dict[str, Any]:
        return count(of(letters, "d_m T K E D"))

    def moh(letters, form: str = "released") -> dict[str, Any]:
        return count(of(letters, "h s r d_h g d_m T"), form)

    def mha(letters) -> dict[str, Any]:
        return count(of(letters, "d_m T", h=1))

    def multi_query(letters) -> int:
        # a MoA layer without its router: K query heads, one key/value head
        return count(of(letters, "d_m T", h=letters["K"], d_h=letters["D"], g=1))["macs"]

    def multi_query_projections(**letters: int) -> int:
        # a T + b T^2 are counted at T and at 2 T, and the projections are a T
        once, twice = (multi_query({**letters, "T": T}) for T in (letters["T"], 2 * letters["T"]))
        return (4 * once - twice) // 2

    return {
        "moa_macs": lambda **letters: moa(letters)["macs"],
        "mha_macs": lambda **letters: mha(letters)["macs"],
        "moa_params": lambda **letters: _params(moa(letters)),
        "mha_params": lambda **letters: _params(mha(letters)),
        "moa_router_macs": lambda **letters: moa(letters)["macs"] - multi_query(letters),
        "moa_projection_macs": multi_query_projections,
        "moh_macs": lambda **letters: moh(letters)["macs"],
        "moh_ideal_macs": lambda **letters: moh(letters, "ideal")["macs"],
        "moh_params": lambda **letters: _params(moh(letters)),
    }


def count_for(relations: Iterable[tuple[Relation, Mapping[str, int]]]) -> None:
    """Count in one process every layer that these relations need at their points."""
    points: list[dict[str, int]] = []

    def collect(point: dict[str, int], form: str = "released") -> dict[str, Any]:
        if point not in points:
            points.append(point)
        return {"macs": 0, "counted_params": 0, "ledger": []}

    for relation, letters in relations:
        if countable(relation):
            relation.holds(letters, costs(collect))
    results.count_layers(points)


def countable(relation: Relation) -> bool:
    """Whether every cost in a relation is a built layer's."""
    return relation.costs <= set(costs())


def _params(found: Mapping[str, Any]) -> int:
    # the papers count layers without biases
    biases = sum(entry["params"] for entry in found["ledger"] if entry["kind"] in ("bias", "expert_bias"))
    return found["counted_params"] - biases
