"""headcount lock: check the lock of a module, and count with the options that it stores."""

import json
import os

import pytest

from headcount.bench.commands.count import main as count
from headcount.bench.counting.result import Count
from headcount.bench.lock import __main__ as command
from headcount.bench.lock.__main__ import main
from headcount.formulas.ledger import Ledger

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


def test_file_with_the_same_time_is_read_again(folder):
    os.utime("model.py", (0, 0))
    assert main(["model.py:make", "-o", "macs.lock"]) == 0
    (folder / "model.py").write_text(FACTORY.replace("width=13", "width=17"))
    os.utime("model.py", (0, 0))
    assert main(["--check", "macs.lock"]) == 1


def test_options_reach_count_and_lock(folder, monkeypatch):
    counted = []
    options = {"device": "meta", "allow_unsupported": True, "elementwise": "include", "formulas": {"mylib.op": "a0*o"}}
    options |= {"formula_set": "linalg", "inputs": ("1,7", "ids=1,5:long"), "dtype": "bfloat16", "backward": True}
    options |= {"training": True, "lengths": {"seq_len": 11, "images": 2}}
    options |= {"plan": "plan.py:apply", "ranks": 4, "rank": 3}

    def count(target, roots):
        counted.append((target.spec, target.settings, target.options(), roots))
        return Count("Net", Ledger(()), target)

    monkeypatch.setattr(command, "count", count)
    given = ["--device", "meta", "--allow-unsupported", "--elementwise", "include", "--formula", "mylib.op=a0*o"]
    given += ["--formula-set", "linalg", "--input", "1,7", "--input", "ids=1,5:long", "--dtype", "bfloat16"]
    given += ["--backward", "--training", "--seq-len", "11", "--images", "2"]
    given += ["--plan", "plan.py:apply", "--ranks", "4", "--rank", "3"]
    assert main(["model.py:make", "--set", "n=7", *given, "-o", "macs.lock"]) == 0
    assert main(["--check", "macs.lock"]) == 0
    code = ("model.py:make", "plan.py:apply")
    assert counted == [("model.py:make", {"n": 7}, options, roots) for roots in ({}, dict.fromkeys(code, str(folder)))]


def edit_target(lock, **fields):
    """Write other fields of the target into a lock of one."""
    data = json.loads(lock.read_text())
    data["targets"][0]["target"] |= fields
    lock.write_text(json.dumps(data))


IMPORTS = "from os import system\nfrom functools import partial\nfrom torch.nn import Linear\nalias = system\n"
FOREIGN = {
    "function of Python": {"spec": "os:abort"},
    "plan": {"plan": "os:abort", "ranks": 2},
    "file above": {"spec": "../outside.py:make"},
    "installed package": {"spec": "installed.outside:make"},
    "link to a file": {"spec": "link.py:make"},
    "imported function": {"spec": "model.py:system"},
    "imported class": {"spec": "model.py:Linear"},
    "other name of a function": {"spec": "model.py:alias"},
    "partial of a function": {"spec": "model.py:shell"},
}
"""Code that is not defined in a file of the lock's folder. It creates a file, or ends the process, when it runs."""


@pytest.mark.parametrize("where", FOREIGN)
def test_code_outside_the_folder_needs_trust(where, folder, monkeypatch, capsys):
    assert main(["model.py:make", "-o", "macs.lock"]) == 0
    work = folder / "work"
    work.mkdir()
    (folder / "macs.lock").rename(work / "macs.lock")
    outside = f"from pathlib import Path\nPath({str(folder / 'ran')!r}).touch()\n{FACTORY}"
    (folder / "outside.py").write_text(outside)
    (folder / "elsewhere" / "installed").mkdir(parents=True)
    (folder / "elsewhere" / "installed" / "outside.py").write_text(outside)
    (work / "link.py").symlink_to(folder / "outside.py")
    (work / "model.py").write_text(f"{IMPORTS}shell = partial(system, 'touch ../ran')\n{FACTORY}")
    monkeypatch.syspath_prepend(folder / "elsewhere")
    monkeypatch.chdir(work)
    edit_target(work / "macs.lock", **FOREIGN[where])
    code = FOREIGN[where].get("plan") or FOREIGN[where]["spec"]
    for option in ("--check", "--update"):
        capsys.readouterr()
        assert main([option, "macs.lock"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and code in err and "--trust" in err
    assert not (folder / "ran").exists()
    if where in ("file above", "link to a file"):
        assert main(["--check", "macs.lock", "--trust"]) == main(["--check", "macs.lock", code]) == 0
        assert (folder / "ran").exists()


def test_lock_runs_code_of_its_repository(folder, monkeypatch):
    """The code may be in a folder above the lock, or in a package of a source folder on sys.path."""
    (folder / ".git").mkdir()
    (folder / "src" / "net").mkdir(parents=True)
    (folder / "src" / "net" / "parts.py").write_text(FACTORY)
    (folder / "locks").mkdir()
    monkeypatch.chdir(folder / "locks")
    monkeypatch.syspath_prepend(folder / "src")
    assert main(["../model.py:make", "-o", "macs.lock"]) == main(["--check", "macs.lock"]) == 0
    monkeypatch.chdir(folder / "src")
    edit_target(folder / "locks" / "macs.lock", spec="net.parts:make")
    assert main(["--check", "../locks/macs.lock"]) == 0


def test_input_of_the_command_is_kept(folder, capsys):
    assert main(["model:make", "-o", "macs.lock"]) == count(["model.py:make", "-o", "macs.json"]) == 0
    before = (folder / "macs.json").read_text()
    for words, error in (
        (["--check", "macs.lock", "--format", "text", "-o", "model.py"], "--out model.py is an input of this command"),
        (["--update", "macs.json", "model.py:make"], "macs.json is no lock; TARGET --out FILE writes one"),
    ):
        assert main(words) == 2 and capsys.readouterr().err.endswith(f"{error}\n")
    assert (folder / "model.py").read_text() == FACTORY and (folder / "macs.json").read_text() == before


def test_function_imported_from_the_repository_is_run(folder):
    """A decorator of another package does not make a function foreign."""
    decorated = FACTORY.replace("def make", "@torch.no_grad()\ndef make")
    (folder / "parts.py").write_text(decorated)
    (folder / "model.py").write_text("from parts import make")
    assert main(["model.py:make", "-o", "macs.lock"]) == main(["--check", "macs.lock"]) == 0


NET = ["net.py:Net", "--set=in_features=7", "--set=out_features=3", "--set=bias=false", "--input", "5,7"]
"""Linear of 7 to 3 on 5 rows: 105 MACs and 21 parameters."""


@pytest.fixture
def net(folder):
    (folder / "net.py").write_text("from torch import nn, fft\nclass Net(nn.Linear):\n    pass\n")
    return folder


def test_options_replace_those_of_the_same_name(net):
    formula = ["--formula", "mylib.a=a"]
    assert main([*NET, *formula, "-o", "net.lock"]) == 0
    assert main(["--update", "net.lock", "--set", "out_features=5", "--formula", "mylib.b=b"]) == 0
    (found,) = json.loads((net / "net.lock").read_text())["targets"]
    assert found["target"]["settings"] == {"in_features": 7, "out_features": 5, "bias": False}
    assert found["macs"] == 5 * 7 * 5
    assert found["target"]["formulas"] == {"mylib.a": "a", "mylib.b": "b"}


def test_update_prints_the_change(net, capsys):
    """Of the target that is counted again, what --check would say, and nothing of the others."""
    assert main([*NET, "-o", "net.lock"]) == 0
    capsys.readouterr()
    assert main(["--update", "net.lock"]) == 0
    assert capsys.readouterr().out.endswith("tensor; as before\n")
    # 5 outputs for 3: two thirds more of both
    assert main(["--check", "net.lock", "--set", "out_features=5"]) == 1
    title = capsys.readouterr().out.splitlines()[0]
    assert title == "Cost changed: +66.7 % MACs, +66.7 % parameters"
    assert main(["--update", "net.lock", "--set", "out_features=5"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f". {title}")
    assert main(["moa:K=2,E=5,D=7,d_m=11,T=13", "mha:h=2,d_h=7,d_m=11,T=13", "-o", "two.lock"]) == 0
    capsys.readouterr()
    label = "mha:d_model=11,head_dim=7,num_heads=2,seq_len=13"
    assert main(["--update", "two.lock", label, "--seq-len", "17"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "Cost changed" not in first and "before" not in first and ". Cost changed: +" in second


def limits(path):
    return json.loads(path.read_text())["targets"][0]["limits"]


def test_limits_of_a_lock_allow_changes_below_them(net, capsys):
    assert main([*NET, "--max", "macs=0.3k", "--max", "params=22", "-o", "net.lock"]) == 0
    assert main(["--check", "net.lock"]) == 0
    for batch, code in ((14, 0), (15, 1)):
        capsys.readouterr()
        assert main(["--check", "net.lock", "--input", f"{batch},7", "--format", "json"]) == code
        table = json.loads(capsys.readouterr().out)["tables"][0]
        found = [(row["quantity"], row["what"], row["locked"], row["counted"]) for row in table["rows"][:2]]
        macs = batch * 7 * 3
        assert found == [
            ("MACs", "above limit" if code else "within limit", 300, macs),
            ("params", "within limit", 22, 21),
        ]
        more = (batch - 5) * 7 * 3
        title = f"{'Cost changed' if code else 'Within the limits'}: +{100 * more / 105:,.1f} % MACs"
        assert table["title"] == title
    assert main(["--check", "net.lock", "--max", "params=20"]) == 1
    assert main(["--update", "net.lock", "--max", "params=21"]) == 0
    assert limits(net / "net.lock") == {"macs": 300, "params": 21}


def test_limit_is_a_percentage_of_the_locked_count(net, capsys):
    assert main([*NET, "--max", "macs=+20%", "-o", "net.lock"]) == 0
    assert limits(net / "net.lock") == {"macs": 126}
    # of the lock where it is compared, of the count where that is written
    for batch, code in ((6, 0), (7, 1)):
        assert main(["--check", "net.lock", "--input", f"{batch},7"]) == code
        assert main(["--check", "net.lock", "--input", f"{batch},7", "--max", "macs=+20.0%"]) == code
        assert main(["--check", "net.lock", "--input", f"{batch},7", "--max", "macs=+40%"]) == 0
    assert main(["--update", "net.lock", "--input", "7,7", "--max", "macs=+1.5%"]) == 0
    assert limits(net / "net.lock") == {"macs": 149}
    for wrong in ("macs=5%", "macs=-5%", "macs=+%", "macs=5x", "macs=+5", "flops=+5%"):
        assert main([*NET, "--max", wrong]) == 2
        assert wrong in capsys.readouterr().err


def test_limits_that_are_exceeded_are_not_written(net, capsys):
    assert main([*NET, "--max", "macs=104", "-o", "net.lock"]) == 1
    line = (
        "net.lock is not written: net.py:Net,in_features=7,out_features=3,bias=false has 105 MACs, above the limit of"
    )
    assert f"{line} 104" in (err := capsys.readouterr().err) and err.count("\n") == 1
    assert not (net / "net.lock").exists()
    assert main([*NET, "--max", "macs=105", "-o", "net.lock"]) == 0
    before = (net / "net.lock").read_text()
    for words in (["--max", "macs=104"], ["--max", "params=20"], ["--input", "6,7"]):
        assert main(["--update", "net.lock", *words]) == 1
    assert (net / "net.lock").read_text() == before
    assert main(["--update", "net.lock", "--input", "6,7", "--max", "macs=126"]) == 0


def test_incomplete_count_meets_no_limit_of_macs(net, capsys):
    assert main([*NET, "--max", "macs=1k", "-o", "macs.lock"]) == 0
    assert main([*NET, "--max", "params=1k", "-o", "params.lock"]) == 0
    forward = "class Net(nn.Linear):\n    def forward(self, x): return fft.rfft(super().forward(x)).abs()\n"
    (net / "net.py").write_text(f"from torch import nn, fft\n{forward}")
    capsys.readouterr()
    assert main(["--check", "macs.lock", "--allow-unsupported", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert "macs.lock: its MACs lack those of _fft_r2c on 5x3" in err and "--formula" in err
    assert json.loads(out)["tables"][0]["rows"][0]["what"] == "incomplete"
    assert main(["--check", "params.lock", "--allow-unsupported"]) == 0
    assert main(["--check", "macs.lock", "--formula", "_fft_r2c=5*3*3"]) == 0
    assert main(["--update", "macs.lock", "--allow-unsupported"]) == 1
    assert main(["--update", "macs.lock", "--formula", "_fft_r2c=5*3*3"]) == 0


@pytest.fixture
def pair(folder):
    """Return the folder of a lock of two targets: 3 x 7 x 11 x 11 + 7 x 11 x 13 MACs, and 5 x 7 x 3."""
    (folder / "small.py").write_text("import torch\ndef make(): return torch.nn.Linear(7, 3), (torch.zeros(5, 7),)")
    assert main(["model.py:make", "small.py:make", "--max", "macs=4k", "-o", "two.lock"]) == 0
    return folder


def test_lock_of_several_targets_names_what_changed(pair, capsys):
    lines = [
        "two.lock: model.py:make: as locked, 3,542 MACs and 506 parameters",
        "two.lock: small.py:make: as locked, 105 MACs and 24 parameters",
    ]
    capsys.readouterr()
    assert main(["--check", "two.lock"]) == 0 and capsys.readouterr().out.splitlines() == lines
    (pair / "model.py").write_text(FACTORY.replace("width=13", "width=19"))
    assert main(["--check", "two.lock", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    data = json.loads(out)
    rows = {(row["target"], row["quantity"], row["what"]): row for row in data["tables"][0]["rows"]}
    assert rows["model.py:make", "MACs", "above limit"]["difference"] == 3 * 847 + 7 * 11 * 19 - 4000
    assert rows["model.py:make", "MACs", "changed"]["difference"] == 7 * 11 * 6
    assert rows["small.py:make", "MACs", "total"]["difference"] == 0
    assert data["result"].startswith("two.lock: model.py:make 3,542 -> 4,004 (+462) MACs (1 changed)")
    assert "two.lock: model.py:make: 4,004 MACs, above the limit of 4,000\n" in err
    assert main(["--check", "two.lock", "--brief"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("two.lock: ") and out.count("\n") == 1 and "above the limit of 4,000\n" in err
    for form in ("md", "csv"):
        assert main(["--check", "two.lock", "--brief", "--format", form]) == 1
        table = capsys.readouterr().out.partition("two.lock:")[0]
        assert table.count("above limit") == 1 and ("small.py" in table) == (form == "csv")
    # the other target alone
    assert main(["--check", "two.lock", "small.py:make"]) == 0
    assert capsys.readouterr().out == f"{lines[1]}\n".replace("small.py:make: ", "")


def test_target_that_is_given_twice_is_locked_once(pair):
    assert main(["model.py:make", "model.py:make,width=17", "model.py:make", "-o", "two.lock"]) == 0
    found = json.loads((pair / "two.lock").read_text())["targets"]
    assert [one["macs"] for one in found] == [3 * 847 + 1001, 3 * 847 + 1309]
    assert main(["--check", "two.lock", "model.py:make,width=17"]) == 0


def test_target_is_the_same_with_its_words_in_any_order(pair):
    (pair / "sized.py").write_text("import torch\ndef make(n, m): return torch.nn.Linear(n, m), (torch.zeros(5, n),)")
    assert main(["sized.py:make,n=7,m=3", "small.py:make", "-o", "two.lock"]) == 0
    for name in ("sized.py:make,n=7,m=3", "sized.py:make,m=3,n=7"):
        assert main(["--check", "two.lock", name]) == main(["--update", "two.lock", name]) == 0
    assert main(["--check", "two.lock", "sized.py:make,n=7"]) == 2
    assert len(json.loads((pair / "two.lock").read_text())["targets"]) == 2


def test_lock_of_several_targets_is_updated(pair, capsys):
    before = json.loads((pair / "two.lock").read_text())["targets"]
    (pair / "small.py").write_text("import torch\ndef make(): return torch.nn.Linear(7, 5), (torch.zeros(5, 7),)")
    assert main(["--update", "two.lock", "small.py:make", "--max", "macs=175"]) == 0
    other, small = json.loads((pair / "two.lock").read_text())["targets"]
    assert other == before[0] and (small["macs"], small["limits"]) == (175, {"macs": 175})
    (pair / "model.py").write_text(FACTORY.replace("width=13", "width=19"))
    text = (pair / "two.lock").read_text()
    assert main(["--update", "two.lock"]) == 1 and (pair / "two.lock").read_text() == text
    assert main(["--update", "two.lock", "--max", "macs=5k"]) == main(["--check", "two.lock"]) == 0


@pytest.mark.parametrize("words, valid", [
    (["--update", "two.lock", "model.py:make", "model"], ["model;", "model.py:make, small.py:make"]),
    (["--badge", "two.svg", "two.lock", "two.lock"], ["read one lock"]),
    (["--check", "two.lock", "--input", "5,7"], ["--input goes with one TARGET, not 2: "]),
    (["model.py:make", "small.py:make", "--input", "5,7"], ["--input goes with one TARGET, not 2: "]),
    (["--check", "two.lock", "--set", "small:n=5"], ["--set small:n=5: ", "give small alone with --set n=5"]),
], ids=" ".join)  # fmt: skip
def test_wrong_targets_are_one_line(words, valid, pair, capsys):
    text = (pair / "two.lock").read_text()
    capsys.readouterr()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(word in error for word in valid)
    assert (pair / "two.lock").read_text() == text


def test_renamed_file_names_how_the_lock_gets_another(pair, capsys):
    assert main(["model.py:make", "-o", "one.lock"]) == 0
    (pair / "model.py").rename("models.py")
    capsys.readouterr()
    for lock, advice in (("one.lock", "--check one.lock TARGET"), ("two.lock", "TARGET … -o two.lock")):
        assert main(["--check", lock]) == 2
        error = capsys.readouterr().err
        assert "model.py:make: there is no file model.py; " in error and f"headcount lock {advice}" in error
    assert main(["--check", "one.lock", "models.py:make"]) == main(["--update", "one.lock", "models.py:make"]) == 0
    assert main(["--check", "one.lock"]) == 0


def test_check_names_another_type_of_inputs(pair, capsys):
    (pair / "model.py").write_text(
        FACTORY.replace("(torch.zeros(7, 11),)", "(torch.zeros(7, 11, dtype=torch.bfloat16),)").replace(
            "bias=False", "bias=False, dtype=torch.bfloat16"
        )
    )
    capsys.readouterr()
    assert main(["--check", "two.lock", "model.py:make"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["two.lock: input 0: 7x11 float32 -> 7x11 bfloat16"]


CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 7, bias=False), nn.Linear(7, 11, bias=False))

    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=False) if self.training else self.layers(x)

def make(): return Net().eval(), (torch.zeros(3, 5),)
"""


def test_training_counts_activation_checkpointing(folder, capsys):
    (folder / "model.py").write_text(CHECKPOINTED)
    first, second = 3 * 5 * 7, 3 * 7 * 11
    found = {}
    for options in ([], ["--training"]):
        capsys.readouterr()
        assert count(["model.py:make", "--backward", "--format", "json", *options]) == 0
        counted = json.loads(capsys.readouterr().out)["tables"][0]["count"]
        found[counted["macs"]] = " ".join(counted["notes"])
    # the last layer's output is not needed again
    assert [*found] == [3 * (first + second), 4 * first + 3 * second]
    evaluated, trained = found.values()
    assert "in eval mode; training=True (--training)" in evaluated and "eval mode" not in trained
    assert "floating-point inputs" in evaluated and "floating-point inputs" in trained
    assert main(["model.py:make", "--backward", "--training", "-o", "macs.lock"]) == main(["--check", "macs.lock"]) == 0
    (folder / "model.py").write_text(CHECKPOINTED.replace("if self.training", "if False"))
    assert main(["--check", "macs.lock"]) == 1
