"""python -m bench.macs as a user meets it: what it prints, its exit codes, its errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headcount.bench import result_cache
from headcount.bench.accounts import ACCOUNTS
from headcount.bench.counters import base, registry
from headcount.bench.macs.__main__ import main
from headcount.bench.render import FORMATS
from headcount.formulas.published import tables
from headcount.models.configs.presets import PRESETS, preset

ROOT = Path(__file__).parents[3]
CLOSED = ["--counter", "closed-form"]


def run(capsys, *argv):
    return main(argv), *capsys.readouterr()


def json_of(capsys, *argv):
    code, out, _ = run(capsys, *argv, "--format", "json")
    assert code == 0
    return json.loads(out)


def test_the_three_tables_are_the_default(capsys):
    code, out, err = run(capsys, *CLOSED)
    assert code == 0
    for name in tables.names("moa"):
        table = tables.load(name)
        assert f"{name}: {table.title}" in out
        for row in table.rows:
            assert re.search(rf"^{re.escape(row.name)} .*{row.verdict}", out, re.MULTILINE)
    assert re.search(r"^\d+\.\d s, peak memory \d+\.\d\d GiB$", err.strip())


def test_the_rule_stands_above_its_table(capsys):
    _, out, _ = run(capsys, *CLOSED, "--table", "moa-table3")
    assert out.index("truncated to whole M") < out.index("Base: 8K8E128D")


def test_every_counter_reads_every_row_of_a_table(capsys):
    code, out, err = run(capsys, "--table", "moa-table2", "--check")
    assert code == 0
    assert "check: every verdict and every count is as stated" in err
    row = next(line for line in out.splitlines() if line.startswith("MoA 8K8E128D"))
    assert len(re.findall(r"6,9\d\d,\d{3},\d{3}", row)) == 1 + len(registry.NAMES)


def test_every_row_of_the_first_table_has_all_counted_columns(capsys, monkeypatch):
    # one processor: no second process, as the command before has
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    counted = {}
    for record in json_of(capsys, "--table", "moa-table1")["tables"][0]["rows"]:
        counted.setdefault(record["row"], {})[record["counter"]] = record["macs"]
        assert record["params"] == record["counted_params"]
    assert len(counted) == 11
    for readings in counted.values():
        assert readings.keys() == {"closed-form", *registry.NAMES}
        assert readings["torch"] == readings["closed-form"] == min(readings.values())


def test_a_row_without_a_module_says_so(capsys, monkeypatch):
    monkeypatch.setattr(type(preset("mae-7").attention), "module", None)
    _, out, _ = run(capsys, "--table", "moa-table1", "--counter", "torch")
    row = next(line for line in out.splitlines() if line.startswith("MAE-7"))
    assert "–" in row and "closed form only: no module to count" in out


def test_check_fails_where_a_verdict_is_not_the_typed_one(capsys, monkeypatch):
    table = tables.load("moa-table3")
    rows = tuple(replace(row, cells={"macs": "629M"}) if row.name.startswith("Base") else row for row in table.rows)
    monkeypatch.setattr(tables, "load", lambda name: replace(table, rows=rows))
    code, out, err = run(capsys, *CLOSED, "--table", "moa-table3", "--check")
    assert code == 1
    assert "moa-table3, Base: 8K8E128D: the verdict is 'unexplained', typed as 'reproduced'" in err
    assert "check: 1 disagree" in err
    assert "628,879,360 prints 628M, not 629M" in out


def test_check_fails_where_a_count_is_not_its_prediction(capsys, monkeypatch):
    monkeypatch.setattr(base, "predict", lambda tool, ledger, device: 7)
    argv = ["--preset", "mlm-transformer", "--seq-len", "5", "--counter", "torch"]
    code, out, err = run(capsys, *argv, "--check")
    assert code == 1
    assert re.search(r"mlm-transformer: torch on meta reads [\d,]+, its rules predict 7", err)
    assert "no: 7" in out
    assert run(capsys, *argv)[0] == 0


def test_json_rows_carry_raw_integers_and_the_ledger(capsys):
    data = json_of(capsys, "--table", "moa-table3", "--counter", "torch")
    assert data["schema_version"] == 1
    rows = next(t for t in data["tables"] if t["name"] == "moa-table3")["rows"]
    assert len(rows) == 2 * len(tables.load("moa-table3").rows)
    for row in rows:
        assert {"preset", "counter", "device", "input", "macs", "params", "active_params", "ledger"} <= row.keys()
        assert sum(entry["macs"] for entry in row["ledger"]) == row["macs"]
        assert sum(entry["params"] for entry in row["ledger"]) == row["params"]
    assert {row["counter"] for row in rows} == {"closed-form", "torch"}


def test_a_preset_prints_its_ledger_with_shares_that_add_up(capsys):
    code, out, _ = run(capsys, "--preset", "moa-8K8E128D", "--set", "top_k=3", "--src-len", "7", *CLOSED)
    assert code == 0
    assert "batch_size 1, src_len 7, tgt_len 10" in out
    data = json_of(capsys, "--preset", "moa-8K8E128D", "--set", "top_k=3", "--src-len", "7", *CLOSED)
    ledger = data["tables"][0]["rows"][0]["ledger"]
    total = next(line for line in out.splitlines() if line.startswith("total "))
    for column in ("macs", "params", "active_params"):
        assert f"{sum(entry[column] for entry in ledger):,}" in total
    assert {"encoder.layers.*.self_attn.router.proj", "output_proj"} <= {entry["path"] for entry in ledger}


def test_seq_len_stands_for_both_lengths_of_a_translation_model(capsys):
    both = json_of(capsys, "--preset", "transformer-base", "--seq-len", "7", *CLOSED)
    apart = json_of(capsys, "--preset", "transformer-base", "--src-len", "7", "--tgt-len", "7", *CLOSED)
    assert both == apart


def test_formats(capsys):
    _, markdown, _ = run(capsys, *CLOSED, "--table", "moa-table2", "--format", "md")
    assert markdown.startswith("## moa-table2") and "| Transformer " in markdown
    _, latex, _ = run(capsys, *CLOSED, "--table", "moa-table2", "--format", "latex")
    assert r"\toprule" in latex and r"\begin{table}" in latex


def test_list_names_everything(capsys):
    code, out, _ = run(capsys, "--list")
    assert code == 0
    for name in (*tables.names(), *registry.NAMES, "moa-16K32E256D", "mlm-transformer", "closed-form"):
        assert name in out
    listed = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert listed["tables"].split(", ") == list(tables.names()) and listed["formats"].split(", ") == list(FORMATS)
    assert listed["presets"].split(", ") == list(PRESETS) and listed["columns"].split(", ") == list(ACCOUNTS)
    assert listed["counters"].split(", ") == ["closed-form", *registry.CHOICES, "all"]


def test_out_writes_the_file_and_leaves_stdout_empty(capsys, tmp_path):
    path = tmp_path / "table.md"
    code, out, _ = run(capsys, *CLOSED, "--table", "moa-table2", "--format", "md", "--out", str(path))
    assert (code, out) == (0, "")
    assert path.read_text().startswith("## moa-table2")
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_half_written_when_a_count_fails(capsys, tmp_path, monkeypatch):
    path = tmp_path / "table.md"
    path.write_text("old")
    argv = ["--table", "moa-table2", "--counter", "torch", "--out", str(path)]
    adapter = registry.counter("torch")

    def fail(model, inputs, *, label):
        raise KeyboardInterrupt

    result_cache.clear_cache()
    monkeypatch.setattr(adapter, "read", fail)
    code, _, err = run(capsys, *argv)
    assert code == 130 and "interrupted" in err
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


WRONG = {
    "top_k over num_experts": (
        ["--preset", "moa-8K8E128D", "--set", "top_k=9"],
        "top_k must lie in 1..num_experts = 1..8, not 9",
    ),
    "top_k zero": (["--preset", "moa-8K8E128D", "--set", "top_k=0"], "top_k must be at least 1, not 0"),
    "length zero": (["--preset", "moa-8K8E128D", "--seq-len", "0"], "error: seq_len must be at least 1, not 0"),
    "too long": (["--preset", "mlm-transformer", "--seq-len", "129"], "max_positions - 2 = 128"),
    "heads": (["--preset", "transformer-base", "--set", "num_heads=7"], "7 does not divide 512"),
    "preset": (
        ["--preset", "moa-8k8e128d"],
        "did you mean moa-8K8E128D, moa-8K32E128D or mlm-moa-8K8E128D? headcount",
    ),
    "field": (["--preset", "moa-8K8E128D", "--set", "num_heads=4"], "unknown field 'num_heads'"),
    "field value": (["--preset", "moa-8K8E128D", "--set", "top_k=two"], "top_k takes a whole number, not 'two'"),
    "field text": (["--preset", "moa-8K8E128D", "--set", "top_k"], "top_k has no value; write top_k=VALUE"),
    "flag value": (["--preset", "moa-8K8E128D", "--set", "bias=1"], "bias takes true or false, not '1'"),
    "counter": (["--counter", "thop"], "invalid choice: 'thop' (choose from"),
    "table": (["--table", "table9"], "invalid choice: 'table9' (choose from"),
    "format": (["--format", "html"], "invalid choice: 'html' (choose from"),
    "device": (["--device", "tpu"], "invalid choice: 'tpu' (choose from"),
    "unknown flag": (["--fast"], "unrecognized arguments: --fast"),
    "option": (["--tabel", "moa-table1"], "unrecognized arguments: --tabel moa-table1; did you mean --table"),
    "table like one": (["--table", "moa-tabel3"], "did you mean moa-table3, "),
    "preset like none": (["--preset", "zzz"], "unknown preset 'zzz'; headcount macs --list names all"),
    "not a number": (["--preset", "transformer-base", "--seq-len", "x"], "invalid int value: 'x'"),
    "length of another model": (["--preset", "mlm-transformer", "--src-len", "7"], "choose from batch_size, seq_len"),
    "length with a table": (["--table", "moa-table1", "--seq-len", "7"], "--seq-len go with --preset"),
    "set without preset": (["--set", "top_k=2"], "--set go with --preset or --compare"),
    "out": (["--out", "/nonexistent/x.md", *CLOSED], "cannot write /nonexistent/x.md: No such file or directory"),
    "grid word": (["--grid", "K=1,x E=8"], "malformed grid word 'K=1,x'"),
    "grid word of two": (["--grid", "K=1=2 E=8"], "malformed grid word 'K=1=2'; write KEY=NUMBER,NUMBER as in 'K=1,2 "),
    "grid number": (["--grid", "K=1 8"], "malformed grid word '8'"),
    "grid key": (["--grid", "Q=1 E=8"], "unknown grid key 'Q'; choose from h, d_h, g, bias or K, E, D"),
    "grid twice": (["--grid", "K=1 K=2"], "grid key 'K' is given twice"),
    "grid value": (["--grid", "K=0 E=8 D=4 T=1"], "grid values must be at least 1, not K=0"),
    "grid mixed": (["--grid", "D=1 g=8 T=3"], "a grid is of MHA (h, d_h, g, bias) or of MoA (K, E, D) or of MAE"),
    "grid mixed, lengths": (["--grid", "D=1 g=8 T=3"], "d_h), with d_m, T, S, B beside them"),
    "grid missing": (["--grid", "K=1 T=3"], "this grid needs E, D: "),
    "grid empty": (["--grid", " "], "an empty grid"),
    "grid unbuildable": (["--grid", "K=9 E=8 D=4 T=1"], "no point of the grid can be built; left out K=9"),
    "grid file": (["--grid", "/nonexistent.toml"], "cannot read /nonexistent.toml: No such file or directory"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_that_names_the_choices_and_exit_code_2(case, capsys):
    argv, message = WRONG[case]
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1 and message in err
    assert err.startswith("python -m bench.macs: error: ")


@pytest.mark.parametrize("argv", [[], ["--compare", "transformer-base", "moa-8K8E128D"]])
def test_cuda_without_a_device_exits_3(argv, capsys, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, err = run(capsys, *argv, "--device", "cuda")
    assert (code, out) == (3, "")
    assert err == "python -m bench.macs: error: no CUDA device on this machine; --device takes cpu or meta here\n"


def test_the_closed_form_imports_no_torch():
    program = (
        "import sys; from headcount.bench.macs.__main__ import main; main(['--counter', 'closed-form']); "
        "print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    modules = done.stdout.splitlines()[-1]
    for name in ("torch", "pandas", "sympy", "numpy"):
        assert f"'{name}'" not in modules


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m bench.macs --counter closed-form | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr


def test_ctrl_c_ends_with_one_line():
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.macs", "--counter", "torch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    # the title comes before torch is imported, a row after it has counted
    for line in process.stdout:
        if line.startswith("Transformer base"):
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err and "interrupted" in err
