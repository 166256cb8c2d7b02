"""Properties of every attention variant and implementation: gradients, masks, caches, precisions, invalid inputs."""

import math
from dataclasses import replace

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.kernels import grouped
from headcount.models.rotary import rotary_table
from tests.cases import (
    LAYERS,
    assert_close,
    cases,
    configurations,
    features,
    make_layer,
    padding,
    precision,
    randomise,
    takes_keys,
)  # fmt: skip

VARIED = ("form", "router", "gates", "gate")
# lengths T and S, causal, and the numbers of real queries and keys
SITUATIONS = {
    "T1": (1, None, False, None, None),
    "T7-S11": (7, 11, False, None, None),
    "T7-causal": (7, None, True, None, None),
    "T5-S11-causal": (5, 11, True, None, None),
    "T7-padded": (7, None, False, (7, 2), (7, 2)),
    "T7-causal-padded": (7, None, True, (7, 2), (7, 2)),
    "T7-S11-no-visible-key": (7, 11, False, None, (11, 0)),
}
# Triton kernels are compared in test_triton_layers.py
MASKED = [case for case in cases(*VARIED) if case.values[1].masks and not case.values[1].package]
STEPPED = [c for c in MASKED if not c.values[0].no_step and getattr(c.values[0], "gate", "") != "memory"]


def make_reference(config, impl):
    """Return the reference in float64; of MoH's query norms that of the form whose gradient ``impl`` has."""
    form = impl.gradient or config.form if getattr(config, "router", "") == "query_norm" else "released"
    return randomise(build(replace(config, form=form) if hasattr(config, "form") else config, dtype=torch.float64))


def outcome(layer, sequences, **masks):
    """Return the output, the losses and the gradients of every sequence and parameter."""
    sequences = [x.to(next(layer.parameters()).dtype).detach().requires_grad_() for x in sequences]
    torch.manual_seed(11)
    out = layer.train()(*sequences, **masks)
    up, loss = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out), losses.auxiliary_loss(layer)
    leaves = [*sequences, *layer.parameters()]
    return [out, loss, *torch.autograd.grad((out * up).sum() + loss, leaves, materialize_grads=True)]


def make_situation(config, situation):
    """Return sequences and masks of a situation."""
    tgt, src, causal, queries, keys = SITUATIONS[situation]
    # strides of a transposed tensor: an implementation must not read the rows in order of memory
    sequences = [features(n, 2, config.d_model, seed=n).transpose(0, 1) for n in (tgt, src) if n]
    masks = {"causal": causal}
    masks |= {"query_padding_mask": padding(queries, tgt)} if queries else {}
    masks |= {"key_padding_mask": padding(keys, src or tgt)} if keys else {}
    return sequences, masks


def compare(layer, reference, sequences, **masks):
    """Assert equal outputs, losses and gradients, and an equal output under no_grad."""
    expected, found = (outcome(one, sequences, **masks) for one in (reference, layer))
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all()
        assert_close(one, other)
    with torch.no_grad():
        torch.manual_seed(11)
        assert_close(layer(*(x.to(found[0].dtype) for x in sequences), **masks), expected[0])
    return found


@pytest.mark.parametrize(
    "config, impl, situation",
    [
        pytest.param(*case.values, situation, id=f"{case.id}-{situation}")
        for case in MASKED
        # tests/equations.py compares MoA and MoH with numpy in every situation
        for situation in (("T1", "T7-causal-padded") if case.values[0].variant in ("moa", "moh") else SITUATIONS)
    ],
)
def test_implementation_matches_reference(config, impl, situation):
    sequences, masks = make_situation(config, situation)
    gate = getattr(config, "gate", "")
    if (gate == "sequence" and masks["causal"]) or (gate == "memory" and len(sequences) == 1):
        pytest.skip("the gate reads other tokens")
    compare(make_layer(config, impl)[0], make_reference(config, impl), sequences, **masks)


@pytest.mark.parametrize("sizes", [dict(d_model=11, head_dim=5), dict(d_model=24, head_dim=8)], ids=["odd", "even"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_grouped_mm_matches_reference(situation, sizes, monkeypatch):
    """Test the path of CUDA on the CPU, where torch has no float64 grouped product."""
    monkeypatch.setattr(grouped, "has_fast_path", lambda device, dtype: True)
    config = make_config(dict(attention="moa", num_experts=7, top_k=3, bias=True, **sizes))
    sequences, masks = make_situation(config, situation)
    expected, found = (
        outcome(randomise(build(config, impl=impl)), sequences, **masks) for impl in ("reference", "grouped")
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("impl", ["gathered", "dense-all", "grouped", "loop"])
@pytest.mark.parametrize(
    "top_k, preference",
    [
        (3, (3.0, 2.0, 0.0, 0.0, -2.0, -40.0, 0.0)),
        (3, (30.0, 30.0, -30.0, 30.0, -30.0, -30.0, -30.0)),
        (1, (-30.0, -30.0, -30.0, -30.0, -30.0, -30.0, 30.0)),
    ],
    ids=["skewed-with-an-empty-expert", "three-experts-of-seven", "all-tokens-to-the-last-expert"],
)
def test_any_load_matches_reference(impl, top_k, preference):
    config = make_config(dict(attention="moa", d_model=11, num_experts=7, top_k=top_k, head_dim=5, bias=True))
    layers = [randomise(build(config, dtype=torch.float64, impl=name)) for name in (impl, "reference")]
    x = features(3, 13, 11)
    x[..., 0] = 1
    for layer in layers:
        with torch.no_grad():
            layer.router.proj.weight[:, 0] = torch.tensor(preference, dtype=torch.float64)
    compare(*layers, [x])
    losses.record_routing(layers[0])
    layers[0](x)
    indices = layers[0].router.recorded.indices
    assert 5 not in indices and indices.shape == (3, 13, top_k)


@pytest.mark.parametrize("config, impl", [case for case in LAYERS if case.values[0].variant == "moa"])
def test_frozen_weights_get_no_gradient(config, impl):
    layer, inputs = make_layer(config, impl)
    layer.q_proj.requires_grad_(False)
    layer.out_proj.requires_grad_(False)
    query = inputs["query"].requires_grad_()
    layer(query).square().sum().backward()
    without = {name for name, p in layer.named_parameters() if p.grad is None}
    assert without == {"q_proj.weight", "out_proj.weight"} and query.grad.any()


@pytest.mark.parametrize("config, impl", MASKED)
@torch.no_grad()
def test_padding_has_no_influence(config, impl):
    layer, inputs = make_layer(config, impl)
    query, key = inputs.values()
    found = layer(query, key, key_padding_mask=padding((8, 11), 11), query_padding_mask=padding((5, 7), 7))
    assert_close(found[0, :5], layer(query[:1, :5], key[:1, :8])[0])
    assert_close(found[1], layer(query[1:], key[1:])[0])
    assert not found[0, 5:].any() and found[0, :5].all()


@pytest.mark.parametrize("config, impl", [case for case in LAYERS if case.values[1].masks])
def test_fully_padded_sequences_are_zero_without_loss(config, impl):
    layer, inputs = make_layer(config, impl)
    hidden = torch.ones(2, 7, dtype=torch.bool)
    out, loss, *grads = outcome(layer, [inputs["query"]], key_padding_mask=hidden, query_padding_mask=hidden)
    assert loss == 0 and not any(x.any() for x in (out, *grads))


# an interpreted kernel computes by numpy, which warns
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("config, impl", LAYERS)
def test_nan_stays_in_its_sequence(config, impl):
    layer, inputs = make_layer(config, impl)
    with torch.no_grad():
        expected = layer(inputs["query"])[1]
    query = inputs["query"].clone()
    query[0, 2] = float("nan")
    query.requires_grad_()
    out = layer.train()(query)
    # every query of the first sequence sees it
    assert out[0].isnan().all()
    assert_close(out[1], expected)
    out[1].square().sum().backward()
    assert query.grad[1].isfinite().all() and query.grad[1].any()


@pytest.mark.parametrize("sizes", [[1, 1, 5, 1, 5], [7, 1, 1, 1, 3]], ids=["from-one-token", "prefill"])
@pytest.mark.parametrize("config, impl", STEPPED)
@torch.no_grad()
def test_decoding_matches_causal_forward(config, impl, sizes):
    layer = make_layer(config, impl)[0]
    x, value = (features(3, 13, config.d_model, seed=seed).to(precision(impl)) for seed in (1, 2))

    def extras(start, length):
        """Return rotary positions if the layer takes them, and separate values."""
        given = {"value": value[:, start : start + length]} if config.takes_values else {}
        if config.rotary:
            given["rotary"] = rotary_table(length, config.rotary_width, 1e4, start=start, dtype=x.dtype)
        return given

    expected, cache, pieces = layer(x, causal=True, **extras(0, 13)), layer.make_cache(3, 17), []
    for chunk in x.split(sizes, dim=1):
        pieces.append(layer(chunk, cache=cache, **extras(cache.length, chunk.shape[1])))
    assert_close(torch.cat(pieces, dim=1), expected)
    assert cache.length == 13


@pytest.mark.parametrize("config, impl", STEPPED)
@torch.no_grad()
def test_left_padding_stays_hidden_while_decoding(config, impl):
    layer, x = make_layer(config, impl)[0], features(2, 11, config.d_model).to(precision(impl))
    hidden = ~padding((0, 3), 11)
    hidden[0] = False
    cache, pieces = layer.make_cache(2, 11), []
    for start, stop in ((0, 5), (5, 6), (6, 11)):
        masks = dict(key_padding_mask=hidden[:, :stop], query_padding_mask=hidden[:, start:stop])
        pieces.append(layer(x[:, start:stop], cache=cache, **masks))
    decoded = torch.cat(pieces, dim=1)
    assert_close(decoded[0], layer(x[:1], causal=True)[0])
    real = hidden[1].logical_not().nonzero().flatten()
    assert_close(decoded[1, real], layer(x[1:, real], causal=True)[0])
    assert not decoded[1, hidden[1]].any()


@pytest.mark.parametrize("config, impl", STEPPED)
@torch.no_grad()
def test_filled_cache_matches_keys(config, impl):
    layer, inputs = make_layer(config, impl)
    query, key = inputs.values()
    hidden, sources = padding((11, 2), 11), (key, key.flip(1)) if config.takes_values else (key,)
    cache = layer.fill_cache(*sources)
    found = layer(query, cache=cache, key_padding_mask=hidden)
    assert_close(found, layer(query, *sources, key_padding_mask=hidden))
    assert cache.closed and cache.length == 11


@pytest.mark.parametrize("name, config", [(n, c) for n, c in configurations("form") if not c.no_step])
def test_cache_dtype_and_device(name, config):
    layer = build(config, dtype=torch.bfloat16)
    cache = layer.make_cache(3, 17)
    assert cache.key.dtype == torch.bfloat16
    layer(torch.zeros(3, 5, config.d_model, dtype=torch.bfloat16), cache=cache)
    assert not cache.key.requires_grad and not cache.value.requires_grad
    other = layer.make_cache(1, 2, device="meta", dtype=torch.float64)
    assert other.key.is_meta and other.value.dtype == torch.float64


@pytest.mark.parametrize("shape", [(2, 0), (0, 7)], ids=str)
@pytest.mark.parametrize("name, config", list(configurations()))
def test_empty_query_raises(name, config, shape):
    layer, inputs = make_layer(config, config.implementations[0])
    with pytest.raises(ValueError, match=f"^query holds no tokens: {shape[0]} sequences of {shape[1]}$"):
        layer(inputs["query"].new_zeros(*shape, config.d_model))


@pytest.mark.parametrize(
    "config, impl",
    [c for c in cases("form") if takes_keys(c.values[0]) and not c.values[0].takes_values],
)
def test_unsupported_values_raise(config, impl):
    layer, inputs = make_layer(config, impl)
    query, key = inputs.values()
    with pytest.raises(ValueError, match=f"^{config.variant} makes keys and values of one sequence: leave value out$"):
        layer(query, key, key)


ROTARY = rotary_table(7, 14, 1e4, dtype=torch.float64)
WRONG_CALLS = {
    "give key or cache, not both": lambda layer, q, k: layer(q, k, cache=layer.fill_cache(k)),
    "the cache is closed": lambda layer, q, k: layer.fill_cache(k).append(*layer.fill_cache(k).stored),
    "the cache has room for 10 tokens, not 11": lambda layer, q, k: layer(k, cache=layer.make_cache(2, 10)),
    "a closed cache has its values": lambda layer, q, k: layer(q, value=k, cache=layer.fill_cache(k)),
    "value must have as many tokens as the keys, 11, not 7": lambda layer, q, k: layer(q, k, q),
    "value must have as many tokens as the keys, 7, not 11": lambda layer, q, k: layer.fill_cache(q, k),
    "rotary positions are those of the queries": lambda layer, q, k: layer(q, k, rotary=ROTARY),
    "key holds no tokens: a query without keys": lambda layer, q, k: layer(q, k[:, :0]),
    "key holds no tokens": lambda layer, q, k: layer.fill_cache(k[:, :0]),
}


@pytest.mark.parametrize("message", WRONG_CALLS)
@pytest.mark.parametrize("variant", ["mha", "moh"])
def test_wrong_calls_raise(variant, message):
    config = next(config for _, config in configurations() if config.variant == variant)
    layer, inputs = make_layer(config, config.implementations[0])
    with pytest.raises(ValueError, match=f"^{message}"):
        WRONG_CALLS[message](layer, *inputs.values())


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name, config", [c for c in configurations() if c[0] in ("mha", "moa")])
@torch.no_grad()
def test_attention_dropout_only_in_training(name, config, causal):
    query = features(2, 5, config.d_model)
    plain, layer = (randomise(build(replace(config, attention_dropout=p), dtype=torch.float64)) for p in (0.0, 0.4))
    expected = plain(query, causal=causal)
    assert torch.equal(layer(query, causal=causal), expected)
    layer.train()
    torch.manual_seed(3)
    assert (layer(query, causal=causal) - expected).abs().max() > 0.01
    # dropped weights are rescaled, and everything after them is linear: the mean over draws is the plain output
    draws = [layer(query.repeat(500, 1, 1), causal=causal).unflatten(0, (500, 2)) for _ in range(6)]
    assert (torch.cat(draws).mean(0) - expected).abs().max() < 0.08 * expected.abs().max()


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 10**9])
@pytest.mark.parametrize("name, config", [c for c in configurations("gates") if c[1].variant == "moa"])
def test_chunks_keep_output_and_gradient(name, config, chunk_bytes, monkeypatch):
    layer, inputs = make_layer(config, config.implementations[0])
    expected = outcome(layer, inputs.values())
    products, bmm = [], torch.bmm
    monkeypatch.setattr("headcount.models.experts.GATHERED_BYTES", chunk_bytes)
    monkeypatch.setattr(torch, "bmm", lambda a, b: products.append(len(a)) or bmm(a, b))
    chunked = layer(*inputs.values())
    rows, per_chunk = 2 * 7 * config.top_k, max(1, chunk_bytes // (config.d_model * config.head_dim * 8))
    assert sum(products) == 2 * rows and len(products) == 2 * math.ceil(rows / per_chunk)
    assert_close(chunked, expected[0])
    for one, other in zip(outcome(layer, inputs.values()), expected, strict=True):
        assert_close(one, other)


PRECISIONS = {"bfloat16": (torch.bfloat16, None), "autocast-float16": (torch.float32, torch.float16)}


# SwitchHead selects by two routers: rounding to 16 bits selects other experts
@pytest.mark.parametrize("dtype, autocast", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize(
    "config, impl", [c for c in LAYERS if c.values[0].variant != "switchhead" and not c.values[1].package]
)
def test_every_precision_matches_float64(config, impl, dtype, autocast):
    layer, inputs = make_layer(config, impl)
    layer, x = layer.to(dtype), inputs["query"].to(dtype).requires_grad_()

    def is_near(found, expected):
        # one part in 2^7 is bfloat16's last place; sums of a few products lose a little more
        difference = torch.linalg.vector_norm(found.detach().double() - expected.detach())
        return float(difference / torch.linalg.vector_norm(expected.detach())) < 0.03

    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        y = layer(x)
        if config.takes_values and impl.masks and not config.no_step:
            with torch.no_grad():
                cache = layer.make_cache(2, 7)
                steps = torch.cat([layer(x[:, i : i + 1], cache=cache) for i in range(7)], dim=1)
                assert is_near(steps, layer(x, causal=True).double())
    y.float().square().sum().backward()
    grads = [x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]
    assert all(grad.dtype == dtype and grad.isfinite().all() for grad in grads)
    reference, exact = make_reference(config, impl), x.detach().double().requires_grad_()
    reference.load_state_dict(layer.state_dict())
    expected = reference(exact)
    expected.square().sum().backward()
    assert is_near(y, expected) and is_near(x.grad, exact.grad)
