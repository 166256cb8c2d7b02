"""headcount compare of two modules, of two files of counts, and of one with the other."""

import json

import pytest

from headcount.bench.counting.result import Count, Parameter
from headcount.bench.snapshot.file import text
from headcount.bench.targets.target import Target
from headcount.formulas.ledger import Entry, Ledger

FACTORY = """
import torch

def make(width=13, n=7):
    return torch.nn.Linear(11, width), (torch.zeros(n, 11),)
"""


def make_count(width):
    term = Entry("", "linear", {"m": 7, "i": 11, "j": width})
    parameters = (Parameter("weight", (width, 11)), Parameter("bias", (width,)))
    return Count("net", Ledger((term,)), Target("x.py:net"), parameters=parameters)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a module, and the locks of two modules that differ in width."""
    (tmp_path / "model.py").write_text(FACTORY)
    for width in (13, 17):
        (tmp_path / f"{width}.lock").write_text(text(make_count(width)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_json_lock_and_module_are_equal(folder, command, tables):
    assert command("count", "model.py:make", "--out", "count.json")[0] == 0
    for other in ("13.lock", "model.py:make", "model.py:make,width=13,n=7"):
        found = tables("compare", "count.json", other)
        assert found.keys() == {"compare-changes", "compare-how"}
        equal, total = found["compare-changes"]
        assert (equal["a"], equal["b"], total["difference"]) == (1001, 1001, 0)


def test_preset_name_wins_over_file(folder, tables):
    (folder / "transformer-base").write_text(text(make_count(13)))
    assert "compare-block" in tables("compare", "transformer-base", "transformer-big", "--counter", "closed-form")


def test_settings_change_both_modules(folder, tables):
    rows = tables("compare", "model.py:make", "model.py:make,width=17", "--set", "n=5")["compare-changes"]
    assert (rows[-1]["a"], rows[-1]["b"]) == (5 * 11 * 13, 5 * 11 * 17)


def test_closed_forms_are_compared_from_json(folder, command):
    for layers in (2, 10_000):
        words = ["count", "llm-s", "--set", f"num_layers={layers}", "--counter", "closed-form"]
        assert command(*words, "--out", f"{layers}.json")[0] == 0
    code, out, err = command("compare", "2.json", f"{10_000}.json", "--format", "json")
    assert code == 0, err
    changes = json.loads(out)["tables"][0]["rows"]
    # every layer has a key projection of 768 x 768 weights
    (row,) = (row for row in changes if row["quantity"] == "params" and row["path"].endswith("self_attn.k_proj.weight"))
    assert row["difference"] == (2 - 10_000) * 768 * 768
