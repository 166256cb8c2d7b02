"""Measure the peak rates of this machine with large matrix products, copies and sums."""

import math
import time
import timeit
from collections.abc import Callable

import torch

from headcount.bench.latency.capture import elapsed_s
from headcount.bench.latency.roofline import Peaks

ROUNDS = {"cpu": 5, "cuda": 20}
SIDE = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the multiplied matrices."""
COPIED = {"cpu": 256 * 2**20, "cuda": 8 * 2**30}
"""Bytes that a copy reads and writes."""
WARM_UP_S = 0.3
"""Seconds of products on a GPU before the first timed one, because its clock rises from idle."""


def measure_peaks(device: str, dtype: torch.dtype) -> Peaks:
    """Return the best rate of some rounds, after warm-up, of square products, copies, and on a GPU sums."""
    side, copied = SIDE[device], COPIED[device]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    source = torch.randn(copied // 2 // 4, device=device)
    target = torch.empty_like(source)
    if device == "cuda":
        started = time.perf_counter()
        while time.perf_counter() - started < WARM_UP_S:
            torch.mm(a, b)
            torch.cuda.synchronize()
    size = source.numel() * source.element_size()
    product_s, copy_s = _best_s(lambda: torch.mm(a, b), device), _best_s(lambda: target.copy_(source), device)
    read_s = _best_s(lambda: source.sum(), device) if device == "cuda" else math.inf
    how = f"{side}^3 product, {copied} bytes read and written, best of {ROUNDS[device]}"
    return Peaks(side**3 / product_s, 2 * size / copy_s, how, size / read_s)


def _best_s(call: Callable[[], object], device: str) -> float:
    """Return the seconds of the fastest round: between events on a GPU, else by the host's clock."""
    call()
    if device == "cuda":
        return min(elapsed_s(call) for _ in range(ROUNDS[device]))
    return min(timeit.repeat(call, number=1, repeat=ROUNDS[device]))
