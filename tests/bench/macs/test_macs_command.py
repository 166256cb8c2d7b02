"""python -m bench.macs: counts, exit codes and imports."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from headcount.bench.counters import base, registry
from headcount.bench.macs.__main__ import main

ROOT = Path(__file__).parents[3]
CLOSED = ["--counter", "closed-form"]


def run(capsys, *argv):
    return main(argv), *capsys.readouterr()


def json_of(capsys, *argv):
    code, out, _ = run(capsys, *argv, "--format", "json")
    assert code == 0
    return json.loads(out)


def test_every_counter_counts_every_row(capsys, monkeypatch):
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


def test_check_fails_on_wrong_prediction(capsys, monkeypatch):
    monkeypatch.setattr(base, "predict", lambda tool, ledger, device: 7)
    argv = ["--preset", "mlm-transformer", "--seq-len", "5", "--counter", "torch"]
    code, out, err = run(capsys, *argv, "--check")
    assert code == 1
    assert re.search(r"mlm-transformer: torch on meta reads [\d,]+, its rules predict 7", err)
    assert "check: 1 disagree" in err and "no: 7" in out
    assert run(capsys, *argv)[0] == 0


def test_closed_form_imports_no_torch():
    program = (
        "import sys; from headcount.bench.macs.__main__ import main; main(['--counter', 'closed-form']); "
        "print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    modules = done.stdout.splitlines()[-1]
    for name in ("torch", "pandas", "sympy", "numpy"):
        assert f"'{name}'" not in modules
