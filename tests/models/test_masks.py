"""Masked positions have no influence on the output."""

import pytest
import torch

from headcount.models.attention import attend
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config

DENSE = {"attention": "mha", "num_heads": 3, "head_dim": 5}
LAYERS = {
    "mha-h3-dh5-dm13": DENSE,
    "gqa-h6-g2-dh5-dm13": {**DENSE, "num_heads": 6, "num_kv_heads": 2},
    "moa-K3-E11-D5-dm13": {"attention": "moa", "num_experts": 11, "top_k": 3, "head_dim": 5, "bias": True},
}
SIZES = {"d_model": 13, "d_ff": 17, "vocab_size": 19}
ENCODER_DECODER = {**SIZES, "model": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 2}
LENGTHS = {"batch_size": 2, "src_len": 7, "tgt_len": 5, "seq_len": 7}

pytestmark = pytest.mark.parametrize("attention", LAYERS.values(), ids=LAYERS)


def make(fields):
    """A module in float64 without any zero bias, and its inputs."""
    config = make_config(fields)
    module = build(config, dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    options = {} if "model" in fields else {"dtype": torch.float64}
    return module, example_inputs(config, LENGTHS, **options)


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def padding(real, total):
    """A mask for two sequences with ``real`` tokens each, out of ``total``."""
    return torch.arange(total) >= torch.tensor(real)[:, None]


def test_encoder_decoder_ignores_padding(attention):
    model, inputs = make({**attention, **ENCODER_DECODER})
    src_mask, tgt_mask = padding([4, 7], 7), padding([5, 3], 5)
    plain = model(**inputs, src_padding_mask=src_mask, tgt_padding_mask=tgt_mask)
    src, tgt = ((tokens + 1) % 19 for tokens in inputs.values())
    changed = model(
        torch.where(src_mask, src, inputs["src_tokens"]),
        torch.where(tgt_mask, tgt, inputs["tgt_tokens"]),
        src_mask,
        tgt_mask,
    )
    assert_same(changed[~tgt_mask], plain[~tgt_mask])
    alone = model(inputs["src_tokens"][:1, :4], inputs["tgt_tokens"][:1])
    assert_same(plain[:1], alone)
    alone = model(inputs["src_tokens"][1:], inputs["tgt_tokens"][1:, :3])
    assert_same(plain[1:, :3], alone)
    assert (model(**inputs)[0] - plain[0]).abs().max() > 1e-4


def test_padded_queries_give_zeros(attention):
    layer, inputs = make({**attention, "d_model": 13})
    mask = padding([2, 5], 5)
    plain, masked = layer(**inputs), layer(**inputs, query_padding_mask=mask)
    assert masked[mask].eq(0).all()
    assert torch.equal(masked[~mask], plain[~mask])
    assert plain[mask].ne(0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_no_visible_key_gives_zeros(attention, dtype):
    heads = attention.get("num_heads", 3)
    kv_heads = attention.get("num_kv_heads", 1 if attention["attention"] == "moa" else heads)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, length, n, 5, generator=generator).to(dtype).requires_grad_()
        for length, n in ((5, heads), (7, kv_heads), (7, kv_heads))
    )
    out = attend(q, k, v, key_padding_mask=padding([0, 3], 7))
    assert out[0].eq(0).all()
    assert out[1].ne(0).all()
    out.sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert x.grad[0].eq(0).all()
        assert x.grad[1].ne(0).any()


def test_large_scores_stay_finite(attention):
    layer, inputs = make({**attention, "d_model": 13})
    inputs = {name: 1e4 * x for name, x in inputs.items()}
    for mask in (None, padding([4, 7], 7)):
        assert layer(**inputs, key_padding_mask=mask).isfinite().all()


def test_causal_queries_are_last_positions(attention):
    layer, inputs = make({**attention, "d_model": 13})
    whole = layer(inputs["key"], causal=True)
    assert_same(layer(inputs["key"][:, 4:], inputs["key"], causal=True), whole[:, 4:])
