"""``latency --plan`` on one rank, and its errors; tests/agreement/test_processes.py has several processes."""

import itertools
import json
import signal
import socket
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from headcount.bench.hardware import HARDWARE
from headcount.bench.latency import ranks, sharded_step
from headcount.bench.latency.__main__ import main
from headcount.models import sharded

# two ranks divide F, V and h into primes; rotary positions need an even width of a head
SIZES = ["num_layers=1", "d_model=12", "d_ff=22", "vocab_size=34", "num_heads=2", "num_kv_heads=2"]
COMMAND = ["llama3-8b", *(f"--set={size}" for size in SIZES), "--seq-len", "14", "--blocks", "3"]


class Store(dict):
    """A key-value store in this process."""

    set = dict.__setitem__

    def clone(self):
        return self


@pytest.fixture
def single_rank(monkeypatch):
    """Set the environment of the only rank of a process group."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    sizes = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in {**sizes, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)
    if dist.is_initialized():
        # a rank that fails does not leave its group
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("started", "beats", "words"),
    [
        # ranks 0 and 2 wait in their second collective
        ((2, 1, 2), True, "no progress for 0.1 s: rank 1 started 1 collective, others up to 2"),
        ((2, 2, 2), False, "no progress for 0.1 s: ranks 1, 2 stopped"),
        ((2, 2, 2), True, "no progress for 0.1 s: all ranks started 2 collectives\n"),
    ],
)
def test_ranks_that_hang_are_named(started, beats, words, monkeypatch, capsys):
    store, count = Store(), itertools.count()
    store.multi_get = lambda keys: [store[keys[0]], *(f"{next(count) * beats} {calls}" for calls in started[1:])]
    group = SimpleNamespace(_get_sequence_number_for_group=lambda: started[0])
    monkeypatch.setattr(sharded_step, "_get_default_store", lambda: store)
    monkeypatch.setattr(sharded_step, "POLL_S", 0.01)
    monkeypatch.setattr(sharded_step.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(sharded_step.dist, "get_world_size", lambda: len(started))
    monkeypatch.setattr(sharded_step.os, "_exit", lambda code: sys.exit(code))
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    with pytest.raises(SystemExit):
        sharded_step.Watchdog("test", [group], 0.1).run()
    assert words in capsys.readouterr().err


def test_one_process_has_a_utilization(single_rank, monkeypatch, capsys):
    monkeypatch.setattr(ranks, "by_device", lambda device: HARDWARE["a100"])
    assert main([*COMMAND, "--plan", "dp=1", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    (row,) = table["rows"]
    assert row["mfu"] == pytest.approx(row["macs"] / (row["slowest_ms"]["value"] / 1000 * 9.75e12))


def test_fsdp_divides_weights(single_rank, monkeypatch, capsys):
    meshes, divide = [], sharded.divide_weights
    monkeypatch.setattr(sharded, "divide_weights", lambda *args: meshes.append(args[1]) or divide(*args))
    assert main([*COMMAND, "--plan", "dp=1,fsdp"]) == 0
    # in float64 to be checked, and to be timed
    assert [mesh.mesh_dim_names for mesh in meshes] == [("dp",)] * 2


def test_model_that_differs_is_not_timed(single_rank, monkeypatch, capsys):
    divide = sharded_step.ShardedStep.divide

    def change(self, *args):
        model = divide(self, *args)
        with torch.no_grad():
            model.layers[0].feed_forward.up_proj.weight[3, 5] += 1e-6
        return model

    monkeypatch.setattr(sharded_step.ShardedStep, "divide", change)
    assert main([*COMMAND, "--plan", "dp=1"]) == 1
    assert "is not the whole one in float64: logits" in capsys.readouterr().err


def test_model_beyond_free_memory_raises(single_rank, capsys):
    assert main(["llama3-8b", "--plan", "dp=1"]) == 3
    # weights and gradients of the whole model and of its only rank, in float64
    needed = int(capsys.readouterr().err.partition("needs ")[2].partition(" bytes")[0].replace(",", ""))
    assert needed > 2 * 2 * 8 * 8_030_261_248
