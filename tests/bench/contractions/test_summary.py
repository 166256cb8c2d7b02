"""A count prints as a tree of modules whose shares and subtotals add up, in 80 columns, and as a data frame."""

import re

import torch
from torch import nn

import headcount as hc
from headcount.bench.contractions.count import ContractionCount
from headcount.formulas.ledger import Entry, Ledger

B, T, D, H = 3, 7, 11, 13


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, H, bias=False), nn.Linear(H, D, bias=False)

    def forward(self, x):
        y = self.down(self.up(x))
        return y @ y.transpose(1, 2) @ y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Block(), Block())
        self.head = nn.Linear(D, 2, bias=False)

    def forward(self, x):
        return self.head(self.layers(x))


LINEAR, SQUARE, HEAD = B * T * D * H, B * T * T * D, B * T * D * 2
BLOCK = 2 * LINEAR + 2 * SQUARE
TOTAL = 2 * BLOCK + HEAD


def counted():
    return hc.count(Net(), torch.zeros(B, T, D))


def test_text_has_80_columns():
    deep = ".".join(["a_rather_long_name_of_a_module"] * 5)
    ledger = Ledger((Entry(f"{deep}.x", "linear", {"m": 10**9, "i": 10**9}), Entry(f"{deep}.y", "linear", {"m": 1})))
    lines = str(ContractionCount(ledger, (), {})).splitlines()
    assert max(map(len, lines)) == 80 and any("..." in line for line in lines)


def test_modules_and_kinds_add_up():
    found = counted()
    modules = found.by_module()
    assert modules[""] == found.macs == TOTAL and found.flops == 2 * TOTAL
    assert modules["layers"] == modules["layers.0"] + modules["layers.1"] == 2 * BLOCK
    assert modules["layers.1.up"] == LINEAR and modules["head"] == HEAD
    assert found.by_kind() == {"linear": 4 * LINEAR + HEAD, "contraction": 4 * SQUARE}


def test_dataframe_rows():
    frame = counted().to_dataframe()
    assert list(frame.columns) == ["path", "kind", "sizes", "times", "macs", "flops", "share"]
    assert frame["macs"].sum() == TOTAL and frame["flops"].sum() == 2 * TOTAL
    assert abs(frame["share"].sum() - 100) < 1e-9
    assert frame["sizes"][0] == f"m={B * T} i={D} j={H}" and frame["times"][0] == 1
    assert [str(frame[name].dtype) for name in ("times", "macs", "flops")] == ["int64"] * 3
    empty = ContractionCount(Ledger(()), (), {}).to_dataframe()
    assert len(empty) == 0 and list(empty.columns) == list(frame.columns)


def test_html_is_escaped():
    ledger = Ledger((Entry("<b>&", "linear", {"m": 7}),))
    page = ContractionCount(ledger, (), {})._repr_html_()
    assert re.findall("<th>(.*?)</th>", page) == ["module", "MACs", "share"]
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page and "<td>7</td><td>100.00 %</td>" in page
