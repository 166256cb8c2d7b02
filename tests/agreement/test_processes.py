"""Real processes: a divided model equals the whole one, is timed and recorded, and lost ranks are named.

Ranks are two forks of a process that has imported torch. With the environment variable ALL_RANKS, as in ``make
nightly``, torchrun starts them, also four.
"""

import json
import os
import time
from functools import partial

import pytest

from tests.processes import run_by_forks, run_by_torchrun

EVERY = "ALL_RANKS" in os.environ
# two ranks divide F, V and h into primes; rotary positions need an even width of a head
SIZES = ["num_layers=1", "d_model=12", "d_ff=22", "vocab_size=34", "num_heads=2", "num_kv_heads=2"]
COMMAND = ["llama3-8b", *(f"--set={size}" for size in SIZES), "--seq-len", "14", "--blocks", "3"]


@pytest.fixture
def run(tmp_path, request):
    """Return a function that runs a command on a number of ranks."""
    return run_by_torchrun if EVERY else partial(run_by_forks, request.getfixturevalue("forks"), tmp_path)


@pytest.mark.parametrize("ranks", [2, 4] if EVERY else [2])
def test_divided_modules_equal_whole_ones(run, ranks):
    found = run(ranks, "tests.agreement.ranks_gloo")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [
        "heads",
        "model",
        "repeated_heads",
        "keys",
        "ring",
        "heads_and_keys",
        "shared",
        "sent",
    ]


@pytest.mark.parametrize("g", [2, 1] if EVERY else [1])
def test_two_processes_are_timed_and_recorded(run, tmp_path, g):
    path, command = tmp_path / "ranks.jsonl", [f"--set=num_kv_heads={g}" if "kv" in word else word for word in COMMAND]
    found = run(2, "headcount", "latency", *command, "--plan", "tp=2,sp", "--json", str(path))
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("tp=2,sp") == 1
    (record,) = map(json.loads, path.read_text().splitlines())
    assert record["mesh"] == {"dp": 1, "tp": 2}
    assert [len(own) for own in record["rank_ms"]] == [3, 3]
    # T (2 d_m d_m + 2 T d_m + 3 d_m F + d_m V), halved by tp, three times for a step; keys and values of 6 g each, of
    # which a rank has one head
    halved, head = 14 * (2 * 12 * 12 + 2 * 14 * 12 + 3 * 12 * 22 + 12 * 34), 14 * 2 * 12 * 6
    assert (record["macs"], record["model_macs"]) == (3 * (halved // 2 + head), 3 * (halved + g * head))
    # attention, feed-forward, and embedding with logits: a gather and a scatter of T d_m / 2 each way, in float32;
    # then the gradients of three norms, and of the only head, which both ranks have
    shared = 2 * 12 * 6 if g == 1 else 0
    assert record["sent_bytes"] == 4 * (3 * 4 * 14 * 12 // 2 + 3 * 12 + shared)


@pytest.mark.skipif(not EVERY, reason="30 s and more by torchrun: in make nightly")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("hangs", "error: no progress for 20 s: rank 1 "),
        # torchrun's own words
        ("dies", "Signal 9 (SIGKILL) received by PID"),
    ],
)
def test_lost_rank_ends_run_and_is_named(run, fault, words):
    started = time.monotonic()
    found = run(2, "tests.agreement.lost_rank", fault, *COMMAND, "--plan", "tp=2", "--timeout", "20")
    assert found.returncode == 1 and words in found.stderr
    if fault == "dies":
        assert "rank      : 1 (local_rank: 1)" in found.stderr
    # imports of three processes, the timeout, and torchrun's 30 s to end the ranks that are left
    assert time.monotonic() - started < 120 + 20 + 30
