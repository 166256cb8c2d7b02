"""Attention and feed-forward of a module follow its products, wherever its layers are."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend

import headcount as hc
from headcount.formulas.parts import parts_of_run

B, T, D, H, D_H, F, V = 2, 5, 14, 3, 11, 34, 13
"""Heads are wider than the model together."""
PROJECTIONS = B * T * 4 * D * H * D_H
ATTENTION = PROJECTIONS + 2 * B * H * T * T * D_H


class Core(nn.Module):
    def forward(self, q, k, v):
        return attend(q, k, v)


class Block(nn.Module):
    """Runs attention itself; ``core``: in a module of its own."""

    def __init__(self, *, core=False, mlp=None):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, H * D_H, bias=False) for _ in range(3))
        self.o = nn.Linear(H * D_H, D, bias=False)
        self.core = Core() if core else attend
        self.mlp = mlp or nn.Identity()

    def forward(self, x):
        q, k, v = (layer(x).view(B, T, H, D_H).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.mlp(self.o(self.core(q, k, v).transpose(1, 2).reshape(B, T, H * D_H)))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, 2 * F, bias=False), nn.Linear(F, D, bias=False)

    def forward(self, x):
        a, b = self.up(x).chunk(2, -1)
        return self.down(a * b)


class Flat(Block):
    """Has the layers of the feed-forward block beside those of attention."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, F, bias=False), nn.Linear(F, D, bias=False)

    def forward(self, x):
        return self.down(self.up(super().forward(x)).relu())


class Lora(Block):
    """Its queries have an adapter, which is no feed-forward block."""

    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(D, 3, bias=False), nn.Linear(3, H * D_H, bias=False))


class Words(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.table, self.block, self.head = nn.Embedding(V, D), block, nn.Linear(D, V, bias=False)

    def forward(self, ids):
        return self.head(self.block(self.table(ids)))


def mlp():
    return nn.Sequential(nn.Linear(D, F, bias=False), nn.ReLU(), nn.Linear(F, D, bias=False))


def macs_by_part(module, x):
    count = hc.count(module, x)
    shapes = {}
    for one in count.parameters:
        shapes.setdefault(one.module, []).append(one.shape)
    parts = parts_of_run(tuple(count.ledger), shapes)
    return count.ledger.group(parts.part_of, of="size")


WIDE = 2 * B * T * D * F
BLOCKS = {
    "alone": (Block, {"attention": ATTENTION}),
    "core": (lambda: Block(core=True), {"attention": ATTENTION}),
    "mlp": (lambda: Block(mlp=mlp()), {"attention": ATTENTION, "feed-forward": WIDE}),
    "core-mlp": (lambda: Block(core=True, mlp=mlp()), {"attention": ATTENTION, "feed-forward": WIDE}),
    "gated": (lambda: Block(mlp=Gated()), {"attention": ATTENTION, "feed-forward": 3 * B * T * D * F}),
    "flat": (Flat, {"attention": ATTENTION, "feed-forward": WIDE}),
    "lora": (Lora, {"attention": ATTENTION - B * T * D * H * D_H + 3 * B * T * (D + H * D_H)}),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_that_attends_itself(name):
    """A list of blocks, and a model with words."""
    make, one = BLOCKS[name]
    x = torch.ones(B, T, D)
    assert macs_by_part(nn.Sequential(make(), make()), x) == {part: 2 * macs for part, macs in one.items()}
    words = B * T * D * V
    assert macs_by_part(Words(make()), torch.zeros(B, T, dtype=torch.long)) == {**one, "vocabulary": words}


@pytest.mark.parametrize("name", BLOCKS)
def test_model_that_attends_itself(name):
    make, one = BLOCKS[name]
    assert macs_by_part(make(), torch.ones(B, T, D)) == one


def test_layer_of_torch():
    """Its fast path runs every product in one operation."""
    d, h = 12, 3
    layer = nn.TransformerEncoderLayer(d, h, F, batch_first=True)
    attention, wide = B * T * 4 * d * d + 2 * B * T * T * d, 2 * B * T * d * F
    parts = macs_by_part(nn.Sequential(layer, layer), torch.ones(B, T, d))
    assert parts == {"attention": 2 * attention, "feed-forward": 2 * wide}


class Chosen(Block):
    """Attends and has a linear layer that chooses among heads."""

    def __init__(self, mlp=None):
        super().__init__(mlp=mlp)
        self.router = nn.Linear(D, H, bias=False)

    def forward(self, x):
        gate = self.router(x).softmax(-1)
        return super().forward(x) * gate.sum(-1, keepdim=True)


def test_layer_that_attends_has_no_feed_forward_part():
    x, router = torch.ones(B, T, D), B * T * D * H
    assert macs_by_part(Chosen(), x) == {"attention": ATTENTION + router}
    # beside a feed-forward block it is no layer by itself
    assert macs_by_part(Chosen(Gated()), x)["attention"] == ATTENTION
