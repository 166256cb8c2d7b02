"""Blocks of the cards that ``--on`` and ``--peak`` name: rates, memory, and where each figure was read."""

from collections.abc import Mapping

from headcount.bench.column import DASH
from headcount.bench.hardware import HARDWARE, SOURCES
from headcount.reports import document
from headcount.reports.facts import Facts

FIGURES = {
    "bytes_per_s": "GB/s",
    "memory_bytes": "memory",
    "link_bytes_per_s": "link",
    "node_cards": "cards of a node",
    "bridge_bytes_per_s": "bridge",
}
"""Words of the fields of a data sheet."""


def rates(facts: Facts) -> str:
    """Return the peak rates and the memory of each card."""
    rows = [
        {
            "card": one.name,
            "bf16, fp16": _sixteen_bits(one.tflops),
            **{dtype: _number(one.tflops.get(dtype)) for dtype in ("fp8", "tf32", "fp32", "fp64")},
            "GB/s": _number(one.bytes_per_s / 1e9),
            "GB": DASH if one.memory_bytes is None else f"{one.memory_bytes / 1e9:.6g}",
        }
        for one in HARDWARE.values()
    ]
    right = {"align": "right"}
    return document.records(rows, {key: right for key in rows[0] if key != "card"})


def _number(rate: float | None) -> str:
    return DASH if rate is None else f"{rate:g}"


def _sixteen_bits(tflops: Mapping[str, float]) -> str:
    """Return the rate of both types of 16 bits, or that of the one type that a card has, with its name."""
    rates = {dtype: tflops[dtype] for dtype in ("bf16", "fp16") if dtype in tflops}
    same = len(rates) == 2 and len({*rates.values()}) == 1
    return _number(rates["bf16"]) if same else ", ".join(f"{dtype} {rate:g}" for dtype, rate in rates.items()) or DASH


def read(facts: Facts) -> str:
    """Return for each card the documents in which its figures were read."""
    lines = []
    for one in HARDWARE.values():
        parts = [f"*{key}*: {', '.join(map(_figure, figures))}" for key, figures in one.read.items()]
        lines.append(f"- {one.name}. {'; '.join(parts)}.")
    return "\n".join(lines)


def places(facts: Facts) -> str:
    """Return the documents in which figures were read, a line each."""
    return "\n".join(f"- *{key}*: {_place(one['address'])} ({one['read']})." for key, one in SOURCES.items())


def _place(address: str) -> str:
    """Return an address as a link, and a file of the repository by its path."""
    return f"<{address}>" if address.startswith("https://") else f"`{address}`"


def _figure(field: str) -> str:
    """Return the words of a field of a data sheet, a dtype itself."""
    return FIGURES.get(field, field)
