"""Every moment of every schedule is what live tensors reach in the reference layer, operation by operation."""

import gc

import pytest
import torch

from bench.tally import LiveStorage
from formulas import activations_mha, activations_moa
from models import moa as moa_module
from models.build import build, example_inputs
from models.config import make_config

LAYERS = {
    "mha": dict(attention="mha", d_model=21, num_heads=3, head_dim=7),
    "mha-plain": dict(attention="mha", d_model=13, num_heads=5, head_dim=2, bias=False),
    "gqa": dict(attention="mha", d_model=13, num_heads=6, num_kv_heads=3, head_dim=5),
    "mqa": dict(attention="mha", d_model=13, num_heads=5, num_kv_heads=1, head_dim=7, bias=False),
    "one-head": dict(attention="mha", d_model=13, num_heads=1, head_dim=3),
    "moa": dict(attention="moa", d_model=13, num_experts=11, top_k=3, head_dim=5),
    "moa-released": dict(attention="moa", d_model=7, num_experts=5, top_k=2, head_dim=11, renormalise=False),
    "moa-one-slot": dict(attention="moa", d_model=17, num_experts=5, top_k=1, head_dim=7),
}
SHAPES = [(2, 7, 7), (3, 11, 5), (1, 13, 13), (2, 1, 7), (5, 3, 2), (7, 2, 1), (1, 1, 1)]


def executed(config, shape, training):
    """Bytes that are live after each allocation of a forward, or of a forward and a backward."""
    batch, tgt, src = shape
    layer = build(config).train(training)
    inputs = example_inputs(config, {"batch_size": batch, "tgt_len": tgt, "src_len": src})
    query, key = inputs["query"], inputs["key"] if tgt != src else None
    gradient = torch.ones_like(query)
    gc.collect()
    with LiveStorage([*inputs.values(), gradient, *layer.parameters()]) as tally, torch.set_grad_enabled(training):
        out = layer(query, key)
        if training:
            out.backward(gradient)
    return tally.trace


def predicted(config, shape, training):
    sizes = dict(zip("BTS", shape, strict=True)) | config.letters() | {"element_bytes": 4}
    if config.variant == "mha":
        run = (activations_mha.training if training else activations_mha.forward)(**sizes)
    else:
        bias = sizes.pop("bias")
        sizes.pop("noisy")
        sizes["renormalise"] = config.renormalise
        run = activations_moa.training(**sizes) if training else activations_moa.forward(**sizes, bias=bias)
    return [sum(moment.values()) for moment in run.moments]


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"B{s[0]}-T{s[1]}-S{s[2]}")
@pytest.mark.parametrize("name", LAYERS)
def test_every_moment_is_what_live_tensors_reach(name, shape, training):
    config = make_config(LAYERS[name])
    assert predicted(config, shape, training) == executed(config, shape, training)


@pytest.mark.parametrize(
    "options",
    [
        dict(d_model=512, top_k=8, num_experts=8, head_dim=128),
        dict(d_model=13, top_k=3, num_experts=5, head_dim=7, bias=True),
        dict(d_model=13, top_k=1, num_experts=5, head_dim=7, bias=True),
    ],
    ids=["several-chunks", "biased", "biased-one-slot"],
)
def test_forward_moments_in_several_chunks_and_with_biases(options):
    config = make_config(dict(attention="moa") | options)
    assert predicted(config, (1, 10, 10), False) == executed(config, (1, 10, 10), False)


def test_weights_are_renormalised_without_biases_by_default():
    sizes = dict(B=2, T=7, S=5, d_m=13, E=11, K=3, D=5, element_bytes=4)
    forward, training = activations_moa.forward, activations_moa.training
    assert forward(**sizes).moments == forward(**sizes, bias=False, renormalise=True).moments
    assert training(**sizes).moments == training(**sizes, renormalise=True).moments


def test_the_schedule_gathers_as_much_as_the_module():
    assert activations_moa.GATHERED_BYTES == moa_module.GATHERED_BYTES
