"""Ways that are tried on a GPU: each core by each of torch's kernels, each block size of ours by itself."""

from contextlib import contextmanager

import pytest
import torch

from headcount.bench.latency import tuning
from headcount.bench.latency.capture import NotCaptured
from headcount.models.kernels.triton_configs import TABLE

TOOK_S = (4e-6, 1e-6, 3e-6, 2e-6)


class Replayed:
    def replay(self):
        pass


@pytest.fixture
def clocked(cuda, monkeypatch):
    """A device on which five calls of any way take 3 us, the upper median of four replays; what was called is kept."""
    called, times = [], []

    def capture(call, calls, sets):
        assert (calls, sets) == (5, 1)
        called.append(call(0))
        times[:] = TOOK_S
        return Replayed()

    monkeypatch.setattr(tuning, "capture", capture)
    monkeypatch.setattr(tuning, "elapsed_s", lambda replay: replay() or times.pop())
    return called


def test_core_is_timed_with_each_backend(clocked, monkeypatch):
    asked, made, given, randn = [], [], [], torch.randn

    def on_the_device(*sizes, device, dtype):
        made.append((sizes, device, dtype))
        return randn(*sizes, device=device, dtype=dtype)

    @contextmanager
    def only(backend):
        asked.append(backend.name)
        yield

    monkeypatch.setattr(torch.nn.attention, "sdpa_kernel", only)
    monkeypatch.setattr(tuning, "CORES", ((3, 8, 5),))
    monkeypatch.setattr(torch, "randn", on_the_device)
    monkeypatch.setattr(tuning, "backend_of", lambda *call: given.append(call) or "flash_attention")
    rows = list(tuning._cores(10, torch.float32))
    # three calls before the one that is captured
    assert asked == [name for name in tuning.BACKENDS for _ in range(4)]
    assert [row["way"] for row in rows] == ["cudnn_attention", "flash_attention", "efficient_attention"]
    assert {row["what"] for row in rows} == {"core of 3 heads of 8, T = 5"}
    assert [row["chosen"] for row in rows] == [None, "yes", None]
    assert [row["us"] for row in rows] == pytest.approx([0.6] * 3, rel=1e-9) and {row["status"] for row in rows} == {
        "timed"
    }
    # ten tokens are two sequences, whose heads' queries stand in one row before the one key
    assert {tuple(found.shape) for found in clocked} == {(2, 1, 15, 8)}
    assert made == [((2, 1, 15, 8), "cuda", torch.float32), ((2, 1, 5, 8), "cuda", torch.float32)]
    (((q, k, v), options),) = given
    assert (q.shape, k.shape, options) == ((2, 1, 15, 8), (2, 1, 5, 8), {}) and k is v


def test_kernel_is_timed_with_each_launch_config(clocked, monkeypatch):
    built, launched, committed = [], [], TABLE["expert"]

    def build(config, *, device, dtype, impl):
        built.append((config.num_experts, device, dtype, impl))
        return lambda x: launched.append(TABLE["expert"]) or x

    monkeypatch.setattr("headcount.models.build.build", build)
    monkeypatch.setattr("headcount.bench.latency.implementations.lacks", lambda impl, device: None)
    monkeypatch.setattr(tuning, "KERNELS", {"expert": "moa-8K16E256D"})
    first, *others = tuning._blocks(3 * 128, torch.bfloat16)
    assert built == [(16, "cuda", torch.bfloat16, "triton")]
    assert (first["what"], first["way"], first["chosen"]) == (
        "kernel expert in moa-8K16E256D, T = 128", "as committed", "yes",
    )  # fmt: skip
    assert len(others) == len(committed) and {row["chosen"] for row in others} == {None}
    launch = committed[0].launch
    blocks = " ".join(f"{letter}{size}" for letter, size in launch.blocks.items())
    assert others[0]["way"] == f"{blocks} w{launch.num_warps} s{launch.num_stages}"
    # one launch whatever the sizes, and the table is as before
    assert [rows[0].launch for rows in launched[4::4]] == [row.launch for row in committed]
    assert {(len(rows), tuple(rows[0].least)) for rows in launched[4:]} == {(1, ())}
    assert TABLE["expert"] is committed
    assert {(found.shape, found.dtype) for found in clocked} == {((3, 128, 512), torch.bfloat16)}


def test_failing_config_has_status(monkeypatch):
    def waits(*_):
        raise NotCaptured("it waits")

    def call(_):
        raise ValueError("too wide")

    monkeypatch.setattr(tuning, "capture", waits)
    assert tuning._row("a", "b", lambda _: None, False) == {
        "what": "a", "way": "b", "us": None, "chosen": None, "status": "no graph: it waits",
    }  # fmt: skip
    failed = tuning._row("a", "b", call, True)
    assert failed["us"] is None and failed["chosen"] == "yes" and "too wide" in failed["status"]
