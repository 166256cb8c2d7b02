"""Configurations of kernels: each attention core with each backend, each Triton kernel with each launch config."""

from contextlib import contextmanager

import pytest
import torch

from headcount.bench.latency import tuning
from headcount.bench.latency.capture import NotCaptured
from headcount.models.kernels.triton_configs import TABLE


class Replayed:
    def replay(self):
        pass


@pytest.fixture
def clocked(cuda, monkeypatch):
    """Five calls take 3 us, the upper median of four replays; outputs of captured calls are collected."""
    outputs, times = [], []

    def capture(call, calls, sets):
        outputs.append(call(0))
        times[:] = (4e-6, 1e-6, 3e-6, 2e-6)
        return Replayed()

    monkeypatch.setattr(tuning, "capture", capture)
    monkeypatch.setattr(tuning, "elapsed_s", lambda replay: replay() or times.pop())
    return outputs


@pytest.mark.parametrize("tokens, batch", [(10, 2), (4, 1)], ids=["T10-B2", "T4-B1"])
def test_core_is_timed_with_each_backend(tokens, batch, clocked, monkeypatch):
    backends = []

    @contextmanager
    def select(backend):
        backends.append(backend.name)
        yield

    monkeypatch.setattr(torch.nn.attention, "sdpa_kernel", select)
    monkeypatch.setattr(tuning, "CORES", ((3, 8, 5),))
    monkeypatch.setattr(tuning, "backend_of", lambda *call: "flash_attention")
    rows = list(tuning._cores(tokens, torch.float32))
    assert [(row["way"], row["chosen"]) for row in rows] == [
        ("cudnn_attention", None), ("flash_attention", "yes"), ("efficient_attention", None),
    ]  # fmt: skip
    # three calls before the captured one
    assert backends == [name for name in tuning.BACKENDS for _ in range(4)]
    assert [row["us"] for row in rows] == pytest.approx([0.6] * 3, rel=1e-9)
    # the queries of three heads of five tokens stand in one row before the one key
    assert {tuple(found.shape) for found in clocked} == {(batch, 1, 15, 8)}


def test_kernel_is_timed_with_each_launch_config(clocked, monkeypatch):
    launched, committed = [], TABLE["expert"]
    monkeypatch.setattr(
        "headcount.models.build.build", lambda config, **how: lambda x: launched.append(TABLE["expert"]) or x
    )
    monkeypatch.setattr("headcount.bench.latency.implementations.lacks", lambda impl, device: None)
    monkeypatch.setattr(tuning, "KERNELS", {"expert": "moa-8K16E256D"})
    first, *others = tuning._blocks(3 * 128, torch.bfloat16)
    assert (first["way"], first["chosen"]) == ("as committed", "yes") and len(others) == len(committed)
    # three calls before the captured one; one launch whatever the sizes; the table is as before
    assert [rows[0].launch for rows in launched[4::4]] == [row.launch for row in committed]
    assert {(len(rows), tuple(rows[0].least)) for rows in launched[4:]} == {(1, ())} and TABLE["expert"] is committed
    assert {(found.shape, found.dtype) for found in clocked} == {((3, 128, 512), torch.bfloat16)}


@pytest.mark.parametrize("error, status", [(NotCaptured("it waits"), "no graph: it waits"), (ValueError("x"), "x")])
def test_failing_config_has_status(error, status, monkeypatch):
    def capture(*_):
        raise error

    monkeypatch.setattr(tuning, "capture", capture)
    row = tuning._row("a", "b", lambda _: None, False)
    assert row["us"] is None and row["status"].endswith(status)
