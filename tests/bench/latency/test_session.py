"""Sessions store and skip finished cases, stop at the time limit, restart after a lost device, and read the GPU."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from headcount.bench import records
from headcount.bench.latency import campaign, measure, session, timing, timing_cases
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.session import read_finished
from headcount.bench.targets import watched
from tests.bench.latency.conftest import PEAKS, latency_record

SHAPE = ["--seq-len", "7", "--batch-size", "2", "--blocks", "2"]
FLOAT64 = [*SHAPE, "--dtype", "float64"]
CPU = ["--layer", "dense", *FLOAT64]
CASE = "layer some T7 B2 bfloat16 forward cuda balanced"
ON_GPU = ["--device", "cuda", "--pass", "forward"]
GPU = ["--layer", "some", *SHAPE, *ON_GPU]


@pytest.fixture(autouse=True)
def small_cases(layers, quick, monkeypatch):
    """Use small layers, short blocks and invented peaks."""
    monkeypatch.setattr("headcount.bench.latency.session.measure_peaks", lambda device, dtype: PEAKS)


def asks_for_restart(argv):
    """Return whether the command, as a worker, exits with the code that starts the next worker."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    return ended.value.code == watched.RESTART


def rows_of(path):
    found, problems = records.read_latencies(path)
    assert problems == []
    return found


def test_interrupted_run_skips_finished_cases(tmp_path, monkeypatch):
    path = tmp_path / "latency.jsonl"
    argv = [*CPU, "--pass", "forward", "both", "--out-dir", str(tmp_path), "--commit", "abc123"]
    plain, calls = measure.measure_case, []

    def interrupt(case, peaks, **options):
        calls.append(case.which)
        if case.which == "both" and len(calls) < 4:
            raise KeyboardInterrupt
        return plain(case, peaks, **options)

    monkeypatch.setattr(measure, "measure_case", interrupt)
    assert [main(argv) for _ in range(3)] == [130, 130, 0]
    assert calls == ["forward", "both", "both", "both"]
    assert [(r.which, r.layer, r.implementation_used) for r in rows_of(path)] == [
        ("forward", "dense", "fused"), ("both", "dense", "fused"),
    ]  # fmt: skip
    assert all(r.environment["packages"]["torch"] and r.backends for r in rows_of(path))
    environ = json.loads((tmp_path / "env.json").read_text())
    assert environ["command"][:3] == ["bench.latency", "--layer", "dense"]
    assert rows_of(path)[-1].environment == environ and environ["commit"] == "abc123" and environ["dirty"] is None
    before = path.read_bytes()
    assert main(argv) == 0 and path.read_bytes() == before


def test_last_run_of_a_case_is_finished(tmp_path):
    for time, cell in (("9", "a"), ("9", "b"), ("10", "a"), ("10", "a")):
        records.append(tmp_path / "r.jsonl", latency_record(cell=cell, environment={"device": "x", "time": time}))
    done = read_finished(tmp_path / "r.jsonl")
    times = {cell: [r.environment["time"] for r in rows] for cell, rows in done.items()}
    assert times == {"a": ["10", "10"], "b": ["9"]}


def test_error_of_a_whole_case_is_status_of_each_row(monkeypatch, tmp_path):
    def no_cases(*_):
        raise ValueError("no clock")

    monkeypatch.setattr(measure, "CaseTensors", no_cases)
    argv = [*FLOAT64, "--pass", "forward", "--layer", "some", "--implementation", "loop"]
    assert main([*argv, "--json", str(tmp_path / "r.jsonl")]) == 1
    found = [(one.layer, one.status, one.peaks) for one in rows_of(tmp_path / "r.jsonl")]
    layers = ("some", "mqa-2x16", "mha-1x64", "mha-2x16")
    assert found == [(name, "failed: ValueError: no clock", None) for name in layers]


def test_short_cases_begin_after_a_long_one(monkeypatch):
    """Two seconds are left: too few for another backward pass of 20 s, enough for what takes one second."""
    now, limits, seconds = [0.0], [], {"both": 20.0, "forward": 1.0}
    monkeypatch.setattr(session, "time", SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr(session.watched, "begin_step", lambda key, limit: limits.append(limit))

    def measure_case(case, peaks, **_):
        now[0] += seconds[case.which]
        return [latency_record()]

    monkeypatch.setattr(measure, "measure_case", measure_case)
    run = session.TimingSession(None, {"device": "a CPU", "device_type": "cpu", "threads": 1}, 2, 23.0)
    shape = dict(batch_size=1, dtype="float32", device="cpu", routing="natural")
    passes = ["forward", "both", "both", "forward", "forward", "forward"]
    cases = [timing_cases.TimingCase("model", "tiny", 2 + i, which=which, **shape) for i, which in enumerate(passes)]
    assert len(list(run.make_table(cases).rows)) == 4
    assert run.remark == "".join(f"\nmissing, no time left: {cases[i].key}" for i in (2, 5))
    # a model that hangs is given up at the time limit, not after ten minutes
    assert limits == [23.0, 22.0, 2.0, 1.0]


@pytest.mark.parametrize("when", ["dead", "failing"], ids=["at-once", "at-the-next-synchronisation"])
def test_lost_device_restarts_before_the_next_section(when, tmp_path, cuda, capsys, monkeypatch):
    case = timing_cases.TimingCase("layer", "some", 7, 2, "bfloat16", "forward", "cuda", "balanced")
    parts = {"layers": case, "checks": replace(case, name="dense")}
    monkeypatch.setattr(campaign, "part_cases", lambda part, *_: {parts[part]: 4.0})
    argv = ["campaign", "--out-dir", str(tmp_path), "--blocks", "2", "--part", "layers", "checks"]

    def die(name):
        if name == "nonzero":
            setattr(cuda, when, "an illegal memory access was encountered")
            cuda.check()

    cuda.on_operation = die
    assert asks_for_restart(argv)
    status = "failed: AcceleratorError: CUDA error: an illegal memory access was encountered"
    assert capsys.readouterr().err.endswith(f"{CASE}: the device is lost: continuing in a new process\n")
    # a new process has a working device, and skips the stored case
    cuda.dead = cuda.failing = None
    assert main(argv) == 1
    found = {(r.name, r.status) for r in rows_of(tmp_path / "latency.jsonl")}
    assert found == {("some", f"failed: DeviceLost: some loop: {status}"), ("dense", "timed")}


def test_failed_capture_restarts_with_the_next_case(tmp_path, cuda, monkeypatch, capsys):
    captured, reason = timing.capture, "operation failed due to a previous error during capture"

    def fail_for_grouped(call, calls, sets):
        cuda.capture_error = reason if call.__self__.spec.impl == "grouped" else None
        return captured(call, calls, sets)

    monkeypatch.setattr(timing, "capture", fail_for_grouped)
    argv = [*SHAPE, *ON_GPU, "--layer", "some", "dense", "--json", str(tmp_path / "r.jsonl")]
    assert asks_for_restart(argv)
    assert capsys.readouterr().err.endswith(f"{CASE}: a capture failed ({reason}): continuing in a new process\n")
    found = {r.implementation: r for r in rows_of(tmp_path / "r.jsonl") if r.role in ("subject", "mqa")}
    assert {impl: r.timed_by for impl, r in found.items()} == {
        "dense-all": "graph", "grouped": "events", "loop": "events", "fused": "graph",
        "packed": "graph",
    }  # fmt: skip
    assert found["grouped"].no_graph_because == reason and found["dense-all"].overhead_by == "graph"
    assert found["loop"].no_graph_because == f"an earlier capture failed in this process: {reason}"
    # a new process captures again
    monkeypatch.setattr(timing, "capture_failures", [])
    assert main(argv) == 0 and rows_of(tmp_path / "r.jsonl")[-1].timed_by == "graph"


def test_case_that_hung_is_not_tried_again(tmp_path, cuda, monkeypatch):
    """The parent has ended the worker, and states the reason to the next one."""
    reason = {"step": CASE, "reason": "gave no answer within 60 s"}
    monkeypatch.setenv(watched.WORKER, json.dumps(watched.worker() | reason))
    lengths = ["--seq-len", "7", "9", "--batch-size", "2"]
    assert main(["--layer", "some", *lengths, *ON_GPU, "--json", str(tmp_path / "r.jsonl")]) == 1
    statuses = {(r.seq_len, r.status) for r in rows_of(tmp_path / "r.jsonl")}
    assert statuses == {(7, "failed: RuntimeError: gave no answer within 60 s"), (9, "timed")}


def test_failed_peaks_leave_no_bound(tmp_path, monkeypatch, capsys):
    def fail(device, dtype):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("headcount.bench.latency.session.measure_peaks", fail)
    assert main([*CPU, "--pass", "forward", "both", "--json", str(tmp_path / "r.jsonl")]) == 0
    assert {(r.status, r.roofline_ms) for r in rows_of(tmp_path / "r.jsonl")} == {("timed", None)}
    assert capsys.readouterr().err.count("no peak rates of float64, so no roofline bounds: out of memory\n") == 1


def make_clock(*values):
    """Return a clock that reads one value after another; an exception is raised."""
    return session.Clock("cuda", Mock(side_effect=values))


def summary_of(clock, blocks):
    for block in range(blocks):
        clock.sample(block)
    return clock.summary()


def test_clock_that_fails_is_not_read_again():
    clock = make_clock(1500, 1800, RuntimeError("GPU is lost"), 1700)
    assert summary_of(clock, 4) == {"sm_clock_mhz": {"min": 1500, "max": 1800}, "slow_blocks": []}
    assert summary_of(clock, 1) is None
    # a driver that reports no clock
    assert summary_of(make_clock(NotImplementedError()), 2) is None
    assert summary_of(session.Clock("cpu"), 2) is None


def test_slow_blocks_are_below_the_run_clock():
    """The second case runs a block at 1500 MHz, below 0.9 of the 1800 MHz of the first case."""
    clock = make_clock(*[1800] * 6, 1500, 1799)
    assert summary_of(clock, 5)["slow_blocks"] == []
    assert summary_of(clock, 3)["slow_blocks"] == [1]
