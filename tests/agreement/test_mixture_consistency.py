"""Feed-forward experts, and attention experts of several heads: counted == exact on primes, by every counter."""

from itertools import product

import pytest
import sympy
import torch

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from tests.agreement.points import by_turns, point_id

K_E = [(1, 1), (1, 5), (2, 7), (3, 11), (5, 5)]
BLOCKS = [
    dict(K=k, E=e, F=f, dm=dm, T=t, B=b) for (k, e), f, dm, t, b in product(K_E, (13, 17), (19, 23), (29, 31), (1, 37))
]
LAYERS = [
    dict(K=k, E=e, g=g, c=c, dm=dm, T=t, B=b)
    for (k, e), g, c, dm, t, b in product(K_E, (2, 3), (13, 17), (19, 23), (29,), (1, 37))
]
CONVOLUTIONS = [
    dict(K=k, E=e, F=f, dm=dm, S=s, T=t, B=b)
    for (k, e), f, dm, s, t, b in zip(
        K_E,
        (13, 17, 19, 23, 7),
        (14, 22, 26, 34, 38),
        (29, 31, 7, 11, 2),
        (31, 5, 37, 3, 41),
        (1, 3, 5, 1, 37),
        strict=True,
    )
]
IMAGES = [
    dict(K=k, E=e, ratios=r, side=n, B=b)
    for (k, e), r, n, b in zip(
        K_E, ((7, 5), (3, 13), (5, 3), (11, 2), (2, 7)), (5, 7, 3, 2, 11), (1, 3, 5, 37, 1), strict=True
    )
]
# what ptflops' functions of the pytorch backend bill beside products
ELEMENTS = "ptflops-pytorch"


def readings(config, counters, **inputs):
    model = build(config, device="meta")
    counted = {name: registry.counter(name).read(model, inputs, label="block").macs for name in counters}
    return counted, sum(parameter.numel() for parameter in model.parameters())


def check(counted, exact, elements=0):
    """The factors of a difference say which product is wrong."""
    expected = {name: exact + (elements if name == ELEMENTS else 0) for name in counted}
    wrong = {name: macs - expected[name] for name, macs in counted.items() if macs != expected[name]}
    assert not wrong, {name: sympy.factorint(abs(difference)) for name, difference in wrong.items()}


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("point, counters", by_turns(BLOCKS))
def test_a_block(point, counters, gated):
    K, E, F, dm, T, B = point.values()
    config = MixtureFeedForwardConfig(
        d_model=dm, d_ff=F, num_experts=E, top_k=K, gated=gated, output_bias=gated and K == 2
    )
    counted, params = readings(config, counters, x=torch.empty(B, T, dm, device="meta"))
    matrices = 3 if gated else 2
    exact = B * T * dm * E + matrices * B * T * K * dm * F
    check(counted, exact, B * T * K * F)
    biases = dm * config.output_bias if gated else E * (F + dm)
    assert params == dm * E + matrices * E * dm * F + biases
    form = ledger_of(config, dict(batch_size=B, tgt_len=T))
    assert (form.macs, form.params) == (exact, params)
    assert form.active_params == dm * E + matrices * K * dm * F + (biases if gated else K * (F + dm))


@pytest.mark.parametrize("point, counters", by_turns(LAYERS))
def test_attention_experts_of_several_heads(point, counters):
    K, E, g, c, dm, T, B = point.values()
    D = g * c
    config = make_config(
        dict(
            attention="moa", d_model=dm, num_experts=E, top_k=K, head_dim=D, num_kv_heads=g, gates="selected",
            output_bias=True,
        )
    )  # fmt: skip
    counted, params = readings(config, counters, query=torch.empty(B, T, dm, device="meta"))
    terms = [B * T * dm * E, 2 * B * K * T * dm * D, 2 * B * T * dm * D, 2 * B * K * T * T * D]
    check(counted, sum(terms))
    assert params == dm * E + 2 * E * dm * D + 2 * dm * D + dm
    form = ledger_of(config, dict(batch_size=B, tgt_len=T, src_len=T))
    assert (form.macs, form.params) == (sum(terms), params)


def of_both(values, lengths):
    """Torch's reading, closed form, parameters and active ones of a model with dense blocks and with mixtures."""
    for config in (make_config(values | dict(ffn_num_experts=0, ffn_top_k=0)), make_config(values)):
        model, form = build(config, device="meta"), ledger_of(config, lengths)
        inputs = example_inputs(config, lengths, device="meta")
        counted = registry.counter("torch").read(model, inputs, label="model").macs
        assert sum(parameter.numel() for parameter in model.parameters()) == form.params
        yield counted, form.macs, form.params, form.active_params


def more(values, lengths):
    """What a model with mixtures has more of than one with dense blocks."""
    dense, mixture = of_both(values, lengths)
    return [routed - plain for routed, plain in zip(mixture, dense, strict=True)]


@pytest.mark.parametrize("point", CONVOLUTIONS, ids=point_id)
def test_blocks_of_a_convolution_model(point):
    K, E, F, dm, S, T, B = point.values()
    values = dict(
        model="convolution", convolution="light", attention="mha", num_heads=2, d_model=dm, d_ff=F, vocab_size=41,
        num_weight_heads=2, encoder_kernel_sizes=(3, 5, 7), decoder_kernel_sizes=(3, 11), ffn_num_experts=E,
        ffn_top_k=K,
    )  # fmt: skip
    counted, exact, params, active = more(values, dict(batch_size=B, src_len=S, tgt_len=T))
    rows = 3 * B * S + 2 * B * T
    assert counted == exact == rows * (dm * E + 2 * (K - 1) * dm * F)
    assert params == 5 * (dm * E + (E - 1) * (2 * dm * F + F + dm))
    assert active == 5 * (dm * E + (K - 1) * (2 * dm * F + F + dm))


@pytest.mark.parametrize("point", IMAGES, ids=point_id)
def test_blocks_of_an_image_model(point):
    K, E, ratios, side, B = point.values()
    widths, depths = (10, 21), (2, 1)
    values = dict(
        model="transnext", attention="aggregated", d_model=widths, num_heads=(2, 3), depths=depths, mlp_ratio=ratios,
        pool_ratio=(2, 1), image_size=8 * side, num_classes=7, position_width=5, ffn_num_experts=E, ffn_top_k=K,
    )  # fmt: skip
    counted, exact, params, active = more(values, dict(batch_size=B))
    inner = [2 * ratio * dm // 3 for ratio, dm in zip(ratios, widths, strict=True)]
    stages = list(zip(depths, (4 * side**2, side**2), widths, inner, strict=True))
    # the gated unit has three matrices and nine taps
    macs = sum(n * B * T * (dm * E + 2 * K * dm * F - 3 * dm * F - 9 * F) for n, T, dm, F in stages)
    assert counted == exact == macs

    def held(experts):
        unit = [3 * dm * F + 2 * F + 9 * F + F + dm for _, _, dm, F in stages]
        mixture = [dm * E + experts * (2 * dm * F + F + dm) for _, _, dm, F in stages]
        return sum(n * (b - a) for (n, *_), a, b in zip(stages, unit, mixture, strict=True))

    assert (params, active) == (held(E), held(K))
