"""The query-norm router with equal norms, zero queries and large queries."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from tests.cases import features, padding

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
every_impl = pytest.mark.parametrize(
    "form, impl", [("released", "reference"), ("released", "fused"), ("released", "ragged"), ("ideal", "reference")]
)


def make_layer(form, impl, dtype):
    sizes = dict(d_model=13, num_heads=5, num_shared_heads=2, top_k=1, head_dim=7)
    config = MixtureOfHeadAttentionConfig(**sizes, router="query_norm", form=form)
    layer = build(config, dtype=dtype, impl=impl)
    layer.router.record_routing = True
    return layer, features(3, 11, 13, seed=1).to(dtype).requires_grad_()


def assert_finite(layer, x, **masks):
    y = layer(x, **masks)
    y.float().square().sum().backward()
    found = {"output": y, "input": x.grad} | {name: p.grad for name, p in layer.named_parameters()}
    assert [name for name, value in found.items() if value is not None and not value.isfinite().all()] == []


@every_dtype
@every_impl
def test_duplicated_heads_share_score(form, impl, dtype):
    layer, x = make_layer(form, impl, dtype)
    with torch.no_grad():
        # three routed heads of equal queries, with norms far above 4
        layer.q_proj.weight[14:] = layer.q_proj.weight[14:21].repeat(3, 1) * 31
    assert_finite(layer, x)
    probs = layer.router.recorded.probs
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / 3))


@every_dtype
@every_impl
def test_zero_queries_have_finite_gradients(form, impl, dtype):
    layer, x = make_layer(form, impl, dtype)
    with torch.no_grad():
        x[0, 2] = 0
        x[1] = 0
        layer.q_proj.weight[21:28] = 0
    hidden = padding((11, 0, 5), 11)
    assert_finite(layer, x, **{} if impl == "ragged" else dict(key_padding_mask=hidden, query_padding_mask=hidden))
    assert layer.q_proj.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("scale", [1e-3, 300.0])
def test_half_precision_norms_do_not_overflow(scale):
    layer, x = make_layer("released", "fused", torch.float16)
    with torch.no_grad():
        layer.q_proj.weight *= scale
    layer(x)
    probs = layer.router.recorded.probs
    layer.double()(x.double())
    # scores do not depend on the scale of the queries
    torch.testing.assert_close(probs.double(), layer.router.recorded.probs, rtol=0.02, atol=0.01)
