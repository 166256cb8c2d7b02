"""Modules of a count: classes, outputs, parameters, calls, active parameters, and the printed tree."""

import pytest
import torch
from torch import nn

import headcount as hc

B, T, D, H = 2, 3, 5, 7
E, K, F = 11, 3, 13


class Net(nn.Module):
    """A model with tied weights, a shared module, repeated layers, a frozen parameter and an unused part."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(E, D)
        self.blocks = nn.ModuleList([*(nn.Linear(D, D) for _ in range(4)), nn.Linear(D, H), nn.Linear(H, D)])
        self.shared = self.blocks[0]
        self.head = nn.Linear(D, E, bias=False)
        self.head.weight = self.emb.weight
        self.vision = nn.Sequential(nn.Conv2d(3, D, 3), nn.Linear(D, D))
        self.scale = nn.Parameter(torch.ones(D, dtype=torch.float64), requires_grad=False)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        x = self.shared(x + self.scale.float())
        return self.head(x @ x.mT @ x), {"hidden": x}


SQUARE = D * D + D
IDLE = 3 * D * 9 + D + SQUARE
USED = E * D + 4 * SQUARE + (D * H + H) + (H * D + D) + D


@pytest.fixture(scope="module")
def net():
    return hc.count(Net(), torch.zeros(B, T, dtype=torch.long))


def test_parameters_are_counted_once(net):
    assert (net.params, net.trainable_params, net.active_params) == (USED + IDLE, USED + IDLE - D, USED)
    assert net.weight_bytes == 4 * (USED + IDLE) + 4 * D
    assert net.uncalled == ("vision",)
    frame = net.to_dataframe()
    assert frame["params"].sum() == net.params and frame["macs"].sum() == net.macs


def test_modules_have_class_output_and_calls(net):
    records = {module.path: module for module in net.modules}
    first = records["blocks.0"]
    assert (first.type, first.output, first.calls, first.params) == ("Linear", f"{B}x{T}x{D}", 2, SQUARE)
    assert records[""].output == f"{B}x{T}x{E}, {B}x{T}x{D}"
    assert (records["head"].params, records["head"].calls) == (0, 1)
    linear = B * T * (5 * D * D + 2 * D * H + D * E)
    by_type = net.to_dataframe().groupby("type")["macs"].sum()
    assert {name: macs for name, macs in by_type.items() if macs} == {"Linear": linear, "Net": 2 * B * T * T * D}


def test_tree_folds_equal_layers(net):
    lines = [line.split() for line in str(net).splitlines()]
    three = ["blocks.1-3", "(3x)", "Linear", f"{B}x{T}x{D}", str(3 * SQUARE), str(3 * B * T * D * D)]
    assert three in [line[:-1] for line in lines]
    assert ["vision", "Sequential", str(IDLE), "–", "–"] in lines
    assert "Did not run: vision" in str(net) and f"Active params: {USED}" in str(net)
    assert max(map(len, str(net).splitlines())) <= 100


def test_depth_cuts_the_tree():
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(D, H)))))
    x = torch.ones(B, D)
    for depth, rows in {1: 2, 3: 4, None: 5}.items():
        assert str(hc.summary(model, x, depth=depth)).count("Sequential") + (depth is None) == rows + 1
    assert str(hc.count(model, x)) == str(hc.summary(model, x, depth=3))


def test_equal_layers_apart_share_a_row():
    model = nn.Sequential(*(nn.Linear(D, D) if i % 2 else nn.Sequential(nn.Linear(D, D)) for i in range(9)))
    text = str(hc.count(model, torch.ones(B, D)))
    assert "0,2,4,… (5x)" in text and "1,3,5,… (4x)" in text


def test_encoder_fast_path_uses_its_parameters():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2, 17, batch_first=True), 2)
    count = hc.count(encoder, torch.ones(3, 11, 12))
    params = 2 * (4 * (12 * 12 + 12) + 2 * 12 * 17 + 17 + 12 + 4 * 12)
    assert (count.params, count.active_params, count.uncalled) == (params, params, ())
    # the long class name of out_proj leaves the outputs visible
    lines = [line.split() for line in str(count).splitlines()]
    assert ["layers.0-1", "(2x)", "TransformerEncoderLayer", "3x11x12", f"{params:,}"] in [line[:5] for line in lines]


class Experts(nn.Module):
    """Top-K of E experts with biases; ``dense`` computes all experts."""

    def __init__(self, select=torch.topk, dense=False):
        super().__init__()
        self.router = nn.Linear(D, E, bias=False)
        self.weight = nn.Parameter(torch.ones(E, D, F))
        self.bias = nn.Parameter(torch.ones(E, F))
        self.select, self.dense = select, dense

    def forward(self, x):
        _, chosen = self.select(self.router(x), K, dim=-1)
        if self.dense:
            return torch.einsum("td,edf->tef", x, self.weight).gather(1, chosen[..., None].expand(-1, -1, F))
        rows = x.repeat_interleave(K, 0)[:, None]
        return torch.bmm(rows, self.weight[chosen.flatten()])[:, 0] + self.bias[chosen.flatten()]


class Stack(nn.ModuleList):
    def forward(self, x):
        return [layer(x) for layer in self]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("layers", [1, 2])
def test_experts_have_k_of_e_active(layers, device):
    model = Stack([Experts() for _ in range(layers)])
    count = hc.count(model.to(device), torch.ones(H, D, device=device))
    assert count.params == layers * (D * E + E * D * F + E * F)
    assert count.active_params == layers * (D * E + K * D * F + K * F)


def test_unknown_selection_has_no_active_params():
    x = torch.ones(H, D)
    assert hc.count(Experts(dense=True), x).active_params is None
    assert hc.count(Experts(lambda scores, k, dim: (None, scores.argsort(dim)[:, :k])), x).active_params is None
    assert "Active params: –" in str(hc.count(Experts(dense=True), x))
