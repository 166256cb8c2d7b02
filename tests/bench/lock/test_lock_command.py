"""headcount lock: check the lock of a module, and count with the options that it stores."""

import json
import os
import textwrap
from types import SimpleNamespace

import pytest

from headcount.bench.lock import __main__ as command
from headcount.bench.lock.__main__ import main
from headcount.bench.macs.__main__ import main as macs
from headcount.formulas.ledger import Ledger

pytestmark = pytest.mark.usefixtures("warm")

FACTORY = """
import torch
from torch import nn

def make(width=13):
    layers = [nn.Linear(11, 11, bias=False) for _ in range(3)]
    return nn.Sequential(*layers, nn.Linear(11, width, bias=False)), (torch.zeros(7, 11),)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_changed_layer_is_named_with_both_counts(folder, capsys):
    assert main(["--module", "model.py:make", "-o", "macs.lock"]) == 0
    capsys.readouterr()
    (folder / "model.py").write_text(FACTORY.replace("width=13", "width=17"))
    assert main(["--check", "macs.lock", "--format", "json"]) == 1
    tables = {table["name"]: table["rows"] for table in json.loads(capsys.readouterr().out)["tables"]}
    rows = {(row["quantity"], row["path"] or row["what"]): row for row in tables["lock-changes"]}
    change, equal, total = (rows["MACs", name] for name in ("3", "equal", "total"))
    assert (change["path"], change["what"], change["sizes"]) == ("3", "changed", "m=7 i=11 j=13->17")
    assert (change["locked"], change["counted"], change["difference"]) == (1001, 1309, 308)
    assert (equal["locked"], equal["counted"]) == (3 * 847, 3 * 847)
    assert (total["locked"], total["counted"]) == (3 * 847 + 1001, 3 * 847 + 1309)
    assert rows["params", "3.weight"]["difference"] == 4 * 11
    assert main(["--update", "macs.lock"]) == main(["--check", "macs.lock"]) == 0


def test_update_refuses_other_json(folder, capsys):
    assert macs(["--module", "model.py:make", "-o", "macs.json"]) == 0
    before = (folder / "macs.json").read_text()
    assert main(["--update", "macs.json", "--module", "model.py:make"]) == 2
    assert capsys.readouterr().err.endswith("macs.json is no lock; --module SPEC --out FILE writes one\n")
    assert (folder / "macs.json").read_text() == before


def test_file_that_changes_within_a_second_is_read_again(folder):
    os.utime("model.py", (0, 0))
    assert main(["--module", "model.py:make", "-o", "macs.lock"]) == 0
    (folder / "model.py").write_text(FACTORY.replace("width=13", "width=17"))
    os.utime("model.py", (0, 0))
    assert main(["--check", "macs.lock"]) == 1


def test_options_reach_count_and_lock(folder, monkeypatch):
    counted = []
    options = {"device": "meta", "allow_unsupported": True, "elementwise": "include", "formulas": {"mylib.op": "a0*o"}}
    options |= {"formula_set": "linalg", "inputs": ("1,7", "ids=1,5:long"), "dtype": "bfloat16", "backward": True}
    options["lengths"] = {"seq_len": 11, "images": 2}
    options |= {"plan": "plan.py:apply", "ranks": 4, "rank": 3}

    def count(*what, **how):
        counted.append((*what, how))
        return SimpleNamespace(
            ledger=Ledger(()), elementwise=(), parameters=(), unsupported=[], inputs=(), libraries={}, collectives=(),
            uncalled_modules=lambda: (),
        )  # fmt: skip

    monkeypatch.setattr(command, "count_module", count)
    given = ["--device", "meta", "--allow-unsupported", "--elementwise", "include", "--formula", "mylib.op=a0*o"]
    given += ["--formula-set", "linalg", "--input", "1,7", "--input", "ids=1,5:long", "--dtype", "bfloat16"]
    given += ["--backward", "--seq-len", "11", "--images", "2"]
    given += ["--plan", "plan.py:apply", "--ranks", "4", "--rank", "3"]
    assert main(["--module", "model.py:make", "--set", "n=7", *given, "-o", "macs.lock"]) == 0
    assert main(["--check", "macs.lock"]) == 0
    assert counted == [("model.py:make", {"n": 7}, options)] * 2


def test_module_that_no_longer_runs_is_named(folder, capsys):
    """A norm has no multiply-accumulates: the terms stay, and the parameters too."""
    code = """
    import torch
    from torch import nn
    class Net(nn.Linear):
        def __init__(self):
            super().__init__(7, 3)
            self.norm = nn.LayerNorm(3)
        def forward(self, x):
            return self.norm(super().forward(x))
    """
    words = ["parts.py:Net", "--input", "5,7"]
    (folder / "parts.py").write_text(textwrap.dedent(code))
    assert main([*words, "-o", "parts.lock"]) == 0
    assert json.loads((folder / "parts.lock").read_text())["uncalled"] == []
    (folder / "parts.py").write_text(
        textwrap.dedent(code).replace("self.norm(super().forward(x))", "super().forward(x)")
    )
    capsys.readouterr()
    assert main(["--check", "parts.lock"]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("did not run"))
    assert line.split()[-1] == "norm"


def test_lock_of_class_counts_same_again(folder, capsys):
    """Linear of 7 to 3 on 5 rows, once more for each gradient: 5 * 7 * 3 three times."""
    (folder / "net.py").write_text("from torch import nn\nclass Net(nn.Linear):\n    pass\n")
    words = ["net.py:Net", "--set", "in_features=7", "out_features=3", "bias=false", "--input", "5,7", "--backward"]
    assert main([*words, "-o", "net.lock"]) == 0 and main(["--check", "net.lock"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "net.lock: as locked, 315 MACs and 21 parameters"
    assert main(["--check", "net.lock", "--input", "11,7"]) == 1


def rename_module(lock, spec):
    data = json.loads(lock.read_text())
    lock.write_text(json.dumps({**data, "module": spec}))


def test_lock_runs_a_foreign_plan_only_if_trusted(folder, capsys):
    assert main(["--module", "model.py:make", "-o", "macs.lock"]) == 0
    data = json.loads((folder / "macs.lock").read_text())
    data["options"] |= {"plan": "os:abort", "ranks": 2}
    (folder / "macs.lock").write_text(json.dumps(data))
    capsys.readouterr()
    assert main(["--check", "macs.lock"]) == 2
    assert "os:abort" in (err := capsys.readouterr().err) and "--trust" in err


@pytest.mark.parametrize("spec", ["os:abort", "../outside.py:make", "installed.outside:make", "link.py:make"])
def test_lock_runs_code_outside_its_folder_only_if_trusted(spec, folder, monkeypatch, capsys):
    """The outside code leaves a file where it is run; os.abort would end the process."""
    assert main(["--module", "model.py:make", "-o", "macs.lock"]) == 0
    work = folder / "work"
    work.mkdir()
    (folder / "macs.lock").rename(work / "macs.lock")
    outside = f"from pathlib import Path\nPath({str(folder / 'ran')!r}).touch()\n{FACTORY}"
    (folder / "outside.py").write_text(outside)
    (folder / "elsewhere" / "installed").mkdir(parents=True)
    (folder / "elsewhere" / "installed" / "outside.py").write_text(outside)
    (work / "link.py").symlink_to(folder / "outside.py")
    monkeypatch.syspath_prepend(folder / "elsewhere")
    monkeypatch.chdir(work)
    rename_module(work / "macs.lock", spec)
    for option in ("--check", "--update"):
        capsys.readouterr()
        assert main([option, "macs.lock"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and spec in err and "--trust" in err
    assert not (folder / "ran").exists()
    if spec in ("../outside.py:make", "link.py:make"):
        assert main(["--check", "macs.lock", "--trust"]) == main(["--check", "macs.lock", "--module", spec]) == 0
        assert (folder / "ran").exists()


def test_lock_runs_code_of_its_repository(folder, monkeypatch):
    """A file above the lock's folder, and a package of a source folder that is on sys.path."""
    (folder / ".git").mkdir()
    (folder / "src" / "net").mkdir(parents=True)
    (folder / "src" / "net" / "parts.py").write_text(FACTORY)
    (folder / "locks").mkdir()
    monkeypatch.chdir(folder / "locks")
    monkeypatch.syspath_prepend(folder / "src")
    assert main(["--module", "../model.py:make", "-o", "macs.lock"]) == main(["--check", "macs.lock"]) == 0
    monkeypatch.chdir(folder / "src")
    rename_module(folder / "locks" / "macs.lock", "net.parts:make")
    assert main(["--check", "../locks/macs.lock"]) == 0


@pytest.mark.parametrize("spec", ["model.py:make", "model:make"])
def test_check_keeps_module_of_lock(spec, folder, capsys):
    assert main(["--module", spec, "-o", "macs.lock"]) == 0
    assert main(["--check", "macs.lock", "--format", "text", "-o", "model.py"]) == 2
    assert capsys.readouterr().err.endswith("error: --out model.py is an input of this command\n")
    assert (folder / "model.py").read_text() == FACTORY


def test_limits_of_a_lock_allow_changes_below_them(folder, capsys):
    (folder / "net.py").write_text("from torch import nn\nclass Net(nn.Linear):\n    pass\n")
    words = ["net.py:Net", "--set", "in_features=7", "out_features=3", "bias=false", "--input", "5,7"]
    assert main([*words, "--max", "macs=0.3k", "params=22", "-o", "net.lock"]) == 0
    assert main(["--check", "net.lock"]) == 0
    for batch, code in ((14, 0), (15, 1)):
        capsys.readouterr()
        assert main(["--check", "net.lock", "--input", f"{batch},7", "--format", "json"]) == code
        table = json.loads(capsys.readouterr().out)["tables"][0]
        found = {row["quantity"]: (row["limit"], row["left"]) for row in table["rows"]}
        assert found == {"macs": (300, 300 - batch * 7 * 3), "params": (22, 22 - 7 * 3)}
    assert main(["--check", "net.lock", "--max", "params=20"]) == 1
    assert main(["--update", "net.lock"]) == 0
    assert json.loads((folder / "net.lock").read_text())["limits"] == {"macs": 300, "params": 22}


@pytest.mark.parametrize("limit", ["macs=1.2GB", "mac=1", "macs", "macs=1.5", "params=-1"])
def test_wrong_limits_are_one_line(limit, folder, capsys):
    assert main(["model.py:Net", "--max", limit]) == 2
    assert limit in (err := capsys.readouterr().err) and err.count("\n") == 1
