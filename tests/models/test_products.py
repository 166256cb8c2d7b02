"""Operands of every product carry the whole batch; bias=False has no bias."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import configurations

VARIED = ("form", "router", "gate", "gates")
LAYERS = [pytest.param(config, id=name) for name, config in configurations(*VARIED)]
IMAGES = make_config(
    dict(
        model="transnext", attention="aggregated", num_heads=2, d_model=22, depths=(1, 2), mlp_ratio=(5, 3),
        pool_ratio=(5, 1), image_size=40, num_classes=7, position_width=5,
    )
)  # fmt: skip


class Batches(TorchFunctionMode):
    """The batch dimensions of both operands of every product that has any in both."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.matmul, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__):
            a, b = args
            if min(a.dim(), b.dim()) > 2:
                self.seen.append((tuple(a.shape[:-2]), tuple(b.shape[:-2])))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("config", [*LAYERS, pytest.param(IMAGES, id="transnext")])
@torch.no_grad()
def test_product_operands_have_whole_batch(config):
    lengths = dict(config.lengths, batch_size=3)
    with Batches() as products:
        build(config, impl="reference")(**example_inputs(config, lengths))
    assert products.seen
    assert all(a == b for a, b in products.seen), products.seen
