"""Least and expected time of kernels on a card. Imports no torch.

The least time of a kernel is the longer of its bytes over the bandwidth and its multiply-accumulates over the peak. Its
expected time is the least time over the efficiency of its kind. An attention core runs one program for 128 rows of a
sequence and head, padded, and as many programs at once as the card has multiprocessors: the programs of a round that
is not full take as long as a full one, and each round has a price for the first loads and the last stores of its
programs, which grow with the width of a head. A sort costs by what it sorts. Each launch has a
price.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from headcount.bench.hardware import HARDWARE, Hardware
from headcount.bench.performance.kernel import CORE, CORE_BACKWARD, SORT, TOP_K, CoreSizes, Kernel

STORED = "efficiencies.json"
LEAST_LAUNCH_US = 1.5
"""Microseconds that a kernel takes in a CUDA graph at least: assumed for this generation of hardware."""
TILE = 128
"""Rows of queries, and of keys, that a program of a core pads to."""
MULTIPROCESSORS = 132
"""Multiprocessors assumed of a card whose number was not read: those of the measured one."""
WIDTHS = (64, 128, 256, 512)
"""Head widths that cores are written for, a width between two runs as the larger one; above 256 torch has none, and
runs products and a softmax."""
LAUNCH, ROUND, ROUND_BACKWARD, SORT_CALL = "launch", "round", "round_backward", "sort_call"
PRICES = {
    LAUNCH: (0.5, 5.0, "us a launch"),
    ROUND: (0.0, 3.0, "us a round of an attention core, heads of 128"),
    ROUND_BACKWARD: (0.0, 10.0, "us a round of its backward pass, heads of 128"),
    SORT_CALL: (0.0, 20.0, "us a sort or top-k"),
    SORT: (0.0, 20.0, "us for 1,000 sorted elements"),
    TOP_K: (0.0, 20.0, "us for 1,000 rows of a top-k"),
}
"""Constants in microseconds, with their bounds in a fit and their units. All others are efficiencies."""
ROUND_WIDTH = 128
"""The width of a head whose rounds have the price; others have their share of it."""
EFFICIENCY = (0.1, 1.0)
"""Bounds of an efficiency."""
US = 1e6
Time = Any
"""A float, or a Vector of the times of many candidates."""


@dataclass(frozen=True)
class Efficiencies:
    """Constants of the expected time, and the card whose stored records they were fitted on.

    Attributes:
        card: key of the card's data sheet.
        values: efficiencies between 0.1 and 1, and PRICES in microseconds.
        evidence: what the fit was tested on, as printed.
    """

    card: str
    values: Mapping[str, float]
    evidence: Mapping[str, Any]

    def statement(self, hardware: Hardware) -> str:
        """Return how an expected time on ``hardware`` comes about, and how it was tested."""
        fitted, tested = HARDWARE[self.card], self.evidence
        elsewhere = ""
        if hardware.name != fitted.name:
            elsewhere = f" {hardware.short_name}: the same efficiencies and prices, which no measurement there tests."
        if hardware.multiprocessors is None:
            elsewhere += f" Its multiprocessors are not known; {MULTIPROCESSORS}, as of the {fitted.short_name}."
        return (
            f"Expected: each kind of kernel at its efficiency in stored bfloat16 records of the {fitted.short_name}, "
            f"and the measured price of a launch. On {tested['rows']} rows that were not fitted: median error "
            f"{100 * tested['median_error']:.1f} %, {100 * tested['within_share']:.0f} % within 25 %.{elsewhere}"
        )

    def expected_us(self, kernels: Iterable[Kernel], hardware: Hardware, dtype: str) -> float:
        """Return the expected microseconds of ``kernels``, one after another."""
        total = 0.0
        for kernel in kernels:
            for name, amount in parts(kernel, hardware, dtype):
                value = self.values[nearest(name, self.values)]
                total += kernel.times * amount * (value if name in PRICES else 1 / value)
        return total


@cache
def load() -> Efficiencies:
    """Return the stored efficiencies."""
    stored = json.loads(files("headcount.bench.performance").joinpath(STORED).read_text("utf-8"))
    return Efficiencies(stored["card"], stored["values"], stored["evidence"])


def least_us(kernels: Iterable[Kernel], hardware: Hardware, dtype: str) -> float:
    """Return the microseconds that ``kernels`` take at least on a card, one after another."""
    return sum(kernel.times * (_least_us(kernel, hardware, dtype) + LEAST_LAUNCH_US) for kernel in kernels)


def parts(kernel: Kernel, hardware: Hardware, dtype: str) -> Iterator[tuple[str, float]]:
    """Yield the parts of the expected time of one launch: the name of a constant, and what it is multiplied with.

    Microseconds that an efficiency divides, or numbers that a price multiplies.
    """
    yield LAUNCH, 1.0
    if kernel.kind in (SORT, TOP_K):
        yield SORT_CALL, 1.0
        yield kernel.kind, kernel.sorted / 1000
    elif kernel.kind in (CORE, CORE_BACKWARD) and kernel.core:
        rounds, macs = _rounds(kernel, kernel.core, hardware)
        bytes_us = US * kernel.bytes / hardware.bytes_per_s
        width = next((width for width in WIDTHS if kernel.core.width <= width), WIDTHS[-1])
        yield f"{kernel.kind}_{width}", _longer(bytes_us, US * macs / hardware.macs_per_s[dtype])
        yield ROUND if kernel.kind == CORE else ROUND_BACKWARD, rounds * (width / ROUND_WIDTH)
    else:
        yield kernel.kind, _least_us(kernel, hardware, dtype)


def nearest(name: str, values: Mapping[str, float]) -> str:
    """Return the constant for ``name``: its own, or that of the nearest head width which ``values`` have."""
    if name in values:
        return name
    kind, _, width = name.rpartition("_")
    known = [other for other in WIDTHS if f"{kind}_{other}" in values]
    return f"{kind}_{min(known, key=lambda other: abs(other - int(width)))}"


def _least_us(kernel: Kernel, hardware: Hardware, dtype: str) -> float:
    return US * least_s(kernel.bytes, kernel.macs, hardware, dtype)


def least_s(moved: Time, macs: Time, hardware: Hardware, dtype: str) -> Time:
    """Return the longer of the seconds for ``moved`` bytes and for ``macs`` at the rates of a data sheet."""
    return _longer(moved / hardware.bytes_per_s, macs / hardware.macs_per_s[dtype])


def _longer(one: Time, other: Time) -> Time:
    """Return the longer of two times, of vectors the longer of each pair."""
    if isinstance(one, float) and isinstance(other, float):
        return max(one, other)
    return other.larger(one) if isinstance(one, float) else one.larger(other)


def _rounds(kernel: Kernel, core: CoreSizes, hardware: Hardware) -> tuple[int, float]:
    """Return the rounds of a core's programs, and the multiply-accumulates of full rounds of padded tiles."""
    batch, queries, keys, width = core
    # backward a program has the keys of a tile, and reads all queries
    own, other, products = (queries, keys, 2) if kernel.kind == CORE else (keys, queries, 5)
    at_once = hardware.multiprocessors or MULTIPROCESSORS
    rounds = _ceil(batch * _ceil(own, TILE), at_once)
    visible = kernel.macs / (products * batch * queries * keys * width)
    padded = TILE * TILE * _ceil(other, TILE) * products * width * min(1.0, visible)
    return rounds, rounds * at_once * padded


def _ceil(size: int, block: int) -> int:
    return -(-size // block)
