"""Feed-forward experts, and attention experts of several heads: counted == exact on primes, by every counter."""

from itertools import product

import pytest
import sympy
import torch

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.mixture import MixtureFeedForwardConfig

K_E = [(1, 1), (1, 5), (2, 7), (3, 11), (5, 5)]
BLOCKS = [
    dict(K=k, E=e, F=f, dm=dm, T=t, B=b) for (k, e), f, dm, t, b in product(K_E, (13, 17), (19, 23), (29, 31), (1, 37))
]
LAYERS = [
    dict(K=k, E=e, g=g, c=c, dm=dm, T=t, B=b)
    for (k, e), g, c, dm, t, b in product(K_E, (2, 3), (13, 17), (19, 23), (29,), (1, 37))
]
# what ptflops' functions of the pytorch backend bill beside products
ELEMENTS = "ptflops-pytorch"


def point_id(point):
    return "-".join(f"{letter}{size}" for letter, size in point.items())


def readings(config, **inputs):
    model = build(config, device="meta")
    counted = {name: registry.counter(name).read(model, inputs, label="block").macs for name in registry.NAMES}
    return counted, sum(parameter.numel() for parameter in model.parameters())


def check(counted, exact, elements=0):
    """The factors of a difference say which product is wrong."""
    expected = {name: exact + (elements if name == ELEMENTS else 0) for name in counted}
    wrong = {name: macs - expected[name] for name, macs in counted.items() if macs != expected[name]}
    assert not wrong, {name: sympy.factorint(abs(difference)) for name, difference in wrong.items()}


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("point", BLOCKS, ids=point_id)
def test_a_block(point, gated):
    K, E, F, dm, T, B = point.values()
    config = MixtureFeedForwardConfig(
        d_model=dm, d_ff=F, num_experts=E, top_k=K, gated=gated, output_bias=gated and K == 2
    )
    counted, params = readings(config, x=torch.empty(B, T, dm, device="meta"))
    matrices = 3 if gated else 2
    exact = B * T * dm * E + matrices * B * T * K * dm * F
    check(counted, exact, B * T * K * F)
    biases = dm * config.output_bias if gated else E * (F + dm)
    assert params == dm * E + matrices * E * dm * F + biases
    form = ledger_of(config, dict(batch_size=B, tgt_len=T))
    assert (form.macs, form.params) == (exact, params)
    assert form.active_params == dm * E + matrices * K * dm * F + (biases if gated else K * (F + dm))


@pytest.mark.parametrize("point", LAYERS, ids=point_id)
def test_attention_experts_of_several_heads(point):
    K, E, g, c, dm, T, B = point.values()
    D = g * c
    config = make_config(
        dict(
            attention="moa", d_model=dm, num_experts=E, top_k=K, head_dim=D, num_kv_heads=g, gates="selected",
            output_bias=True,
        )
    )  # fmt: skip
    counted, params = readings(config, query=torch.empty(B, T, dm, device="meta"))
    terms = [B * T * dm * E, 2 * B * K * T * dm * D, 2 * B * T * dm * D, 2 * B * K * T * T * D]
    check(counted, sum(terms))
    assert params == dm * E + 2 * E * dm * D + 2 * dm * D + dm
    form = ledger_of(config, dict(batch_size=B, tgt_len=T, src_len=T))
    assert (form.macs, form.params) == (sum(terms), params)
