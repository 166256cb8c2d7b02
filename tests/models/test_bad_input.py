"""Edge cases of inputs and sizes: the same result or error for every layer and implementation."""

import pytest
import torch

from headcount.models.losses import auxiliary_loss
from tests.cases import LAYERS, assert_close, cases, made, takes_keys
from tests.models.test_values import reference_of

MASKED = [case for case in LAYERS if case.values[1].masks]
EDGES = {
    "K1-E1": dict(num_experts=1, top_k=1),
    "K-is-E": dict(num_experts=3, top_k=3),
    "one-key": dict(num_kv_heads=1),
    "s-is-h": dict(num_heads=5, num_shared_heads=5, top_k=0),
    "r0": dict(num_heads=5, num_shared_heads=1, top_k=0),
    "s0-r-is-h": dict(num_heads=5, num_shared_heads=0, top_k=5),
    "one-head": dict(num_heads=1, num_shared_heads=1, top_k=0),
}
AT_EDGES = [
    pytest.param(*case.values, id=f"{name}-{case.id}")
    for name, sizes in EDGES.items()
    for case in cases("form", "router", "gates", **sizes)
]


# an interpreted kernel computes by numpy, which warns
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("config, impl", LAYERS)
def test_nan_stays_in_its_sequence(config, impl):
    layer, inputs = made(config, impl)
    clean = inputs["query"]
    with torch.no_grad():
        expected = layer(clean)[1]
    query = clean.clone()
    query[0, 2] = float("nan")
    query.requires_grad_()
    out = layer.train()(query)
    # every query of the first sequence sees it
    assert out[0].isnan().all()
    assert_close(out[1], expected)
    out[1].square().sum().backward()
    assert query.grad[1].isfinite().all() and query.grad[1].any()


@pytest.mark.parametrize("config, impl", MASKED)
def test_fully_padded_sequences_are_zero_without_loss(config, impl):
    layer, inputs = made(config, impl)
    query, hidden = inputs["query"].requires_grad_(), torch.ones(2, 7, dtype=torch.bool)
    out = layer.train()(query, key_padding_mask=hidden, query_padding_mask=hidden)
    loss = auxiliary_loss(layer)
    assert not out.any() and loss == 0
    (out.sum() + loss).backward()
    for grad in (query.grad, *(p.grad for p in layer.parameters() if p.grad is not None)):
        assert not grad.any()


@pytest.mark.parametrize("config, impl", MASKED)
@torch.no_grad()
def test_sequence_without_visible_keys_reads_nothing(config, impl):
    layer, inputs = made(config, impl)
    query = inputs["query"]
    hidden = torch.tensor([[True] * 7, [False] * 7])
    out = layer(query, key_padding_mask=hidden)
    assert_close(out[1], layer(query)[1])
    # whatever the keys and values are
    assert_close(out[0], layer(query, query.flip(1), key_padding_mask=hidden)[0])
    assert out.isfinite().all()


@pytest.mark.parametrize("shape", [(2, 0), (0, 7), (0, 0)], ids=str)
@pytest.mark.parametrize("config, impl", LAYERS)
def test_empty_query_raises(config, impl, shape):
    layer, inputs = made(config, impl)
    with pytest.raises(ValueError, match=f"^query holds no tokens: {shape[0]} sequences of {shape[1]}$"):
        layer(inputs["query"].new_zeros(*shape, config.d_model))


@pytest.mark.parametrize("config, impl", [case for case in LAYERS if takes_keys(case.values[0])])
def test_empty_key_raises(config, impl):
    layer, inputs = made(config, impl)
    query, none = inputs["query"], inputs["key"][:, :0]
    for ask in (lambda: layer(query, none), lambda: layer(query, cache=layer.fill_cache(none))):
        with pytest.raises(ValueError, match="^key holds no tokens: a query without keys has no result of its own$"):
            ask()


def results(layer, query):
    query = query.to(next(layer.parameters()).dtype).requires_grad_()
    out = layer.train()(query)
    (out.square().sum() + auxiliary_loss(layer)).backward()
    return out, query.grad, *(torch.zeros_like(p) if p.grad is None else p.grad for p in layer.parameters())


@pytest.mark.parametrize("config, impl", AT_EDGES)
def test_edge_sizes_equal_reference(config, impl):
    layer, inputs = made(config, impl)
    query = inputs["query"]
    for found, expected in zip(results(layer, query), results(reference_of(config, impl), query.detach()), strict=True):
        assert found.isfinite().all()
        assert_close(found, expected)
