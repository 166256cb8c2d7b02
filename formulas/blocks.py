"""Building blocks that every form shares: a linear layer, a norm, an activation."""

from collections.abc import Mapping

from headcount.formulas.ledger import Entry, Ledger, Size, ledger


def linear(
    path: str, rows: Mapping[str, Size], fan_in: Mapping[str, Size], fan_out: Mapping[str, Size], bias: bool = False
) -> Ledger:
    """y = x W + b on ``rows`` rows: rows * fan_in * fan_out MACs, and an addition per output with ``bias``."""
    out = ledger(Entry(path, "linear", {**rows, **fan_in, **fan_out}, weight={**fan_in, **fan_out}))
    if bias:
        out += ledger(Entry(path, "bias", {**rows, **fan_out}, weight=dict(fan_out)))
    return out


def layer_norm(path: str, *, B: Size, T: Size, d_m: Size) -> Entry:
    """LayerNorm over d_m with scale and shift."""
    return Entry(path, "norm", {"B": B, "T": T, "d_m": d_m}, weight={"2": 2, "d_m": d_m})


def residual(path: str, *, B: Size, T: Size, d_m: Size) -> Entry:
    """The addition of a block's input to its output."""
    return Entry(path, "elementwise", {"B": B, "T": T, "d_m": d_m})
