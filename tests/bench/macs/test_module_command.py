"""``headcount count`` on modules of a project whose packages are named like headcount's."""

import json

import pytest
import torch

from headcount.__main__ import main

B, T, D = 2, 5, 8

FACTORY = """
import torch
import reports, tests
from bench.sizes import BATCH
from models.net import Net

def net(d: int, layers=2):
    print("printed by the project")
    return Net(d, layers), (torch.randn(BATCH, 5, d),)

class Tried(torch.nn.Module):
    def forward(self, a, b):
        try:
            return torch.mm(a, b.mT)
        except RuntimeError:
            return torch.mm(a, b)

def tried(): return Tried(), (torch.ones(7, 13), torch.ones(13, 11))
"""
NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))

    def forward(self, x):
        import bench.late                     # the project's own, imported late
        for layer in self.layers:
            x = layer(x)
        return {"x": x @ x.mT}
"""


@pytest.fixture
def project(tmp_path):
    for package in ("models", "bench", "tests", "reports"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "models" / "net.py").write_text(NET)
    (tmp_path / "bench" / "sizes.py").write_text("BATCH = 2\n")
    (tmp_path / "bench" / "late.py").write_text("")
    (tmp_path / "factory.py").write_text(FACTORY)
    return tmp_path


def run(capfd, *argv):
    return main(["count", *map(str, argv)]), *capfd.readouterr()


def test_project_with_our_package_names_is_counted(project, capfd, cold):
    code, out, err = run(
        capfd, f"{project}/factory.py:net", "--set", f"d={D}", "--counter", "all", "--format", "json", "--check"
    )
    assert code == 0 and "printed by the project" not in err
    modules, counters, _ = json.loads(out)["tables"]
    count = modules["count"]
    linear, product = 2 * B * T * D * D, B * T * T * D
    assert (count["macs"], count["params"], count["device"]) == (linear + product, 2 * (D * D + D), "meta")
    assert {entry["path"]: entry["size"] for entry in count["ledger"]} == {
        "layers.0": linear // 2,
        "layers.1": linear // 2,
        "": product,
    }
    rows = {row["counter"]: row for row in counters["rows"]}
    biases = 2 * B * T * D
    assert rows["torch"]["difference"] == rows["fvcore"]["difference"] == 0
    assert rows["ptflops-aten"]["difference"] == biases
    # on the CPU @ is not patched, and addmm calls no torch.mm
    assert rows["ptflops-pytorch"]["difference"] == biases - product
    tools = {tool["counter"]: tool for tool in count["tools"]}
    assert [cause["what"] for cause in tools["ptflops-pytorch"]["explanation"]["causes"]] == ["added", "missed"]
    assert all(row["verdict"] in ("equal", "explained") and row["device"] == "cpu" for row in rows.values())
    assert rows["torch"]["version"] == torch.__version__


def test_crashed_counter_fails_alone(project, capfd):
    code, out, _ = run(capfd, f"{project}/factory.py:tried", "--format", "json", "--counter", "fvcore", "torch")
    modules, counters, *_ = json.loads(out)["tables"]
    rows = {row["counter"]: row for row in counters["rows"]}
    assert code == 1 and modules["count"]["macs"] == rows["torch"]["macs"] == 7 * 13 * 11
    assert (rows["fvcore"]["macs"], rows["fvcore"]["verdict"]) == (None, "failed")
    assert rows["fvcore"]["notes"] == ["failed: it ended its process, with exit code -11"]


def test_preset_without_a_module_is_counted_in_closed_form(capfd):
    closed = run(capfd, "chinchilla-70b", "--counter", "closed-form")
    assert closed[0] == 0 and run(capfd, "chinchilla-70b")[:2] == closed[:2]
    assert run(capfd, "chinchilla-70b", "--backward")[0] == 2
