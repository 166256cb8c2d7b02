"""Measured peaks: the best and the median of the rounds, by events on a GPU and by the host's clock on a CPU."""

from itertools import accumulate, chain, count
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from headcount.bench.latency import peaks


@pytest.mark.parametrize("device, side, rounds, copied", [("cpu", 2048, 5, 2**28), ("cuda", 8192, 20, 2**33)])
def test_peaks_are_best_and_median_of_rounds(device, side, rounds, copied, monkeypatch):
    """Rounds take 1, 2, ... s."""
    multiply, products, timed = torch.mm, [], count()
    monkeypatch.setattr(torch, "randn", lambda *shape, device: torch.empty(shape, device="meta"))
    monkeypatch.setattr(torch, "mm", lambda a, b: products.append((*a.shape, *b.shape)) or multiply(a, b))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(peaks, "WARM_UP_S", 0.0)
    monkeypatch.setattr(peaks, "elapsed_s", lambda call: (call(), next(timed) % rounds + 1)[1])
    steps = chain.from_iterable((0, i + 1) for _ in range(3) for i in range(rounds))
    host = count() if device == "cuda" else accumulate(steps)
    monkeypatch.setattr(peaks, "time", SimpleNamespace(perf_counter=lambda: next(host)))
    found = peaks.measure_peaks(device, torch.float32)
    assert set(products) == {(side,) * 4} and len(products) >= rounds + 1
    middle = median(1 / (i + 1) for i in range(rounds))
    assert (found.macs_per_s, found.bytes_per_s) == (side**3, copied)
    assert found.median_macs_per_s == pytest.approx(side**3 * middle)
    assert found.median_bytes_per_s == pytest.approx(copied * middle)
    assert found.read_bytes_per_s == (copied / 2 if device == "cuda" else None)
