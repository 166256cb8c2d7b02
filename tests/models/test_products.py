"""What the modules' products are made of: operands that every counter reads in full, and no biases nobody asked for."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import configurations

VARIED = ("form", "router", "gate", "gates")
LAYERS = [pytest.param(config, id=name) for name, config in configurations(*VARIED)]
BARE = [pytest.param(config, id=name) for name, config in configurations(*VARIED, bias=False)]
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
def test_both_operands_of_every_product_carry_the_whole_batch(config):
    lengths = dict(config.lengths, batch_size=3)
    with Batches() as products:
        build(config, impl="reference")(**example_inputs(config, lengths))
    assert products.seen
    assert all(a == b for a, b in products.seen), products.seen


@pytest.mark.parametrize("config", BARE)
def test_a_layer_without_biases_has_none(config):
    names = [name for name, _ in build(config, device="meta").named_parameters()]
    assert not [name for name in names if name.endswith("_proj.bias")]
