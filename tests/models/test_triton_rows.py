"""Routing, ordering and products of the Triton kernels equal plain float64, forward and backward."""

import pytest
import torch

from headcount.models.configs.moa import Gates
from headcount.models.kernels import triton_ops as ops
from tests.models.triton_cases import DEVICE, DTYPES, assert_near, features, gradients, memory_full_of_nan, needs_triton

pytestmark = needs_triton
__all__ = ["memory_full_of_nan"]

# N tokens of width d, E experts, K of them: ragged, all, one token, more experts than a tile has columns
ROUTINGS = {
    "N37-d24-E7-K3": (37, 24, 7, 3),
    "N19-d40-E5-K5": (19, 40, 5, 5),
    "N1-d24-E5-K2": (1, 24, 5, 2),
    "N33-d20-E37-K4": (33, 20, 37, 4),
}
# experts of tokens: balanced, all to the same ones, two of three idle, one token
SELECTIONS = {
    "N19-E5-K2": lambda: torch.stack([torch.randperm(5)[:2] for _ in range(19)]),
    "N17-E4-K3-skewed": lambda: torch.tensor([[3, 0, 1]]).expand(17, 3),
    "N17-E3-K1-idle": lambda: torch.full((17, 1), 1),
    "N1-E3-K2": lambda: torch.tensor([[2, 0]]),
}
WIDTHS = (24, 20)


def selection(name):
    torch.manual_seed(1)
    experts = SELECTIONS[name]()
    return experts.to(DEVICE, torch.int32), int(name.split("-")[1][1:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gate", Gates)
@pytest.mark.parametrize("sizes", ROUTINGS.values(), ids=ROUTINGS)
def test_route_matches_softmax_top_k(sizes, gate, dtype):
    n, d, num_experts, top_k = sizes
    inputs = [features(n, d, dtype=dtype), features(num_experts, d, dtype=dtype, seed=1, scale=d**-0.5)]
    for x in inputs:
        x.requires_grad_()
    gates, experts, order, ends, logits = ops.route(*inputs, top_k, gate, True)
    x, w = (t.detach().double().requires_grad_() for t in inputs)
    expected = x @ w.t()
    probs = expected.softmax(-1)
    weights, chosen = probs, None
    if top_k < num_experts:
        weights, chosen = probs.topk(top_k)
        assert torch.equal(experts.long(), chosen)
        rows = torch.sort(chosen.flatten(), stable=True)
        assert torch.equal(order.long(), rows.indices)
        assert ends.tolist() == torch.bincount(chosen.flatten(), minlength=num_experts).cumsum(0).tolist()
        total = weights.sum(-1, keepdim=True)
        weights = {"printed": weights / total.detach(), "released": weights, "selected": weights / total}[gate]
    else:
        assert not order.numel() and not ends.numel()
    assert_near(gates, weights, dtype, "gates")
    assert_near(logits, expected, dtype, "logits")
    ups = features(*gates.shape, seed=2), features(*logits.shape, seed=3)
    found = gradients([gates, logits], inputs, ups)
    for name, a, b in zip("xw", found, gradients([weights, expected], [x, w], [t.double() for t in ups]), strict=True):
        assert_near(a, b, dtype, name)


def test_ties_select_lower_expert():
    gates, experts, *_ = ops.route(features(3, 16), torch.zeros(7, 16, device=DEVICE), 3, Gates.PRINTED, False)
    assert experts.tolist() == [[0, 1, 2]] * 3
    torch.testing.assert_close(gates, torch.full_like(gates, 1 / 3))


def test_gradient_without_logits_raises():
    x = features(3, 16).requires_grad_()
    with pytest.raises(RuntimeError, match="with_logits=True"):
        ops.route(x, features(7, 16), 3, Gates.PRINTED, False)


@pytest.mark.parametrize("groups, length", [(1, 21), (3, 19), (4, 1)])
def test_plan_sorts_groups_by_expert(groups, length):
    torch.manual_seed(3)
    experts = torch.stack([torch.randperm(6)[:3] for _ in range(groups * length)]).view(groups, length, 3)
    order, ends = ops.plan(experts.to(DEVICE, torch.int32), 6)
    by_group = (torch.arange(groups)[:, None, None] * 6 + experts).flatten()
    assert order.tolist() == torch.sort(by_group, stable=True).indices.tolist()
    assert ends.tolist() == torch.bincount(by_group, minlength=groups * 6).cumsum(0).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_spread_matches_reference(name, biased, dtype):
    experts, num_experts = selection(name)
    (n, top_k), (d, out) = experts.shape, WIDTHS
    inputs = [features(n, d, dtype=dtype), features(num_experts, d, out, dtype=dtype, seed=1, scale=d**-0.5)]
    inputs += [features(num_experts, out, dtype=dtype, seed=2)] if biased else []
    for x in inputs:
        x.requires_grad_()
    order, ends = ops.plan(experts[None], num_experts)
    y = ops.spread(*inputs, *(() if biased else (None,)), order, ends, top_k)
    leaves = [x.detach().double().requires_grad_() for x in inputs]
    expected = torch.einsum("nd,nkdf->nkf", leaves[0], leaves[1][experts.long()])
    expected = (expected + leaves[2][experts.long()] if biased else expected).flatten(0, 1)
    assert_near(y, expected, dtype, "rows")
    up = features(*y.shape, dtype=dtype, seed=3)
    found = gradients(y, inputs, up)
    for part, a, b in zip(("x", "w", "bias"), found, gradients(expected, leaves, up.double()), strict=False):
        assert_near(a, b, dtype, part)
    idle = torch.bincount(experts.flatten().long(), minlength=num_experts) == 0
    assert not found[1][idle].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_collect_matches_reference(name, gated, dtype):
    experts, num_experts = selection(name)
    (n, top_k), (out, d) = experts.shape, WIDTHS
    x = features(n * top_k, d, dtype=dtype)
    w = features(num_experts, d, out, dtype=dtype, seed=1, scale=d**-0.5)
    inputs = [x, w, features(n * top_k, seed=2)] if gated else [x, w]
    for t in inputs:
        t.requires_grad_()
    order, ends = ops.plan(experts[None], num_experts)
    y = ops.collect(*inputs, *(() if gated else (None,)), order, ends, top_k)
    leaves = [t.detach().double().requires_grad_() for t in inputs]
    rows = leaves[0] * leaves[2][:, None] if gated else leaves[0]
    expected = torch.einsum("nkf,nkfd->nd", rows.view(n, top_k, d), leaves[1][experts.long()])
    assert_near(y, expected, dtype, "tokens")
    up = features(*y.shape, dtype=dtype, seed=3)
    found = gradients(y, inputs, up)
    for part, a, b in zip(("x", "w", "gates"), found, gradients(expected, leaves, up.double()), strict=False):
        assert_near(a, b, dtype, part)
    idle = torch.bincount(experts.flatten().long(), minlength=num_experts) == 0
    assert not found[1][idle].any()


def test_spread_accepts_any_strides():
    experts, num_experts = selection("N19-E5-K2")
    order, ends = ops.plan(experts[None], num_experts)
    x, w = features(19, 24), features(num_experts, 24, 20)
    expected = ops.spread(x, w, None, order, ends, 2)
    turned = w.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(ops.spread(x, turned, None, order, ends, 2), expected)
    assert torch.equal(ops.spread(x, w.transpose(1, 2).contiguous().transpose(1, 2), None, order, ends, 2), expected)
