"""Routing, ordering and products of the Triton kernels equal plain float64, forward and backward."""

import pytest
import torch

from headcount.models.configs.moa import Gates
from headcount.models.kernels import triton_ops as ops
from tests.models.triton_cases import (
    DEVICE,
    DTYPES,
    TRITON,
    assert_gradients_near,
    assert_near,
    differentiable,
    features,
)

pytestmark = TRITON

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
    inputs, (x, w) = differentiable(
        features(n, d, dtype=dtype), features(num_experts, d, dtype=dtype, seed=1, scale=d**-0.5)
    )
    gates, experts, order, ends, logits = ops.route(*inputs, top_k, gate, True)
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
    both = (torch.cat(pair, dim=-1) for pair in ((gates, logits), (weights, expected)))
    assert_gradients_near(*both, inputs, [x, w], dtype)


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


def spread(inputs, extra, order, ends, top_k, experts):
    """The operator, and the products of its float64 ``inputs`` without it: (N, d) to a row for each slot."""

    def expected(x, w, bias=None):
        rows = torch.einsum("nd,nkdf->nkf", x, w[experts])
        return (rows if bias is None else rows + bias[experts]).flatten(0, 1)

    return ops.spread(*inputs, *extra, order, ends, top_k), expected


def collect(inputs, extra, order, ends, top_k, experts):
    """The operator, and the sums of its float64 ``inputs`` without it: a row for each slot to (N, d)."""

    def expected(x, w, gates=None):
        rows = x if gates is None else x * gates[:, None]
        return torch.einsum("nkf,nkfd->nd", rows.view(*experts.shape, -1), w[experts])

    return ops.collect(*inputs, *extra, order, ends, top_k), expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_third", [False, True], ids=["plain", "with-bias-or-gates"])
@pytest.mark.parametrize("operator", [spread, collect])
@pytest.mark.parametrize("name", SELECTIONS)
def test_products_of_rows_match_reference(name, operator, has_third, dtype):
    experts, num_experts = selection(name)
    (n, top_k), (d, out) = experts.shape, WIDTHS
    rows, third = (n, features(num_experts, out, dtype=dtype, seed=2))
    if operator is collect:
        rows, third = n * top_k, features(n * top_k, seed=2)
    x, w = features(rows, d, dtype=dtype), features(num_experts, d, out, dtype=dtype, seed=1, scale=d**-0.5)
    inputs, leaves = differentiable(x, w, *([third] if has_third else []))
    order, ends = ops.plan(experts[None], num_experts)
    found, expected = operator(inputs, [] if has_third else [None], order, ends, top_k, experts.long())
    gradients_found = assert_gradients_near(found, expected(*leaves), inputs, leaves, dtype)
    idle = torch.bincount(experts.flatten().long(), minlength=num_experts) == 0
    assert not gradients_found[1][idle].any()


def test_spread_accepts_any_strides():
    experts, num_experts = selection("N19-E5-K2")
    order, ends = ops.plan(experts[None], num_experts)
    x, w = features(19, 24), features(num_experts, 24, 20)
    expected = ops.spread(x, w, None, order, ends, 2)
    turned = w.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(ops.spread(x, turned, None, order, ends, 2), expected)
    assert torch.equal(ops.spread(x, w.transpose(1, 2).contiguous().transpose(1, 2), None, order, ends, 2), expected)
