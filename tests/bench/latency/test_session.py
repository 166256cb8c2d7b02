"""Runs: what is printed and stored, and how they go on after whatever ended them."""

import json
import os
import sys

import pytest
import torch

from headcount.bench import records
from headcount.bench.errors import UsageError
from headcount.bench.latency import clock, order, session
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.store import GIVEN_UP, STARTED, Store
from headcount.models.configs.layers import layer
from tests.bench.latency.conftest import PEAKS

SHAPE = ["--seq-len", "7", "--batch-size", "2", "--blocks", "2"]
CPU = ["--layer", "dense", *SHAPE, "--dtype", "float64"]
CELL = "layer some T7 B2 bfloat16 forward cuda balanced"
GPU = ["--layer", "some", *SHAPE, "--device", "cuda", "--pass", "forward"]


@pytest.fixture(autouse=True)
def small(layers, quick, monkeypatch):
    """Small layers, in no time; no peaks to measure."""
    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", lambda device, dtype: PEAKS)
    monkeypatch.delenv(STARTED, raising=False)


class NewProcess(BaseException):
    """Instead of a new process."""


@pytest.fixture
def executed(monkeypatch):
    """The commands that took the place of a process."""
    found = []

    def execv(path, argv):
        found.append(argv)
        raise NewProcess

    monkeypatch.setattr(os, "execv", execv)
    return found


def rows_of(path):
    found, problems = records.read(path)
    assert problems == []
    return [r for r in found if r["kind"] == "latency"]


def test_an_interrupted_run_resumes_by_cell(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    argv = [*CPU, "--pass", "forward", "both", "--json", str(path)]
    measure, calls = clock.measure_cell, []

    def interrupted(cell, peaks, **options):
        calls.append(cell.which)
        if cell.which == "both":
            raise KeyboardInterrupt
        yield from measure(cell, peaks, **options)

    monkeypatch.setattr(clock, "measure_cell", interrupted)
    assert main(argv) == 130
    # Ctrl-C is no fault of the cell: it is never given up for it
    assert main(argv) == main(argv) == 130
    monkeypatch.setattr(
        clock, "measure_cell", lambda cell, peaks, **o: calls.append(cell.which) or measure(cell, peaks, **o)
    )
    assert main(argv) == 0
    assert calls == ["forward", "both", "both", "both", "both"]
    assert [(r["pass"], r["arm"]) for r in rows_of(path)] == [("forward", "dense"), ("both", "dense")]
    assert all(r["environment"]["packages"]["torch"] for r in rows_of(path))
    # torch takes its own kernel for plain attention on a CPU
    assert [(r["implementation_used"], r["backends"]) for r in rows_of(path)] == [("fused", ["flash_attention"])] * 2


def test_a_cell_that_ends_the_process_is_given_up_after_two_times(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    argv = [*CPU, "--pass", "forward", "--json", str(path)]

    def killed(cell, peaks, **options):
        raise NewProcess

    measure = clock.measure_cell
    monkeypatch.setattr(clock, "measure_cell", killed)
    for _ in range(2):
        with pytest.raises(NewProcess):
            main(argv)
    monkeypatch.setattr(clock, "measure_cell", measure)
    assert main(argv) == 1
    assert [r["status"] for r in rows_of(path)] == [GIVEN_UP]
    monkeypatch.setattr(clock, "measure_cell", killed)
    # and is a stored cell like any other from then on
    assert main(argv) == 1


def test_a_wrong_or_failed_arm_makes_the_command_fail(capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("no plan")

    monkeypatch.setattr(clock, "make_run", broken)
    assert main([*CPU, "--pass", "forward"]) == 1
    out, err = capsys.readouterr()
    assert "not timed: failed: RuntimeError: no plan" in out and "dense fused: failed: RuntimeError: no plan" in err


def test_out_dir_and_commit(tmp_path):
    assert main([*CPU, "--pass", "forward", "--out-dir", str(tmp_path / "out"), "--commit", "abc123"]) == 0
    (row,) = rows_of(tmp_path / "out" / "latency.jsonl")
    environ = json.loads((tmp_path / "out" / "env.json").read_text())
    assert row["environment"]["commit"] == environ["commit"] == "abc123" and environ["dirty"] is None
    assert row["environment"] == environ and environ["device_type"] == "cpu"
    assert environ["command"][:3] == ["bench.latency", "--layer", "dense"] and environ["command"][-2:] == [
        "--commit",
        "abc123",
    ]


def test_no_cell_is_begun_that_would_not_finish(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(order, "seconds", lambda cell, blocks: {"forward": 1.0, "both": 1e6}[cell.which])
    argv = [*CPU, "--pass", "both", "forward", "--within", "60", "--json", str(tmp_path / "r.jsonl")]
    assert main(argv) == 0
    assert [r["pass"] for r in rows_of(tmp_path / "r.jsonl")] == ["forward"]
    err = capsys.readouterr().err
    assert "1000000.0 s expected  layer dense T7 B2 float64 both" in err and "1 cells are missing" in err


@pytest.mark.parametrize("within, measured", [(14.0, 2), (18.0, 3)])
def test_what_cells_took_corrects_what_others_are_thought_to_take(within, measured, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(order, "seconds", lambda cell, blocks: 2.0)

    def measure(cell, peaks, **_):
        now[0] += 6.0
        yield {"status": "timed", "arm": "a", "implementation": "b"}

    monkeypatch.setattr(clock, "measure_cell", measure)

    class Columns:
        device, hardware = "cpu", None
        values = notes = staticmethod(lambda record: {})

    class Cell:
        dtype, device, blocks = "float32", "cpu", None

        def __init__(self, key):
            self.key = key

    run = session.Session(Store(None), Columns, {}, blocks=2, within=within, now=lambda: now[0])
    cells = [Cell(str(i)) for i in range(4)]
    assert len(list(run.rows(cells))) == measured
    # 2 s thought, 6 s taken: after 12 s no third within 14 s, and one that fits to the second within 18 s
    assert run.missing == [(cell, "no time left") for cell in cells[measured:]] and run.expected_s(cells[2]) == 6.0


def test_an_error_that_stays_goes_on_in_a_new_process_without_that_arm(tmp_path, cuda, executed, capsys):
    path = tmp_path / "r.jsonl"

    def die(name):
        if name == "nonzero":
            cuda.dead = "an illegal memory access was encountered"
            cuda.check()

    cuda.on_operation = die
    with pytest.raises(NewProcess):
        main([*GPU, "--json", str(path)])
    assert executed == [[sys.executable, *sys.orig_argv[1:]]] and float(os.environ[STARTED]) > 1e9
    said = "failed: AcceleratorError: CUDA error: an illegal memory access was encountered: going on in a new process\n"
    assert capsys.readouterr().err.endswith(f"{CELL}: some loop: {said}")
    # the new process has a device again, and the same fault in the same arm
    cuda.dead = None
    assert main([*GPU, "--json", str(path)]) == 1
    status = {r["implementation"]: r["status"] for r in rows_of(path) if r["role"] == "subject"}
    assert status["loop"].startswith("failed: AcceleratorError") and status["grouped"] == "timed"
    assert len(executed) == 1


def test_without_a_file_a_lost_device_ends_the_run(cuda, executed, capsys):
    def die(name):
        cuda.dead = "unspecified launch failure"
        cuda.check()

    cuda.on_operation = die
    assert main(GPU) == 1
    said = f"{CELL}: some gathered: failed: AcceleratorError: CUDA error: unspecified launch failure"
    assert (
        f": error: {said}; --json PATH lets a run go on in a new process\n" in capsys.readouterr().err and not executed
    )


def test_after_a_failed_capture_the_next_cell_gets_a_new_process(tmp_path, cuda, executed, capsys):
    cuda.capture_error = "operation failed due to a previous error during capture"
    argv = [*GPU, "--seq-len", "7", "9", "--json", str(tmp_path / "r.jsonl")]
    with pytest.raises(NewProcess):
        main(argv)
    rows = rows_of(tmp_path / "r.jsonl")
    assert {r["seq_len"] for r in rows} == {7} and {r["timed_by"] for r in rows} == {"events"}
    assert {r["tax_by"] for r in rows if r["tax"]} == {"wall"}
    assert len(executed) == 1
    assert capsys.readouterr().err.endswith(f"a capture failed ({cuda.capture_error}): going on in a new process\n")


def test_on_a_gpu_everything_is_in_the_table(cuda, capsys):
    assert main([*GPU, "--format", "csv", "--pass", "forward", "decode"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * 7
    assert {"gpu_ms", "timed_by", "estimate_ms"} <= set(lines[0].split(","))


def test_named_hardware_stands_for_measured_peaks(cuda, capsys):
    assert main([*GPU, "--hardware", "h100"]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H100 data sheet" in out and "measured here" not in out


WRONG = {
    "layer": (["--layer", "moa"], "unknown layer 'moa'; choose from some, all"),
    "model": (["--model", "gpt"], "unknown preset 'gpt'; headcount macs --list names all"),
    "arm": (["--layer", "dense", "--arm", "fast"], "mha has no arm fast; choose from reference, fused, auto"),
    "arm, under its old name": (["--layer", "dense", "--implementation", "fast"], "mha has no arm fast"),
    "arm that needs a GPU": (["--layer", "some", "--arm", "triton"], "arm triton needs a CUDA device; choose from"),
    "pass": (["--pass", "sideways"], "invalid choice: 'sideways'"),
    "model pass": (["--model", "transformer-base", "--pass", "decode"], "a model is timed by --pass forward or both"),
    "routing": (["--routing", "random"], "invalid choice: 'random'"),
    "length": (["--seq-len", "0"], "--seq-len must be at least 1, not 0"),
    "tokens": (["--tokens", "0"], "--tokens must be at least 1, not 0"),
    "blocks": (["--blocks", "0"], "--blocks must be at least 1, not 0"),
    "within": (["--within", "0"], "--within must be at least 1, not 0"),
    "no number": (["--within", "nan"], "invalid float value: 'nan'"),
    "endless blocks": (["--blocks", "10001"], "--blocks must be at most 10,000, not 10001"),
    "beyond the machine": (["--threads", str(os.cpu_count() + 1)], f"--threads must be at most {os.cpu_count()}, not"),
    "beyond torch": (["--seq-len", "7", str(2**31)], "--seq-len must be at most 2,147,483,647, not 2147483648"),
    "campaign": (["campaign", "--out-dir", "x", "--blocks", "0"], "--blocks must be at least 1, not 0"),
    "both sizes": (["--tokens", "8", "--batch-size", "2"], "not allowed with argument"),
    "two places": (["--json", "a", "--out-dir", "b"], "not allowed with argument"),
    "dtype": (["--dtype", "int8"], "invalid choice: 'int8'"),
    "hardware that is not here": (["--device", "h200"], "--device h200 is named hardware, which only --estimate takes"),
    "estimate of a CPU": (
        ["--estimate", "--device", "cpu"],
        "named hardware; choose --device h200, h100, a100, not cpu\n",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_and_exit_code_2(case, capsys, monkeypatch):
    if case == "layer":
        for module in ("arms", "cells"):
            monkeypatch.setattr(f"headcount.bench.latency.{module}.layer", layer)
    argv, message = WRONG[case]
    code = main(argv)
    out, err = capsys.readouterr()
    assert code == 2 and out == ""
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize("argv", [[*CPU, "--pass", "forward"], ["gates", "--layer", "dense"]])
def test_a_place_that_cannot_be_written_is_known_before_anything_is_printed(argv, capsys, tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "r.jsonl"
    assert main([*argv, "--json", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and f"error: cannot write {path}: " in err


def test_a_run_with_nothing_left_to_measure_writes_nothing(tmp_path):
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "r.jsonl")
    store.done = {"one": []}
    store.ready(["one"])
    with pytest.raises(UsageError, match="cannot write"):
        store.ready(["one", "two"])


@pytest.mark.parametrize("argv", [["--device", "cuda"], ["gates", "--device", "cuda"], ["campaign", "--out-dir", "x"]])
def test_cuda_without_a_device_exits_3(argv, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(argv) == 3
    err = capsys.readouterr().err
    assert err.startswith("python -m bench.latency") and err.endswith(
        "error: no CUDA device on this machine; --device takes cpu here\n"
    )


def test_list_names_everything(capsys):
    assert main(["--list"]) == 0
    lines = [tuple(line.split(maxsplit=1)) for line in capsys.readouterr().out.splitlines()]
    kinds = ["layers", "models", "arms", "routings", "passes", "dtypes", "hardware"]
    assert list(dict.fromkeys(kind for kind, _ in lines)) == kinds
    assert ("arms", "mha: reference, fused, auto") in lines
    found = {kind: names.split(", ") for kind, names in lines}
    assert "norms" in found["layers"] and "mlm-transformer" in found["models"]
    assert found["routings"] == ["balanced", "paper", "zipf", "one-expert"]
    assert found["passes"] == ["forward", "backward", "both", "decode"]
    assert sorted(found["dtypes"]) == ["bfloat16", "float16", "float32", "float64"]
    assert found["hardware"] == ["h200: NVIDIA H200 SXM", "h100: NVIDIA H100 SXM", "a100: NVIDIA A100 80GB SXM"]
