"""Peaks of this machine: what is multiplied, copied and summed, and the best and the median of its rounds."""

from itertools import accumulate
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from headcount.bench.latency import peaks


@pytest.fixture
def products(monkeypatch):
    """The products that are made, of matrices that have sizes alone."""
    made, multiply = [], torch.mm
    monkeypatch.setattr(torch, "randn", lambda *shape, device: torch.empty(shape, device="meta"))
    monkeypatch.setattr(torch, "mm", lambda a, b: made.append((a.shape, b.shape, a.dtype)) or multiply(a, b))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return made


def test_peaks_on_a_gpu_are_by_events_after_warm_up(products, monkeypatch):
    """Twenty rounds of 1, 2, … ms each; a clock of the host of which two steps are the warm-up."""
    monkeypatch.setattr(peaks, "WARM_UP_S", 0.25)
    said, host = [], accumulate([7.0] + [0.125] * 3)
    monkeypatch.setattr(peaks, "elapsed_s", lambda call: said.append(call()) or 1e-3 * ((len(said) - 1) % 20 + 1))
    monkeypatch.setattr(peaks, "time", SimpleNamespace(perf_counter=lambda: next(host)))
    found = peaks.measure_peaks("cuda", torch.bfloat16)
    # one step of warming up, one call that is not timed
    assert products == [((8192, 8192), (8192, 8192), torch.bfloat16)] * (1 + 1 + 20) and len(said) == 3 * 20
    of_rounds = [1 / (1e-3 * (i + 1)) for i in range(20)]
    assert found.macs_per_s == 8192**3 / 1e-3
    assert found.median_macs_per_s == pytest.approx(8192**3 * median(of_rounds))
    assert (found.bytes_per_s, found.read_bytes_per_s) == (2**33 / 1e-3, 2**32 / 1e-3)
    assert found.median_bytes_per_s == pytest.approx(2**33 * median(of_rounds))
    assert found.how == ("8192^3 bfloat16 product, 8192 MiB read and written, best of 20; 4096 MiB read by a sum")


def test_peaks_on_a_cpu_are_by_the_clock_of_the_host(products, monkeypatch):
    """Five rounds of 1, 2, … s each."""
    host = accumulate([0, 1, 7, 2, 7, 3, 7, 4, 7, 5] + [7, 1, 7, 2, 7, 3, 7, 4, 7, 5])
    monkeypatch.setattr(peaks, "time", SimpleNamespace(perf_counter=lambda: next(host)))
    found = peaks.measure_peaks("cpu", torch.float32)
    assert products == [((2048, 2048), (2048, 2048), torch.float32)] * (1 + 5)
    assert (found.macs_per_s, found.median_macs_per_s) == (2048**3, 2048**3 / 3)
    assert (found.bytes_per_s, found.median_bytes_per_s) == (2**28, 2**28 / 3)
    assert found.read_bytes_per_s is None and next(host, None) is None
    assert found.how == "2048^3 float32 product, 256 MiB read and written, best of 5"
