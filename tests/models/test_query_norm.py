"""The query-norm router where its score has no meaning: equal norms, and queries of zero."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
IMPLS = [("released", "reference"), ("released", "fused"), ("released", "ragged"), ("ideal", "reference")]


def made(moh_form, impl, dtype, **sizes):
    sizes = dict(d_model=13, num_heads=5, num_shared_heads=2, top_k=1, head_dim=7) | sizes
    config = MixtureOfHeadAttentionConfig(**sizes, router="query_norm", form=moh_form)
    layer = build(config, dtype=dtype, impl=impl)
    x = torch.randn(3, 11, 13, generator=torch.Generator().manual_seed(1)).to(dtype)
    return layer, x.requires_grad_()


def assert_finite(layer, x, **masks):
    y = layer(x, **masks)
    y.float().square().sum().backward()
    found = {"output": y, "input": x.grad} | {name: p.grad for name, p in layer.named_parameters()}
    assert [name for name, value in found.items() if value is not None and not value.isfinite().all()] == []
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("moh_form, impl", IMPLS)
def test_duplicated_heads_share_score(moh_form, impl, dtype):
    layer, x = made(moh_form, impl, dtype)
    with torch.no_grad():
        # three routed heads of equal queries, with norms far above 4
        layer.q_proj.weight[14:] = layer.q_proj.weight[14:21].repeat(3, 1) * 31
    layer.router.record_routing = True
    assert_finite(layer, x)
    probs = layer.router.recorded.routing.probs
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("moh_form, impl", IMPLS)
def test_zero_queries_have_finite_gradients(moh_form, impl, dtype):
    layer, x = made(moh_form, impl, dtype)
    with torch.no_grad():
        x[0, 2] = 0
        x[1] = 0
        layer.q_proj.weight[21:28] = 0
    masks = {}
    if impl != "ragged":
        padding = torch.zeros(3, 11, dtype=torch.bool)
        padding[1] = padding[2, 5:] = True
        masks = dict(key_padding_mask=padding, query_padding_mask=padding)
    assert_finite(layer, x, **masks)
    assert layer.q_proj.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("scale", [1e-3, 300.0])
def test_half_precision_norms_do_not_overflow(scale):
    layer, x = made("released", "fused", torch.float16)
    with torch.no_grad():
        layer.q_proj.weight *= scale
    layer.router.record_routing = True
    layer(x)
    probs = layer.router.recorded.routing.probs
    layer.double()(x.double())
    # scores do not depend on the scale of the queries
    torch.testing.assert_close(probs.double(), layer.router.recorded.routing.probs, rtol=0.02, atol=0.01)
