"""headcount lock: write, check and update the lock of a module."""

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

import headcount
from headcount.bench.isolated import run as isolated
from headcount.bench.lock import __main__ as command
from headcount.bench.lock.__main__ import main
from headcount.formulas.ledger import Ledger

ROOT = Path(headcount.__file__).parents[1]
pytestmark = pytest.mark.usefixtures("warm")

FACTORY = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(11, 11, bias=False) for _ in range(layers))
        self.out = nn.Linear(11, width, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)

def make(width=13, layers=3, n=7):
    return Net(width, layers), (torch.zeros(n, 11),)

class Unknown(nn.Module):
    def forward(self, x): return torch.fft.rfft(x).real

def unknown(): return Unknown(), (torch.zeros(7, 11),)

def hostile():
    net = nn.Sequential()
    net.add_module("@everyone|<img src=x>`*_[x](y)\\n#1", nn.Linear(11, 13, bias=False))
    return net, (torch.zeros(7, 11),)
"""
MACS = 3 * 7 * 11 * 11 + 7 * 11 * 13
PARAMS = 3 * 11 * 11 + 11 * 13


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def written(tmp_path_factory, warm_process):
    """The lock of that model, and what was said of it."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "model.py").write_text(FACTORY)
    argv = ["--module", "model.py:make", "--set", "layers=3", "-o", "macs.lock"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said:
        patch.setattr(isolated, "_run", warm_process)
        patch.chdir(folder)
        assert main(argv) == 0
    return (folder / "macs.lock").read_bytes(), said.getvalue()


@pytest.fixture
def locked(folder, written):
    """A folder with a model and its lock."""
    (folder / "macs.lock").write_bytes(written[0])
    return folder


def rows(out):
    return {table["name"]: table["rows"] for table in json.loads(out)["tables"]}


def test_equal_cost_exits_0(locked, capsys):
    before = (locked / "macs.lock").read_bytes()
    assert json.loads(before)["macs"] == MACS and json.loads(before)["settings"] == {"layers": 3}
    assert json.loads(before)["versions"]["headcount"] == headcount.__version__
    assert main(["--check", "macs.lock", "--out", "said.txt"]) == 0
    assert capsys.readouterr() == (f"macs.lock: as locked, {MACS:,} MACs and {PARAMS:,} parameters\n", "")
    assert (locked / "said.txt").read_text() == f"macs.lock: as locked, {MACS:,} MACs and {PARAMS:,} parameters\n"
    assert main(["--update", "macs.lock"]) == 0
    assert (locked / "macs.lock").read_bytes() == before


def test_changed_layer_is_named_with_both_counts(locked, capsys):
    (locked / "model.py").write_text(FACTORY.replace("self.out = nn.Linear(11, width", "self.out = nn.Linear(11, 17"))
    assert main(["--check", "macs.lock", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    change, equal, total = rows(out)["lock-terms"]
    assert (change["path"], change["what"], change["sizes"]) == ("out", "changed", "m=7 i=11 j=13->17")
    assert (change["locked_macs"], change["counted_macs"], change["difference"]) == (1001, 1309, 308)
    assert (equal["locked_macs"], equal["counted_macs"]) == (3 * 847, 3 * 847)
    assert (total["locked_macs"], total["counted_macs"], total["difference"]) == (MACS, MACS + 308, 308)
    assert rows(out)["lock-params"][0]["path"] == "out.weight"
    said = (
        f"macs.lock: {MACS:,} -> {MACS + 308:,} (+308) MACs (1 changed), {PARAMS:,} -> {PARAMS + 44:,} (+44) parameters"
    )
    assert said in err
    # written anew, it holds
    assert main(["--update", "macs.lock"]) == main(["--check", "macs.lock"]) == 0


def test_options_override_the_lock(locked, capsys):
    (locked / "other.py").write_text(FACTORY)
    assert main(["--check", "macs.lock", "--module", "other.py:make", "--set", "layers=2", "n=5"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^layers\.2 +linear +removed +m=7 i=11 j=11 +847 +0 +-847$", out, re.MULTILINE)
    assert re.search(r"^layers\.0-1 +linear +changed +2 x m=7->5 i=11 j=11 +1,694 +1,210 +-484$", out, re.MULTILINE)
    assert re.search(r"^module +model\.py:make +other\.py:make$", out, re.MULTILINE)
    assert re.search(r"^input +0: 7x11 float32 +0: 5x11 float32$", out, re.MULTILINE)


def test_module_names_are_escaped_in_markdown(locked, capsys):
    saved = json.loads((locked / "macs.lock").read_text())
    (locked / "macs.lock").write_text(json.dumps({**saved, "module": "model.py:hostile", "settings": {}}))
    assert main(["--check", "macs.lock", "--format", "md"]) == 1
    out = capsys.readouterr().out
    assert "| `layers.0-2` | linear | removed |" in re.sub(" +", " ", out)
    (line,) = (line for line in out.splitlines() if "everyone" in line and "weight" not in line)
    name, *_ = re.findall(r"<code>(.*?)</code>", line)
    assert re.fullmatch(r"(\w|&#\d+;| )+", name)
    assert not re.search(r"@everyone|<img|\[x\]", out)
    assert all(line.count("|") == 8 for line in out.splitlines() if "everyone" in line)


def test_unsupported_operations_raise_or_are_locked(folder, capsys):
    assert main(["--module", "model.py:unknown", "-o", "macs.lock"]) == 1
    assert "_fft_r2c" in capsys.readouterr().err and not (folder / "macs.lock").exists()
    assert main(["--module", "model.py:unknown", "--allow-uncounted", "-o", "macs.lock"]) == 0
    capsys.readouterr()
    assert main(["--check", "macs.lock", "--formula", "_fft_r2c=a0*11"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^\(model\) +contraction +added +i=77 +0 +77 +\+77$", out, re.MULTILINE)
    assert re.search(r"^uncounted +_fft_r2c on 7x11 ", out, re.MULTILINE)


def test_options_reach_count_and_lock(folder, capsys, monkeypatch):
    counted, devices = [], []
    options = {"device": "cuda", "allow_uncounted": True, "elementwise": "include", "formulas": {"mylib.op": "a0*o"}}

    def count(*what, **how):
        counted.append((*what, how))
        return SimpleNamespace(ledger=Ledger(()), elementwise=(), parameters=(), unsupported=[], inputs=())

    monkeypatch.setattr(command, "count_module", count)
    monkeypatch.setattr(command, "check_device", devices.append)
    given = ["--device", "cuda", "--allow-uncounted", "--elementwise", "include", "--formula", "mylib.op=a0*o"]
    assert main(["--module", "model.py:make", "--set", "n=7", *given, "-o", "macs.lock"]) == 0
    lock = json.loads((folder / "macs.lock").read_text())
    assert (lock["module"], lock["settings"], lock["options"]) == ("model.py:make", {"n": 7}, options)
    # what was given once is remembered
    assert main(["--check", "macs.lock"]) == 0
    assert counted == [("model.py:make", {"n": 7}, options)] * 2 and devices == ["cuda"] * 2
