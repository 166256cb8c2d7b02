"""python -m bench.macs: counts, exit codes and imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.bench.counting import tools
from headcount.bench.macs.__main__ import main

ROOT = Path(__file__).parents[3]


def test_check_fails_on_wrong_prediction(command, monkeypatch):
    monkeypatch.setattr(tools, "predict", lambda tool, ledger, device: 7)
    argv = ["grid", "K=2 E=3 D=5 T=7", "--counter", "torch"]
    code, _, err = command(*argv, "--check")
    assert code == 1
    assert re.search(r"torch on meta reads [\d,]+, its rules predict 7", err)
    assert command(*argv)[0] == 0


NO_TORCH = """
import importlib, sys
sys.modules["torch"] = None
from headcount.bench.macs.__main__ import main

assert main(["--counter", "closed-form"]) == 0
assert not {"pandas", "sympy", "numpy"} & sys.modules.keys()
from headcount.formulas.published import tables

small = [name for name in tables.figure_names() if len(tables.load(name).rows) < 10]
assert main(["--table", *small]) == 0
from headcount.__main__ import COMMANDS
from headcount.__main__ import main as headcount

assert headcount(["count", "llama3-8b", "llm-s", "--counter", "closed-form", "--columns", "kv_bytes"]) == 0
assert headcount(["grid", "K=2 E=3 D=5 T=7", "--counter", "closed-form"]) == 0
from headcount.bench.latency.__main__ import SUBCOMMANDS

modules = [f"bench.latency.{name}" for name in SUBCOMMANDS] + [module for module, _ in COMMANDS.values()]
for name in modules:
    importlib.import_module(f"headcount.{name}").parser("x count")
import headcount.bench.lock.pytest_plugin
"""


def test_closed_forms_parsers_and_plugin_need_no_torch():
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words, instead", [
    (["--grid", "K=1 E=2"], "headcount grid SPEC"), (["--preset", "llama3-8b"], "headcount count PRESET"),
    *(([name], f"is a model and no table; headcount count {name} counts it") for name in (
        "llama3-8b", "moa:K=2,E=3,D=5,d_m=7,T=11", "model.py:make", "config.json", "hf:name",
    )),
])  # fmt: skip
def test_former_options_name_their_command(words, instead, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and instead in err and err.count("\n") == 1
