"""A small campaign on the fake device, for a process without pytest."""

import torch

from headcount.bench.latency import gates, implementations, peaks, schedule, timing, timing_cases
from headcount.bench.latency.__main__ import replace_jaxtyping
from headcount.models.configs.make import make_config
from tests.bench.latency import fake_cuda

LAYER = dict(attention="moa", d_model=64, num_experts=6, top_k=2, head_dim=16)


class Patch:
    """Like pytest's monkeypatch, without undo."""

    def setattr(self, owner, name, value):
        setattr(owner, name, value)


def small_peaks():
    """Measure peaks with small products and copies."""
    peaks.SIDE["cpu"], peaks.COPIED["cpu"] = 64, 4096


def small_campaign():
    """Install the fake device for the rest of the process; the loop breaks it."""
    replace_jaxtyping()
    from headcount.bench.latency import measure

    for module in (implementations, timing_cases):
        module.layer = lambda name: make_config(LAYER)
    schedule.read_rows = lambda: [{"layer": "some", "seq_len": 7, "pass": "forward", "seconds": 1.0}]
    gates.LAYERS, gates.SHAPES, measure.POISON_BYTES = ("some",), ((7, 2, "balanced"),), 64
    gates.DTYPES = {"cuda": ("bfloat16",)}
    device = fake_cuda.install(Patch())
    timing.WARM_UP_S = timing.CASE_WARM_UP_S = {"cuda": 0.0}

    def broken(name):
        # in its check, and again while it is timed
        if name == "nonzero":
            device.dead = "an illegal memory access was encountered"
            device.check()

    device.on_operation = broken
    fake_cuda.Operations(device).__enter__()
    fake_cuda.Tensors(device).__enter__()
    assert torch.cuda.is_available()
