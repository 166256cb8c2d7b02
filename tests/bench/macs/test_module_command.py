"""bench.macs --module: a user's module, in a project that has our package names too."""

import json
from pathlib import Path

import pytest
import torch

from headcount.bench.macs.__main__ import main

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("warm")
B, T, D = 2, 5, 8

FACTORY = """
import torch
import reports, tests
from bench.sizes import BATCH
from models.net import Net

def net(d: int, layers=2):
    print("printed by the project")
    return Net(d, layers), (torch.randn(BATCH, 5, d),)

class Spectrum(torch.nn.Module):
    def forward(self, x): return torch.fft.rfft(x).real @ x[:5]

def spectrum(): return Spectrum(), (torch.randn(8, 8),)

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
    return main(["--module", *map(str, argv)]), *capfd.readouterr()


def test_project_with_our_package_names_is_counted(project, capfd, monkeypatch):
    # by a process that is started for it, as a user's is
    monkeypatch.undo()
    code, out, err = run(capfd, f"{project}/factory.py:net", "--set", f"d={D}", "--format", "json", "--check")
    assert code == 0 and "printed by the project" not in err
    ledger, counters, _ = json.loads(out)["tables"]
    linear, product = 2 * B * T * D * D, B * T * T * D
    assert (ledger["macs"], ledger["params"], ledger["device"]) == (linear + product, 2 * (D * D + D), "meta")
    assert {row["path"]: row["macs"] for row in ledger["rows"]} == {
        "layers.0": linear // 2,
        "layers.1": linear // 2,
        "": product,
    }
    rows = {row["counter"]: row for row in counters["rows"]}
    biases = 2 * B * T * D
    assert rows["torch"]["difference"] == rows["fvcore"]["difference"] == 0
    assert rows["ptflops-aten"]["difference"] == biases
    # on the CPU, as its users run it: @ is not patched, and addmm calls no torch.mm
    assert rows["ptflops-pytorch"]["difference"] == biases - product
    assert [cause["what"] for cause in rows["ptflops-pytorch"]["causes"]] == ["added", "missed"]
    assert all(row["explained"] and row["device"] == "cpu" for row in rows.values())
    assert rows["torch"]["version"] == torch.__version__


def test_crashed_counter_fails_alone(project, capfd):
    code, out, _ = run(capfd, f"{project}/factory.py:tried", "--format", "json", "--counter", "fvcore", "torch")
    ledger, counters, *_ = json.loads(out)["tables"]
    rows = {row["counter"]: row for row in counters["rows"]}
    assert code == 1 and ledger["macs"] == rows["torch"]["macs"] == 7 * 13 * 11
    assert (rows["fvcore"]["macs"], rows["fvcore"]["failed"]) == (None, "it ended its process, with exit code -11")


def test_formula_counts_unknown_operation(project, capfd):
    spec = f"{project}/factory.py:spectrum"
    code, out, _ = run(capfd, spec, "--counter", "torch", "--format", "json", "--formula", "_fft_r2c=3*a*o1")
    assert code == 0 and json.loads(out)["tables"][0]["macs"] == 3 * 64 * 5 + 8 * 5 * 8
    code, out, _ = run(capfd, spec, "--counter", "torch", "--format", "json", "--formula-set", "linalg")
    assert code == 0 and json.loads(out)["tables"][0]["macs"] == 2 * 8 * 8 * 3 + 8 * 5 * 8


LLAMA = """
import torch
import torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self, d, heads, groups, inner):
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, d // heads
        self.norm, self.inner_norm = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, groups * self.width, bias=False)
        self.v = nn.Linear(d, groups * self.width, bias=False)
        self.gate, self.up = nn.Linear(d, inner, bias=False), nn.Linear(d, inner, bias=False)
        self.down = nn.Linear(inner, d, bias=False)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (p(y).unflatten(-1, (-1, self.width)).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.inner_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(128256, 4096)
        self.layers = nn.ModuleList(Block(4096, 32, 8, 14336) for _ in range(32))
        self.norm, self.head = nn.RMSNorm(4096), nn.Linear(4096, 128256, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

def llama(T):
    with torch.device("meta"):
        return Llama(), (torch.zeros(1, T, dtype=torch.int64),)
"""


@pytest.mark.parametrize("counters", ["headcount", "all"])
def test_llama3_8b_module_matches_hand_formula(tmp_path, capfd, counters):
    """On meta no value of theirs takes memory."""
    (tmp_path / "llama.py").write_text(LLAMA)
    spec = tmp_path / "llama.py:llama"
    code, out, _ = run(capfd, spec, "--set", "T=8192", "--format", "json", "--counter", counters)
    assert code == 0
    table, *others = json.loads(out)["tables"]
    T, d, f, V, L = 8192, 4096, 14336, 128256, 32
    assert table["macs"] == L * (2 * T * d * d + 2 * T * d * 1024 + 3 * T * d * f + 2 * T * T * d) + T * d * V
    assert table["params"] == L * (2 * d * d + 2 * d * 1024 + 3 * d * f + 2 * d) + 2 * d * V + d
    rows = [row for other in others for row in other["rows"] if "counter" in row]
    assert all(row["explained"] for row in rows) if rows else counters == "headcount"
    why = "the model has more than 200 GMACs"
    assert all((row["device"], row["counted_there_because"]) == ("meta", why) for row in rows)
