"""Below which share of heads skipping them pays: MoH's packed form against every head computed, per length."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from headcount.bench.latency.implementations import skips
from headcount.bench.table import Column
from headcount.reports import latency, markdown
from headcount.reports.facts import Facts

ABOUT = (
    "Time of `ragged`, which packs the queries that selected a head, over the same MoH layer with every head computed "
    "by fused attention. Break-even: where the ratio crosses 1, linear between the two measured shares."
)


def tables(facts: Facts) -> str:
    """A table per device, and what is not measured."""
    parts = [ABOUT]
    for kind in ("cuda", "cpu"):
        found = {device: _rows(records) for device, records in latency.of_type(facts, kind).items()}
        if not any(found.values()):
            parts.append(f"**{kind.upper()}**: {latency.NOT_MEASURED[kind]}")
        for device, rows in found.items():
            if rows:
                shares = sorted({key for row in rows for key in row if key.endswith("%")}, key=lambda s: -int(s[:-1]))
                columns = [Column("shape", "shape"), Column("T", "T", kind="int"), Column("pass", "pass")]
                columns += [Column(share, share, align="right") for share in shares]
                columns.append(Column("break_even", "break-even", align="right"))
                blank = dict.fromkeys(shares)
                parts += [f"**{kind.upper()}**: {device}", markdown.table(columns, [blank | row for row in rows])]
    return "\n\n".join(parts)


def ratios(records: Sequence[dict[str, Any]]) -> dict[tuple[str, int, str], dict[int, dict[str, float]]]:
    """By shape, length and pass, the ratio at each share of heads in percent, with its interval."""
    cells: dict[tuple[str, int, str], dict[int, dict[str, float]]] = {}
    for record in records:
        if record["subject"] == "layer" and record["to_dense"] and skips(record["name"], record["implementation"]):
            shape, _, share = record["name"].rpartition("-")
            cells.setdefault((shape, record["seq_len"], record["pass"]), {})[int(share)] = record["to_dense"]
    return cells


def _rows(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "shape": shape,
            "T": seq_len,
            "pass": which,
            **{f"{share}%": _text(ratio) for share, ratio in sorted(own.items(), reverse=True)},
            "break_even": crossing({share: ratio["value"] for share, ratio in own.items()}),
        }
        for (shape, seq_len, which), own in ratios(records).items()
    ]


def crossing(ratios: dict[int, float]) -> str | None:
    """The share at which the ratio is 1: ``86%``; ``never`` or ``always`` within the measured shares; None for
    fewer than two."""
    if len(ratios) < 2:
        return None
    points = sorted(ratios.items())
    if all(ratio >= 1 for _, ratio in points):
        return "never"
    if all(ratio < 1 for _, ratio in points):
        return "always"
    for (low, below), (high, above) in pairwise(points):
        if below < 1 <= above:
            return f"{low + (high - low) * (1 - below) / (above - below):.0f}%"
    return None


def _text(ratio: dict[str, float]) -> str:
    return f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
