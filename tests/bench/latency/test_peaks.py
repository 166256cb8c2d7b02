"""Peak rates of the fake device, each of whose kernels takes 50 us."""

import pytest
import torch

from headcount.bench.latency import peaks
from tests.bench.latency.fake_cuda import KERNEL_S

measure_peaks = peaks.measure_peaks


def test_peaks_of_a_gpu(cuda, monkeypatch):
    for name, value in (("SIDE", {"cuda": 8}), ("COPIED", {"cuda": 64}), ("WARM_UP_S", 0.0)):
        monkeypatch.setattr(peaks, name, value)
    found = measure_peaks("cuda", torch.bfloat16)
    rates = [found.macs_per_s, found.bytes_per_s, found.read_bytes_per_s]
    assert rates == pytest.approx([8**3 / KERNEL_S, 64 / KERNEL_S, 32 / KERNEL_S])
