"""Sessions: finished cases are stored and skipped, the time limit holds, and a lost device starts a new process."""

import json
import os
import re
import sys

import pytest
import torch

from headcount.bench import records
from headcount.bench.latency import measure, schedule, session, timing_cases
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.table import Columns
from headcount.models.configs.layers import layer
from tests.bench.latency.conftest import PEAKS

SHAPE = ["--seq-len", "7", "--batch-size", "2", "--blocks", "2"]
CPU = ["--layer", "dense", *SHAPE, "--dtype", "float64"]
CASE = "layer some T7 B2 bfloat16 forward cuda balanced"
GPU = ["--layer", "some", *SHAPE, "--device", "cuda", "--pass", "forward"]


@pytest.fixture(autouse=True)
def small(layers, quick, monkeypatch):
    """Small layers and short blocks; no peaks are measured."""
    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", lambda device, dtype: PEAKS)
    monkeypatch.delenv(session.STARTED, raising=False)


class NewProcess(BaseException):
    """Raised instead of starting a new process."""


@pytest.fixture
def executed(monkeypatch):
    """The commands that replaced the process."""
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


def test_interrupted_run_skips_finished_cases(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    argv = [*CPU, "--pass", "forward", "both", "--json", str(path)]
    plain, calls = measure.measure_case, []

    def interrupted(case, peaks, **options):
        calls.append(case.which)
        if case.which == "both" and len(calls) < 4:
            raise KeyboardInterrupt
        yield from plain(case, peaks, **options)

    monkeypatch.setattr(measure, "measure_case", interrupted)
    assert [main(argv) for _ in range(3)] == [130, 130, 0]
    assert calls == ["forward", "both", "both", "both"]
    assert [(r["pass"], r["layer"], r["implementation_used"]) for r in rows_of(path)] == [
        ("forward", "dense", "fused"), ("both", "dense", "fused"),
    ]  # fmt: skip
    assert all(r["environment"]["packages"]["torch"] and r["backends"] for r in rows_of(path))
    before = path.read_bytes()
    assert main(argv) == 0 and path.read_bytes() == before


def stored(layer, time="9:00", of=2, cell="layer moa T7", key="layer"):
    path = min(records.shipped().glob("*/*.jsonl"))
    whole = json.loads(path.read_text().splitlines()[0])
    whole.pop("arm")
    return whole | {"cell": cell, key: layer, "arms_in_cell": of, "environment": whole["environment"] | {"time": time}}


@pytest.mark.parametrize(
    "rows, time",
    [
        ([("a", "9:00"), ("b", "9:00")], "9:00"),
        ([("a", "9:00")], None),
        ([("a", "9:00"), ("b", "10:00")], None),
        ([("a", "9:00"), ("b", "9:00"), ("a", "10:00"), ("b", "10:00")], "10:00"),
        ([("a", "9:00"), ("b", "9:00"), ("a", "10:00")], "9:00"),
        ([("a", "9:00"), ("a", "9:00")], None),
        ([("a", "9:00"), ("a", "9:00"), ("b", "9:00")], "9:00"),
    ],
    ids=["whole", "half", "two halves", "newest", "newest half", "same row twice", "two writers"],
)
@pytest.mark.parametrize("key", ["layer", "arm"])
def test_newest_whole_run_of_a_case_is_finished(rows, time, key, tmp_path):
    records.append(tmp_path / "r.jsonl", *(stored(*row, key=key) for row in rows), stored("a", of=1, cell="other"))
    done, broken = session.read_finished(tmp_path / "r.jsonl")
    assert done.keys() == {"other"} | ({"layer moa T7"} if time else set()) and broken == {}
    assert [(r["layer"], r["environment"]["time"]) for r in done.get("layer moa T7", [])] == (
        [("a", time), ("b", time)] if time else []
    )


def test_records_without_number_of_rows_are_not_finished(tmp_path):
    old = stored("a")
    del old["arms_in_cell"]
    records.append(tmp_path / "r.jsonl", old)
    assert session.read_finished(tmp_path / "r.jsonl") == ({}, {})


def test_corrupt_line_is_reported_on_stderr(tmp_path, capsys):
    (tmp_path / "r.jsonl").write_text("{\n")
    assert session.read_finished(tmp_path / "r.jsonl") == ({}, {})
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"{tmp_path / 'r.jsonl'}:1: not JSON") and err.count("\n") == 1


def test_failed_implementation_is_exit_code_1(capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("no plan")

    monkeypatch.setattr(measure, "make_run", broken)
    assert main([*CPU, "--pass", "forward"]) == 1
    out, err = capsys.readouterr()
    assert "not timed: failed: RuntimeError: no plan" in out and "dense fused: failed: RuntimeError: no plan" in err


def test_error_of_a_whole_case_is_status_of_each_row(monkeypatch, tmp_path):
    def none(device, dtype):
        raise ValueError("no clock")

    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", none)
    argv = [*CPU, "--pass", "forward", "--layer", "some", "--implementation", "loop"]
    assert main([*argv, "--json", str(tmp_path / "r.jsonl")]) == 1
    found = [(one["layer"], one["status"], one["peaks"]["how"]) for one in rows_of(tmp_path / "r.jsonl")]
    layers = ("some", "mqa-2x16", "mha-1x64", "mha-2x16")
    assert found == [(name, "failed: ValueError: no clock", "not measured") for name in layers]


def test_out_dir_holds_records_and_environment(tmp_path):
    assert main([*CPU, "--pass", "forward", "--out-dir", str(tmp_path / "out"), "--commit", "abc123"]) == 0
    (row,) = rows_of(tmp_path / "out" / "latency.jsonl")
    environ = json.loads((tmp_path / "out" / "env.json").read_text())
    assert row["environment"] == environ and environ["commit"] == "abc123" and environ["dirty"] is None
    assert environ["command"][:3] == ["bench.latency", "--layer", "dense"]


def test_record_goes_to_file_of_device_day_and_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "writable", lambda: tmp_path)
    assert main([*CPU, "--pass", "forward", "--record", "--commit", "abc123"]) == 0
    (path,) = tmp_path.glob("*/*.jsonl")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d-abc123\.jsonl", path.name)
    (row,) = rows_of(path)
    assert path.parent.name == records.slug(row["environment"]["device"])


@pytest.mark.parametrize("within, measured", [(14.0, 2), (18.0, 3)])
@pytest.mark.parametrize("listed", [2.0, None])
def test_no_case_begins_that_would_not_finish(within, measured, listed, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(schedule, "expected_s", lambda case: listed)

    def measure_case(case, peaks, **_):
        now[0] += 6.0
        yield {"status": "timed", "layer": "a", "implementation": "b"}

    monkeypatch.setattr(measure, "measure_case", measure_case)
    monkeypatch.setattr(Columns, "values", lambda self, record: {})
    monkeypatch.setattr(Columns, "notes", lambda self, record: [])
    run = session.Session(None, Columns("cpu"), {}, blocks=2, within=within, now=lambda: now[0])
    shape = dict(batch_size=1, dtype="float32", which="forward", device="cpu", routing="balanced")
    cases = [timing_cases.TimingCase("layer", "dense", 2 + i, **shape) for i in range(4)]
    assert len(list(run.rows(cases))) == measured
    # listed with 2 s or not listed, each took 6 s: after 12 s no third one fits into 14 s
    assert run.missing == cases[measured:] and run.expected_s(cases[2]) == 6.0
    assert run.remark() == {2: "; 2 cases missing: no time left", 3: "; 1 case missing: no time left"}[measured]


def test_lost_device_restarts_without_the_implementation(tmp_path, cuda, executed, capsys):
    path = tmp_path / "r.jsonl"

    def die(name):
        if name == "nonzero":
            cuda.dead = "an illegal memory access was encountered"
            cuda.check()

    cuda.on_operation = die
    with pytest.raises(NewProcess):
        main([*GPU, "--json", str(path)])
    assert executed == [[sys.executable, *sys.orig_argv[1:]]] and float(os.environ[session.STARTED]) > 1e9
    status = "failed: AcceleratorError: CUDA error: an illegal memory access was encountered"
    assert capsys.readouterr().err.endswith(f"{CASE}: some loop: {status}: continuing in a new process\n")
    # the new process has a device again, and the loop would break it again
    cuda.dead = None
    assert main([*GPU, "--json", str(path)]) == 1
    found = {r["implementation"]: r["status"] for r in rows_of(path) if r["role"] == "subject"}
    assert found["loop"] == status and found["grouped"] == "timed" and len(executed) == 1


def test_lost_device_without_a_file_ends_the_run(cuda, executed, capsys):
    def die(name):
        cuda.dead = "unspecified launch failure"
        cuda.check()

    cuda.on_operation = die
    assert main(GPU) == 1
    status = f"{CASE}: some gathered: failed: AcceleratorError: CUDA error: unspecified launch failure"
    assert f": error: {status}; with --json PATH" in capsys.readouterr().err and not executed


def test_failed_capture_restarts_before_the_next_case(tmp_path, cuda, executed, capsys):
    cuda.capture_error = "operation failed due to a previous error during capture"
    with pytest.raises(NewProcess):
        main([*GPU, "--seq-len", "7", "9", "--json", str(tmp_path / "r.jsonl")])
    rows = rows_of(tmp_path / "r.jsonl")
    assert {r["seq_len"] for r in rows} == {7} and {r["timed_by"] for r in rows} == {"events"}
    assert {r["tax_by"] for r in rows if r["tax"]} == {"wall"} and len(executed) == 1
    assert capsys.readouterr().err.endswith(f"a capture failed ({cuda.capture_error}): continuing in a new process\n")


def test_gpu_table_has_gpu_columns(cuda, capsys):
    assert main([*GPU, "--format", "csv", "--pass", "forward", "decode"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * 7 and {"gpu_ms", "timed_by", "estimate_ms"} <= set(lines[0].split(","))


def test_data_sheet_replaces_measured_peaks(cuda, capsys):
    assert main([*GPU, "--hardware", "h100"]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H100 data sheet" in out and "measured here" not in out


def test_few_blocks_are_a_smoke_test_on_a_cpu(capsys):
    assert main([*CPU, "--pass", "forward"]) == 0
    out = capsys.readouterr().out
    assert "CPU wall time on" in out and "2 blocks: a smoke test" in out and "CUDA is not measured here" in out


WRONG = {
    "layer": (["--layer", "moa"], "unknown layer 'moa'; choose from some, all"),
    "model": (["--model", "gpt"], "unknown preset 'gpt'"),
    "impl": (["--layer", "dense", "--implementation", "fast"], "mha has no implementation fast; choose from reference"),
    "impl, old name": (["--layer", "dense", "--arm", "fast"], "mha has no implementation fast"),
    "impl for a GPU": (["--layer", "some", "--arm", "triton"], "implementation triton needs a CUDA device"),
    "pass": (["--pass", "sideways"], "invalid choice: 'sideways'"),
    "model pass": (["--model", "transformer-base", "--pass", "decode"], "a model is timed by --pass forward or both"),
    "routing": (["--routing", "random"], "invalid choice: 'random'"),
    "length": (["--seq-len", "0"], "--seq-len must be at least 1, not 0"),
    "tokens": (["--tokens", "0"], "--tokens must be at least 1, not 0"),
    "blocks": (["--blocks", "0"], "--blocks must be at least 1, not 0"),
    "within": (["--within", "0"], "--within must be at least 1, not 0"),
    "no number": (["--within", "nan"], "invalid float value: 'nan'"),
    "too many blocks": (["--blocks", "10001"], "--blocks must be at most 10,000, not 10001"),
    "threads": (["--threads", str(os.cpu_count() + 1)], f"--threads must be at most {os.cpu_count()}, not"),
    "too long": (["--seq-len", "7", str(2**31)], "--seq-len must be at most 2,147,483,647, not 2147483648"),
    "campaign": (["campaign", "--out-dir", "x", "--blocks", "0"], "--blocks must be at least 1, not 0"),
    "campaign within": (["campaign", "--out-dir", "x", "--within", "-1"], "--within must be at least 0, not -1"),
    "campaign place": (["campaign"], "required: --out-dir"),
    "both sizes": (["--tokens", "8", "--batch-size", "2"], "not allowed with argument"),
    "two places": (["--json", "a", "--out-dir", "b"], "not allowed with argument"),
    "dtype": (["--dtype", "int8"], "invalid choice: 'int8'"),
    "named hardware": (["--device", "h200"], "--device h200 is named hardware, which only --estimate takes"),
    "estimate of a CPU": (["--estimate", "--device", "cpu"], "choose --device h200, h100, a100, not cpu"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_and_exit_code_2(case, capsys, monkeypatch):
    if case == "layer":
        for module in ("implementations", "timing_cases"):
            monkeypatch.setattr(f"headcount.bench.latency.{module}.layer", layer)
    argv, message = WRONG[case]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


@pytest.mark.parametrize("argv", [[*CPU, "--pass", "forward"], ["gates", "--layer", "dense"]])
def test_unwritable_file_is_reported_before_measuring(argv, capsys, tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "r.jsonl"
    assert main([*argv, "--json", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and f"error: cannot write {path}: " in err


@pytest.mark.parametrize("argv", [["--device", "cuda"], ["gates", "--device", "cuda"], ["campaign", "--out-dir", "x"]])
def test_cuda_without_a_device_is_exit_code_3(argv, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(argv) == 3
    assert "no CUDA device on this machine; --device takes cpu here\n" in capsys.readouterr().err


def test_list_names_everything(capsys):
    assert main(["--list"]) == 0
    lines = [tuple(line.split(maxsplit=1)) for line in capsys.readouterr().out.splitlines()]
    kinds = ["layers", "models", "implementations", "routings", "passes", "dtypes", "hardware"]
    assert list(dict.fromkeys(kind for kind, _ in lines)) == kinds
    assert ("implementations", "mha: reference, fused, auto") in lines
    found = {kind: names.split(", ") for kind, names in lines}
    assert "norms" in found["layers"] and "mlm-transformer" in found["models"]
    assert found["routings"] == ["balanced", "paper", "zipf", "one-expert"]
    assert found["passes"] == ["forward", "backward", "both", "decode"]
    assert sorted(found["dtypes"]) == ["bfloat16", "float16", "float32", "float64"]
    assert found["hardware"] == ["h200: NVIDIA H200 SXM", "h100: NVIDIA H100 SXM", "a100: NVIDIA A100 80GB SXM"]


def test_help_states_no_time_limit(capsys):
    for argv in (["--help"], ["campaign", "--help"]):
        with pytest.raises(SystemExit) as raised:
            main(argv)
        assert raised.value.code == 0 and "580" not in capsys.readouterr().out
