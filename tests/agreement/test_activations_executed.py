"""Every moment of every schedule is what live tensors reach in the reference layer, operation by operation."""

import gc

import pytest
import torch

from headcount.formulas.activations import mha as activations_mha
from headcount.formulas.activations import moa as activations_moa
from headcount.formulas.activations import moh as activations_moh
from headcount.formulas.activations import moh_ideal as activations_moh_ideal
from headcount.models import experts
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.tally import LiveStorage

MOH = dict(attention="moh", d_model=13, num_heads=10, num_shared_heads=2, top_k=3, num_kv_heads=5, head_dim=7)
LAYERS = {
    "mha": dict(attention="mha", d_model=21, num_heads=3, head_dim=7),
    "mha-plain": dict(attention="mha", d_model=13, num_heads=5, head_dim=2, bias=False),
    "gqa": dict(attention="mha", d_model=13, num_heads=6, num_kv_heads=3, head_dim=5),
    "mqa": dict(attention="mha", d_model=13, num_heads=5, num_kv_heads=1, head_dim=7, bias=False),
    "two-heads": dict(attention="mha", d_model=13, num_heads=2, head_dim=3),
    "gqa-two": dict(attention="mha", d_model=13, num_heads=6, num_kv_heads=2, head_dim=5),
    "one-head": dict(attention="mha", d_model=13, num_heads=1, head_dim=3),
    "moa": dict(attention="moa", d_model=13, num_experts=11, top_k=3, head_dim=5),
    "moa-released": dict(attention="moa", d_model=7, num_experts=5, top_k=2, head_dim=11, gates="released"),
    "moa-selected": dict(attention="moa", d_model=7, num_experts=5, top_k=2, head_dim=11, gates="selected"),
    "moa-one-slot": dict(attention="moa", d_model=17, num_experts=5, top_k=1, head_dim=7),
    "moa-biased": dict(attention="moa", d_model=13, num_experts=5, top_k=3, head_dim=7, bias=True),
    "moa-biased-one-slot": dict(attention="moa", d_model=13, num_experts=5, top_k=1, head_dim=7, bias=True),
    "moa-noisy": dict(attention="moa", d_model=13, num_experts=11, top_k=3, head_dim=5, noisy=True),
    "moh": MOH,
    "moh-mha-biased": MOH | dict(num_kv_heads=10, bias=True),
    "moh-mqa-printed": MOH | dict(num_kv_heads=1, gates="printed"),
    "moh-query-norm": MOH | dict(router="query_norm"),
    "moh-ideal": MOH | dict(form="ideal"),
    "moh-ideal-two": MOH | dict(form="ideal", num_kv_heads=2),
    "moh-ideal-biased": MOH | dict(form="ideal", num_kv_heads=10, bias=True),
    "moh-ideal-query-norm": MOH | dict(form="ideal", num_kv_heads=1, router="query_norm"),
}
ROUTINGS = [(0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (3, 2), (5, 0)]
"""Shared and selected heads, such that each matrix of the router is there and is not."""
ROUTERS = [("linear", "released"), ("linear", "printed"), ("query_norm", "released")]
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


SCHEDULES = {
    ("mha", None): activations_mha,
    ("moa", None): activations_moa,
    ("moh", "released"): activations_moh,
    ("moh", "ideal"): activations_moh_ideal,
}


def scheduled(config, shape, training):
    sizes = dict(zip("BTS", shape, strict=True)) | config.letters() | {"element_bytes": 4}
    schedules = SCHEDULES[config.variant, getattr(config, "form", None)]
    if hasattr(config, "gates"):
        sizes["gates"] = config.gates
    return (schedules.training if training else schedules.forward)(**sizes)


def predicted(config, shape, training):
    return [sum(moment.values()) for moment in scheduled(config, shape, training).moments]


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"B{s[0]}-T{s[1]}-S{s[2]}")
@pytest.mark.parametrize("name", LAYERS)
def test_every_moment_is_what_live_tensors_reach(name, shape, training):
    config = make_config(LAYERS[name])
    assert predicted(config, shape, training) == executed(config, shape, training)


@pytest.mark.parametrize("name", LAYERS)
def test_a_training_step_leaves_the_gradients_of_the_layers_parameters(name):
    config = make_config(LAYERS[name])
    left = scheduled(config, (2, 7, 7), training=True).live
    parameters = {f"d_{path.replace('.', '_')}": 4 * p.numel() for path, p in build(config).named_parameters()}
    assert {tensor: size for tensor, size in left.items() if tensor.startswith("d_")} == parameters


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("router, gates", ROUTERS)
@pytest.mark.parametrize("s, r", ROUTINGS)
@pytest.mark.parametrize("moh_form", ["released", "ideal"])
def test_every_moment_of_every_routing_of_heads(moh_form, s, r, router, gates, training):
    sizes = dict(num_heads=5, num_kv_heads=5, num_shared_heads=s, top_k=r, router=router, gates=gates)
    config = make_config(MOH | sizes | dict(form=moh_form))
    assert predicted(config, (2, 7, 7), training) == executed(config, (2, 7, 7), training)


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("gathered", [1, 2, 7], ids=lambda rows: f"{rows}-rows")
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("name", ["moa", "moh-ideal", "moh-ideal-query-norm"])
def test_every_moment_where_matrices_are_gathered_in_several_chunks(name, bias, gathered, training, monkeypatch):
    config = make_config(LAYERS[name] | dict(bias=bias, head_dim=5))
    for module in (activations_moa, experts):
        monkeypatch.setattr(module, "GATHERED_BYTES", gathered * 13 * 5 * 4)
    # a last chunk is smaller where the rows are not divided
    assert predicted(config, (2, 3, 3), training) == executed(config, (2, 3, 3), training)


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
def test_every_moment_of_a_papers_layer_in_several_chunks(training):
    config = make_config(dict(attention="moa", d_model=512, top_k=8, num_experts=8, head_dim=128))
    assert predicted(config, (1, 10, 10), training) == executed(config, (1, 10, 10), training)


def test_weights_are_those_of_eq_9_without_biases_by_default():
    sizes = dict(B=2, T=7, S=5, d_m=13, E=11, K=3, D=5, element_bytes=4)
    forward, training = activations_moa.forward, activations_moa.training
    plain = dict(bias=False, gates="printed", noisy=False)
    assert forward(**sizes).moments == forward(**sizes, **plain).moments
    assert training(**sizes).moments == training(**sizes, **plain).moments


def test_heads_are_routed_as_released_without_biases_by_default():
    sizes = dict(B=2, T=7, S=5, d_m=13, h=6, s=2, r=3, d_h=5, g=3, element_bytes=4)
    plain = dict(bias=False, router="linear", gates="released")
    for schedules in (activations_moh, activations_moh_ideal):
        for schedule in (schedules.forward, schedules.training):
            assert schedule(**sizes).moments == schedule(**sizes, **plain).moments


def test_the_schedule_gathers_as_much_as_the_module():
    assert activations_moa.GATHERED_BYTES == experts.GATHERED_BYTES
