"""Layers small enough to be timed in tests, a stored record, and a fake CUDA device."""

import json
import os
import time
from dataclasses import replace

import pytest

from headcount.bench import records
from headcount.bench.latency import implementations
from headcount.bench.latency.estimate import Peaks
from headcount.bench.targets.watched import WORKER
from headcount.models.configs.make import make_config
from tests.bench.latency import fake_cuda

PEAKS = Peaks(1e9, 1e9, "invented")
ENVIRONMENT = {"device": "invented", "time": "2026-01-01"}

LAYERS = {
    "some": dict(attention="moa", d_model=64, num_experts=6, top_k=2, head_dim=16),
    "all": dict(attention="moa", d_model=64, num_experts=3, top_k=3, head_dim=16),
    "heads": dict(attention="moh", d_model=64, num_heads=4, num_shared_heads=1, top_k=2),
    "norms": dict(attention="moh", d_model=128, num_heads=8, num_shared_heads=2, top_k=2, num_kv_heads=2)
    | dict(router="query_norm"),
    "dense": dict(attention="mha", d_model=64, num_heads=2, bias=False),
}


def latency_record(**facts):
    """Return the first stored record of a GPU, with ``facts`` changed."""
    found, _ = records.read_latencies(min(records.shipped().glob("nvidia-h200/*.jsonl")))
    return replace(found[0], **facts)


@pytest.fixture
def layers(monkeypatch):
    """Replace the layers that can be timed by LAYERS."""
    monkeypatch.setattr(implementations, "layer", lambda name: make_config(LAYERS[name]))
    monkeypatch.setattr("headcount.models.configs.layers.LAYERS", LAYERS)


@pytest.fixture
def cuda(layers, fake_device):
    """Run the test with small layers on the fake CUDA device."""
    return fake_device


@pytest.fixture
def fake_device(monkeypatch):
    """Run the test on the fake CUDA device, in a worker whose parent ignores its steps."""
    pipe = os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setenv(WORKER, json.dumps({"pipe": pipe, "started": time.time()}))
    with fake_cuda.running(fake_cuda.install(monkeypatch)) as found:
        yield found
    os.close(pipe)


@pytest.fixture
def quick(monkeypatch):
    """Skip warm-up, and time blocks of one call where a call is not shorter than 0.1 ms."""
    monkeypatch.setattr("headcount.bench.latency.timing.WARM_UP_S", {"cpu": 0.0, "cuda": 0.0})
    monkeypatch.setattr("headcount.bench.latency.timing.BLOCK_S", {"cpu": 1e-4, "cuda": 1e-4})
    monkeypatch.setattr("headcount.bench.latency.measure.L2_SHARE", 1e-9)
