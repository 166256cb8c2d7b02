"""python -m bench.macs: counts, exit codes and imports."""

import re
import subprocess
import sys
from pathlib import Path

from headcount.bench.counters import base

ROOT = Path(__file__).parents[3]


def test_check_fails_on_wrong_prediction(macs, monkeypatch):
    monkeypatch.setattr(base, "predict", lambda tool, ledger, device: 7)
    argv = ["--preset", "mlm-transformer", "--seq-len", "5", "--counter", "torch"]
    code, out, err = macs(*argv, "--check")
    assert code == 1
    assert re.search(r"mlm-transformer: torch on meta reads [\d,]+, its rules predict 7", err)
    assert "unexplained" in out
    assert macs(*argv)[0] == 0


NO_TORCH = """
import importlib, sys
sys.modules["torch"] = None
from headcount.bench.macs.__main__ import main

assert main(["--counter", "closed-form"]) == 0
assert not {"pandas", "sympy", "numpy"} & sys.modules.keys()
from headcount.formulas.published import tables

assert main(["--table", *tables.figure_names()]) == 0
from headcount.__main__ import COMMANDS
from headcount.bench.latency.__main__ import SUBCOMMANDS

modules = [f"bench.latency.{name}" for name in SUBCOMMANDS] + [module for module, _ in COMMANDS.values()]
for name in modules:
    importlib.import_module(f"headcount.{name}").parser("x count")
import headcount.bench.lock.pytest_plugin
"""


def test_closed_forms_parsers_and_plugin_need_no_torch():
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_table_lists_what_macs_lists(macs):
    code, out, err = macs("--list", verb="table")
    assert (code, out) == (0, macs("--list")[1]) and "moa-table1" in out and err == ""
