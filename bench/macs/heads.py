"""Columns of tables that print activated heads: parameters with and without frozen ones, heads, three MAC counts."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from headcount.bench.measure import Measurement
from headcount.bench.table import Column
from headcount.formulas import moh
from headcount.formulas.ledger import Ledger
from headcount.formulas.mha import causal_half
from headcount.formulas.published.tables import Row

ABOUT = (
    "Activated: by number of heads, and each head weighing as many MACs as it takes. MACs of one forward pass, causal "
    "scores as executed, the whole square: of the dense baseline, with the same vocabulary; as released, every head "
    "computed and then gated, which the counters read; ideal, nothing computed of a head for a token that does not use "
    "it, but for its keys and values. Counters: raw readings, with what they add."
)


def columns(width: int) -> list[Column]:
    """Activated heads and the three MAC counts, these ``width`` characters wide."""
    return [
        Column("activated_printed", "activated\nprinted", align="right"),
        Column("activated", "activated\nby number", unit="%", kind="fixed", digits=2),
        Column("activated_work", "activated\nby work", unit="%", kind="fixed", digits=2),
        Column("baseline_macs", "MACs dense\nbaseline", kind="int", width=width),
        Column("released_macs", "MACs MoH\nas released", kind="int", width=width),
        Column("ideal_macs", "MACs MoH\nideal", kind="int", width=width),
        Column("to_baseline", "ideal /\nbaseline", kind="fixed", digits=4),
    ]


def params_columns(counters: Sequence[str]) -> list[Column]:
    """Parameters that training changes, and all of them."""
    how = "counted" if counters else "exact"
    return [
        Column("trainable_params", f"params\n{how}\ntrainable", kind="int", width=13),
        Column("params", f"params\n{how}\nwith frozen", kind="int", width=13),
    ]


def values(row: Row, measured: Measurement, ideal: Ledger | None, baseline: Ledger | None) -> dict[str, Any]:
    """What these columns print of one row; a dense model is its own baseline and has no ideal form."""
    exact = measured.ledger
    params = exact.params if measured.counted_params is None else measured.counted_params
    dense = baseline or exact
    return {
        "trainable_params": params - exact.frozen_params,
        "activated_printed": row.activated,
        "activated": moh.activated_percent(exact, ideal or exact),
        "activated_work": moh.activated_work_percent(exact, ideal or exact),
        "baseline_macs": dense.macs,
        "released_macs": exact.macs if ideal else None,
        "ideal_macs": ideal and ideal.macs,
        "to_baseline": Fraction(ideal.macs, dense.macs) if ideal else None,
        "baseline_causal_half_macs": causal_half(dense).macs,
        "ideal_causal_half_macs": ideal and causal_half(ideal).macs,
        "ideal_active_params": ideal and ideal.active_params,
    }


def facts(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The same for JSON: integers, and exact fractions as text."""
    return {key: str(value) if isinstance(value, Fraction) else value for key, value in extra.items()}
