"""Blocks of the cards that ``--on`` and ``--peak`` name: rates, memory, and where each figure was read."""

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
            "TFLOP/s": ", ".join(f"{dtype} {rate:g}" for dtype, rate in one.tflops.items()),
            "GB/s": f"{one.bytes_per_s / 1e9:g}",
            "memory, GB": DASH if one.memory_bytes is None else f"{one.memory_bytes / 1e9:.6g}",
            "read in": "; ".join(f"{key}: {', '.join(map(_figure, figures))}" for key, figures in one.read.items()),
        }
        for one in HARDWARE.values()
    ]
    return document.records(rows)


def places(facts: Facts) -> str:
    """Return the documents in which figures were read, a line each."""
    return "\n".join(f"- *{key}*: {_place(one['address'])} ({one['read']})." for key, one in SOURCES.items())


def _place(address: str) -> str:
    """Return an address as a link, and a file of the repository by its path."""
    return f"<{address}>" if address.startswith("https://") else f"`{address}`"


def _figure(field: str) -> str:
    """Return the words of a field of a data sheet, a dtype itself."""
    return FIGURES.get(field, field)
