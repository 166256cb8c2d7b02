"""The exact costs of formulas/claims.py, counted by PyTorch's own counter on built layers."""

from collections.abc import Callable, Mapping
from typing import Any

from reports import results


def costs() -> dict[str, Callable[..., int]]:
    """The named costs that are a built layer's, each a function of all letters."""
    return {
        "moa_macs": lambda **letters: _moa(letters)["macs"],
        "mha_macs": lambda **letters: _mha(letters)["macs"],
        "moa_params": lambda **letters: _params(_moa(letters)),
        "mha_params": lambda **letters: _params(_mha(letters)),
        "moa_router_macs": lambda **letters: _moa(letters)["macs"] - _multi_query(letters)["macs"],
        "moa_projection_macs": _multi_query_projections,
        "moh_macs": lambda **letters: _moh(letters)["macs"],
        "moh_ideal_macs": lambda **letters: _moh(letters, "sparse")["macs"],
        "moh_params": lambda **letters: _params(_moh(letters)),
    }


def _moa(letters: Mapping[str, int]) -> dict[str, Any]:
    return results.counted_layer({letter: letters[letter] for letter in ("d_m", "T", "K", "E", "D")})


def _moh(letters: Mapping[str, int], implementation: str = "dense") -> dict[str, Any]:
    point = {letter: letters[letter] for letter in ("h", "s", "r", "d_h", "g", "d_m", "T")}
    return results.counted_layer(point, implementation)


def _mha(letters: Mapping[str, int]) -> dict[str, Any]:
    return results.counted_layer({"d_m": letters["d_m"], "T": letters["T"], "h": 1})


def _multi_query(letters: Mapping[str, int]) -> dict[str, Any]:
    # a MoA layer without its router: K query heads, one key/value head
    point = {"d_m": letters["d_m"], "T": letters["T"], "h": letters["K"], "d_h": letters["D"], "g": 1}
    return results.counted_layer(point)


def _multi_query_projections(**letters: int) -> int:
    # a T + b T^2 are counted at T and at 2 T, and the projections are a T
    once, twice = (_multi_query({**letters, "T": T})["macs"] for T in (letters["T"], 2 * letters["T"]))
    return (4 * once - twice) // 2


def _params(found: Mapping[str, Any]) -> int:
    # the papers count layers without biases
    biases = sum(entry["params"] for entry in found["ledger"] if entry["kind"] in ("bias", "expert_bias"))
    return found["counted_params"] - biases
