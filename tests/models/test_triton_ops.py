"""Operators of the Triton kernels equal plain float64: routing, ordering, products and attention, with gradients."""

import pytest
import torch

from headcount.models.attention import attend
from headcount.models.configs.moa import Gates
from headcount.models.configs.moh import Gates as HeadGates
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from headcount.models.head_router import HeadRouter
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


def with_half(*values):
    """Return each value with float32, and the last one, which covers the others, with 16 bits too."""
    return [(value, torch.float32) for value in values] + [(values[-1], dtype) for dtype in DTYPES[1:]]


def selection(name):
    """Return int32 experts (N, K) and the number of experts E."""
    torch.manual_seed(1)
    experts = SELECTIONS[name]()
    return experts.to(DEVICE, torch.int32), int(name.split("-")[1][1:])


def plan(experts, num_experts):
    """Return int32 row ids by (group, expert), tokens in order, and where each ends; experts are (groups, n, K)."""
    groups = torch.arange(len(experts), device=DEVICE)[:, None, None]
    keys = (groups * num_experts + experts).flatten()
    ends = torch.bincount(keys, minlength=len(experts) * num_experts).cumsum(0)
    return torch.sort(keys, stable=True).indices.to(torch.int32), ends.to(torch.int32)


@pytest.mark.parametrize(
    "name, gate, dtype",
    [
        *(("N37-d24-E7-K3", gate, torch.float32) for gate in Gates),
        ("N19-d40-E5-K5", Gates.RELEASED, torch.float32),
        ("N1-d24-E5-K2", Gates.SELECTED, torch.float32),
        *(("N33-d20-E37-K4", Gates.PRINTED, dtype) for dtype in DTYPES),
        *(("N19-d40-E5-K5", Gates.PRINTED, dtype) for dtype in DTYPES[1:]),
    ],
)
def test_route_matches_softmax_top_k(name, gate, dtype):
    n, d, num_experts, top_k = ROUTINGS[name]
    inputs, (x, w) = differentiable(
        features(n, d, dtype=dtype), features(num_experts, d, dtype=dtype, seed=1, scale=d**-0.5)
    )
    gates, experts, order, ends, logits = ops.route(*inputs, top_k, gate)
    expected = x @ w.t()
    probs = expected.softmax(-1)
    weights, chosen = probs.topk(top_k)
    assert torch.equal(experts.long(), chosen)
    rows = torch.sort(chosen.flatten(), stable=True)
    assert torch.equal(order.long(), rows.indices)
    assert ends.tolist() == torch.bincount(chosen.flatten(), minlength=num_experts).cumsum(0).tolist()
    total = weights.sum(-1, keepdim=True)
    weights = {"printed": weights / total.detach(), "released": weights, "selected": weights / total}[gate]
    assert_near(gates, weights, dtype, "gates")
    both = (torch.cat(pair, dim=-1) for pair in ((gates, logits), (weights, expected)))
    assert_gradients_near(*both, inputs, [x, w], dtype)


def test_ties_select_lower_expert():
    gates, experts, *_ = ops.route(features(3, 16), torch.zeros(7, 16, device=DEVICE), 3, Gates.PRINTED)
    assert experts.tolist() == [[0, 1, 2]] * 3
    torch.testing.assert_close(gates, torch.full_like(gates, 1 / 3))


@pytest.mark.parametrize("gate", Gates)
def test_close_logits_select_higher(gate):
    # exp of the last three is 0 in float32, and of the first two equal
    logits = torch.tensor([[-300.0, 0.0, -200.0, -(2.0**-30), -250.0]], device=DEVICE)
    x = torch.eye(16, device=DEVICE)[:1]
    w = torch.zeros(5, 16, device=DEVICE)
    w[:, 0] = logits[0]
    gates, experts, *_ = ops.route(x, w, 4, gate)
    assert experts.tolist() == [[1, 3, 2, 4]]
    torch.testing.assert_close(gates, torch.tensor([[0.5, 0.5, 0.0, 0.0]], device=DEVICE))


# B sequences of T tokens of width d, s shared and E routed heads, K of them for a token
ROUTERS = {
    "B2-T19-d24-s3-E5-K2": (2, 19, 24, 3, 5, 2),
    "B1-T37-d20-s1-E7-K3": (1, 37, 20, 1, 7, 3),
    "B3-T5-d40-s0-E4-K1": (3, 5, 40, 0, 4, 1),
    "B2-T17-d24-s2-E3-K3": (2, 17, 24, 2, 3, 3),
    "B2-T1-d24-s9-E33-K7": (2, 1, 24, 9, 33, 7),
}


def assert_heads_selected(found, scores, top_k):
    """Assert that ``found`` has the heads with the highest ``scores``, and their rows by (sequence, head)."""
    heads, _, order, ends = found
    batch_size, length, num_routed = scores.shape
    assert torch.equal(heads.long(), scores.topk(top_k).indices)
    if length == 1:
        assert not order.numel() and not ends.numel()
    else:
        expected = plan(heads, num_routed)
        assert torch.equal(order, expected[0]) and torch.equal(ends, expected[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gate", HeadGates)
@pytest.mark.parametrize("name", ROUTERS)
def test_head_route_matches_softmaxes(name, gate, dtype):
    batch_size, length, width, num_shared, num_routed, top_k = ROUTERS[name]
    config = MixtureOfHeadAttentionConfig(
        d_model=width, num_heads=num_shared + num_routed, num_shared_heads=num_shared, top_k=top_k, gates=gate,
        head_dim=4,
    )  # fmt: skip
    router = HeadRouter(config).to(DEVICE, dtype)
    x, released = features(batch_size, length, width, dtype=dtype), gate is HeadGates.RELEASED
    projections = router.routed_proj, router.shared_proj, router.group_proj
    weights = [None if one is None else one.weight.detach() for one in projections]
    *found, logits = ops.head_route(x, *weights, num_shared, top_k, released)
    expected = router.double()(x.double())[1]
    assert_near(found[1], expected, dtype, "gates")
    exact = x.double() @ weights[0].double().t()
    assert_near(logits, exact, dtype, "logits")
    assert_heads_selected(found, exact, top_k)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROUTERS)
def test_norm_route_selects_longest_queries(name, dtype):
    batch_size, length, width, num_shared, num_routed, top_k = ROUTERS[name]
    q = features(batch_size, length, num_shared + num_routed, width, dtype=dtype)
    found = ops.norm_route(q, num_shared, top_k)
    assert torch.equal(found[1], torch.ones(batch_size, length, num_shared + top_k, device=DEVICE))
    assert_heads_selected(found, q[:, :, num_shared:].double().norm(dim=-1), top_k)


def spread(inputs, extra, order, ends, top_k, experts):
    """Return the operator's result, and a function that maps float64 tokens (N, d) to a row for each slot."""

    def expected(x, w, bias=None):
        rows = torch.einsum("nd,nkdf->nkf", x, w[experts])
        return (rows if bias is None else rows + bias[experts]).flatten(0, 1)

    return ops.spread(*inputs, *extra, order, ends, top_k), expected


def collect(inputs, extra, order, ends, top_k, experts):
    """Return the operator's result, and a function that maps float64 rows of slots to sums (N, d)."""

    def expected(x, w, gates=None):
        rows = x if gates is None else x * gates[:, None]
        return torch.einsum("nkf,nkfd->nd", rows.view(*experts.shape, -1), w[experts])

    return ops.collect(*inputs, *extra, order, ends, top_k), expected


@pytest.mark.parametrize("operator", [spread, collect])
@pytest.mark.parametrize(
    "name, has_third, dtype",
    [
        *((name, True, torch.float32) for name in SELECTIONS),
        *(("N17-E3-K1-idle", *rest) for rest in with_half(False, True) if rest != (True, torch.float32)),
    ],
)
def test_products_of_rows_match_reference(name, has_third, dtype, operator):
    experts, num_experts = selection(name)
    (n, top_k), (d, out) = experts.shape, WIDTHS
    rows, third = (n, features(num_experts, out, dtype=dtype, seed=2))
    if operator is collect:
        rows, third = n * top_k, features(n * top_k, seed=2)
    x, w = features(rows, d, dtype=dtype), features(num_experts, d, out, dtype=dtype, seed=1, scale=d**-0.5)
    inputs, leaves = differentiable(x, w, *([third] if has_third else []))
    order, ends = plan(experts[None], num_experts)
    found, expected = operator(inputs, [] if has_third else [None], order, ends, top_k, experts.long())
    gradients_found = assert_gradients_near(found, expected(*leaves), inputs, leaves, dtype)
    idle = torch.bincount(experts.flatten().long(), minlength=num_experts) == 0
    assert not gradients_found[1][idle].any()


# N tokens, K slots of width D, and width d of the sum
SLOTS = {"N19-K3-D24-d20": (19, 3, 24, 20), "N1-K1-D5-d7": (1, 1, 5, 7), "N33-K5-D16-d33": (33, 5, 16, 33)}


@pytest.mark.parametrize("name, dtype", with_half(*SLOTS))
def test_gated_linear_matches_reference(name, dtype):
    n, top_k, head_dim, width = SLOTS[name]
    x, gates = features(n, top_k, head_dim, dtype=dtype), features(n, top_k, seed=1)
    w = features(top_k * head_dim, width, dtype=dtype, seed=2, scale=(top_k * head_dim) ** -0.5)
    inputs, leaves = differentiable(x, gates, w)
    exact, exact_gates, exact_w = leaves
    expected = (exact * exact_gates[..., None]).flatten(1) @ exact_w
    assert_gradients_near(ops.gated_linear(*inputs), expected, inputs, leaves, dtype)


STRIDES = {
    "spaced": lambda x: torch.stack([x, torch.full_like(x, 7)], -1)[..., 0],
    "turned": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
}


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("operator", ["route", "spread", "collect", "gated_linear"])
def test_operands_may_have_any_strides(operator, strides):
    experts, num_experts = selection("N1-E3-K2")
    w, placed = features(3, 24, 20, seed=1), plan(experts[None], num_experts)
    operate, given = {
        "route": (lambda *given: ops.route(*given, 2, Gates.PRINTED)[0], [features(19, 24), w[:, :, 0]]),
        "spread": (lambda *given: ops.spread(*given, 2), [features(1, 24), w, features(3, 20, seed=2), *placed]),
        "collect": (lambda *given: ops.collect(*given, 2), [features(2, 24), w, features(2, seed=2), *placed]),
        "gated_linear": (ops.gated_linear, [features(19, 2, 12), features(19, 2, seed=2), w[0]]),
    }[operator]

    def results(given):
        inputs = [t.detach().requires_grad_(t.is_floating_point()) for t in given]
        out = operate(*inputs)
        leaves = [t for t in inputs if t.requires_grad]
        return out, *torch.autograd.grad(out, leaves, features(*out.shape, seed=4))

    found, expected = results([STRIDES[strides](t) for t in given]), results(given)
    if operator == "route":
        # its gradients are products of torch, which sums in another order for other strides on some CPUs
        for one, other in zip(found[1:], expected[1:], strict=True):
            assert_near(one, other.double(), torch.float32)
        found, expected = found[:1], expected[:1]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


# B sequences, T queries, S keys, K slots of a token, width D
QUERIES = {
    "B2-T7-S19-K3-D24": (2, 7, 19, 3, 24),
    "B1-T1-S37-K5-D16": (1, 1, 37, 5, 16),
    "B3-T17-S17-K2-D16": (3, 17, 17, 2, 16),
}
# and h heads, the last E of them routed, over g key/value heads; K routed heads for a token
HEADS = {
    "B2-T19-S19-h6-E4-g2-K3-D24": (2, 19, 19, 6, 4, 2, 3, 24),
    "B1-T5-S33-h5-E5-g5-K1-D16": (1, 5, 33, 5, 5, 5, 1, 16),
    "B3-T1-S7-h4-E3-g1-K2-D16": (3, 1, 7, 4, 3, 1, 2, 16),
    # a key/value head of some sequences is read by more rows than a tile has, and others by none
    "B2-T1-S19-h38-E38-g2-K18-D16": (2, 1, 19, 38, 38, 2, 18, 16),
    "B3-T1-S7-h21-E20-g7-K1-D24": (3, 1, 7, 21, 20, 7, 1, 24),
}
MASKS = {"all": (False, False), "causal": (True, False), "padded": (False, True), "causal-padded": (True, True)}


def hidden_keys(batch_size, src_len, is_padded):
    """Return a mask that hides all keys of the last sequence and the last third of the first, or None."""
    if not is_padded:
        return None
    hidden = torch.zeros(batch_size, src_len, dtype=torch.bool, device=DEVICE)
    hidden[0, src_len * 2 // 3 :] = True
    hidden[-1] = True
    return hidden


@pytest.mark.parametrize("mask, dtype", with_half(*MASKS))
@pytest.mark.parametrize("sizes", QUERIES.values(), ids=QUERIES)
def test_mqa_matches_reference(sizes, mask, dtype):
    batch_size, tgt_len, src_len, top_k, head_dim = sizes
    causal, padded = MASKS[mask]
    hidden = hidden_keys(batch_size, src_len, padded)
    q = features(batch_size, tgt_len, top_k, head_dim, dtype=dtype)
    k, v = (features(batch_size, src_len, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    logits = features(batch_size, tgt_len, top_k, dtype=dtype, seed=3)
    exact = (q.double(), k[:, :, None].double(), v[:, :, None].double())
    expected = attend(*exact, causal=causal, key_padding_mask=hidden) * logits.double().softmax(-1)[..., None]
    assert_near(ops.mqa(q, k, v, logits, hidden, causal), expected, dtype)
    if tgt_len == 1:
        step = ops.decode(q[:, 0], k[:, :, None], v[:, :, None], None, logits[:, 0], hidden)[:, None]
        assert_near(step, expected, dtype, "decode")


@pytest.mark.parametrize("widths", [(24, 24, 3), (16, 16, 8)], ids=str)
def test_columns_of_a_packed_product_are_read_in_place(widths):
    """Keys, values and logits as columns of one matrix, whose width no power of two beyond 8 divides."""
    q = features(2, 7, widths[2], widths[0])
    k, v, logits = features(2, 19, sum(widths), seed=1).split(widths, dim=-1)
    expected = ops.mqa(q, *(x.contiguous() for x in (k, v, logits[:, -7:])), None, True)
    assert torch.equal(ops.mqa(q, k, v, logits[:, -7:], None, True), expected)
    last = q[:, -1], k[:, :, None], v[:, :, None], None
    expected = ops.decode(*last, logits[:, -1].contiguous(), None)
    assert torch.equal(ops.decode(*last, logits[:, -1], None), expected)


def test_large_logits_stay_finite():
    q, k, v = (features(2, 5, *sizes, seed=seed) for seed, sizes in enumerate([(3, 16), (16,), (16,)]))
    logits = torch.tensor([[1e4, -1e4, 9e3], [-3e38, 0.0, -3e38]], device=DEVICE)[:, None].expand(2, 5, 3)
    found = ops.mqa(q, k, v, logits, None, False)
    expected = attend(q, k[:, :, None], v[:, :, None])
    used = torch.tensor([0, 1])
    assert_near(found[[0, 1], :, used], expected[[0, 1], :, used].double(), torch.float32)
    assert torch.equal(found.count_nonzero(), found[[0, 1], :, used].count_nonzero())


@pytest.mark.parametrize(
    "name, mask, dtype",
    [
        *((name, "causal-padded", torch.float32) for name in HEADS),
        *(("B2-T19-S19-h6-E4-g2-K3-D24", *rest) for rest in with_half("all", "causal-padded")[::2]),
        *(("B3-T1-S7-h4-E3-g1-K2-D16", *rest) for rest in with_half("all", "causal-padded")[::2]),
    ],
)
def test_selected_heads_match_reference(name, mask, dtype):
    batch_size, tgt_len, src_len, num_heads, num_routed, num_kv_heads, chosen, head_dim = HEADS[name]
    causal, padded = MASKS[mask]
    hidden = hidden_keys(batch_size, src_len, padded)
    torch.manual_seed(5)
    heads = torch.stack([torch.randperm(num_routed)[:chosen] for _ in range(batch_size * tgt_len)])
    heads = heads.view(batch_size, tgt_len, chosen).to(DEVICE, torch.int32)
    q = features(batch_size, tgt_len, num_heads, head_dim, dtype=dtype)
    k, v = (features(batch_size, src_len, num_kv_heads, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    shared = num_heads - num_routed
    gates = features(batch_size, tgt_len, shared + chosen, seed=3)
    every = torch.cat([torch.arange(shared, device=DEVICE).expand(batch_size, tgt_len, -1), shared + heads.long()], -1)
    every = gates.new_zeros(q.shape[:3]).scatter(-1, every, gates).double()
    exact = attend(*(x.double() for x in (q, k, v)), causal=causal, key_padding_mask=hidden)
    expected = exact * every[..., None]
    own = exact[:, :, :shared].to(dtype) if shared else None
    found = ops.ragged(q, k, v, own, heads, gates, *plan(heads, num_routed), hidden, causal)
    assert_near(found, expected, dtype)
    if tgt_len == 1:
        step = ops.decode(q[:, 0], k, v, heads[:, 0], gates[:, 0], hidden)[:, None]
        assert_near(step, expected, dtype, "decode")


@pytest.mark.parametrize("padded", [False, True])
def test_split_keys_match_reference(padded):
    """Four parts of the keys, the last one shorter, from a cache that is not full."""
    q, cache = features(2, 3, 16), [features(2, 600, 1, 16, seed=seed) for seed in (1, 2)]
    k, v = (x[:, :523] for x in cache)
    hidden = hidden_keys(2, 523, padded)
    heads = torch.tensor([[0, 2], [1, 0]], device=DEVICE, dtype=torch.int32)
    gates = features(2, 2, seed=3)
    every = torch.zeros(2, 3, device=DEVICE).scatter(-1, heads.long(), gates)
    expected = attend(*(x.double() for x in (q[:, None], k, v)), key_padding_mask=hidden)[:, 0] * every[..., None]
    assert_near(ops.decode(q, k, v, heads, gates, hidden), expected, torch.float32)


@pytest.mark.parametrize(
    "num_splits, dtype", [*((splits, torch.float32) for splits in (1, 8)), *((4, d) for d in DTYPES)]
)
def test_decode_collect_matches_reference(num_splits, dtype, monkeypatch):
    monkeypatch.setattr(ops, "splits_of_keys", lambda tiles, src_len: num_splits)
    experts, num_experts = selection("N19-E5-K2")
    (n, top_k), (width, out) = experts.shape, WIDTHS
    q, hidden = features(n, top_k, width, dtype=dtype), hidden_keys(n, 37, True)
    k, v = (features(n, 37, 1, width, dtype=dtype, seed=seed) for seed in (1, 2))
    w = features(num_experts, width, out, dtype=dtype, seed=3, scale=width**-0.5)
    gates, exact = features(n * top_k, seed=4), [x.double() for x in (q[:, None], k, v)]
    rows = attend(*exact, key_padding_mask=hidden)[:, 0] * gates.view(n, top_k, 1).double()
    expected = torch.einsum("nkf,nkfd->nd", rows, w.double()[experts.long()])
    found = ops.decode_collect(q, k, v, hidden, w, gates, *plan(experts[None], num_experts))
    assert_near(found, expected, dtype)


def test_large_scores_stay_finite():
    q, k, v = features(1, 9, 2, 16, scale=40), features(1, 9, 16, seed=1, scale=40), features(1, 9, 16, seed=2)
    expected = attend(q.double(), k[:, :, None].double(), v[:, :, None].double(), causal=True)
    logits = torch.zeros(1, 9, 2, device=DEVICE)
    assert_near(ops.mqa(q, k, v, logits, None, True) * 2, expected, torch.float32)


def test_long_sums_are_float32():
    """512 features or 16 slots: rounded to float16 at each step a sum is off by 5e-4, and rounded once by 2e-4."""
    half = dict(dtype=torch.float16, scale=512**-0.5)
    x, w = features(16, 512, **half).abs(), features(2, 512, 16, seed=1, **half).abs()
    experts = torch.tensor([0, 1], device=DEVICE, dtype=torch.int32).repeat(8)[:, None]
    spread = ops.spread(x, w, None, *plan(experts[None], 2), 1)
    *_, logits = ops.route(x, w[:, :, 0].contiguous(), 1, Gates.PRINTED)
    every = torch.arange(16, device=DEVICE, dtype=torch.int32).expand(4, -1)
    rows, v = features(4 * 16, 8, **half).abs(), features(16, 8, 16, seed=1, **half).abs()
    collected = ops.collect(rows, v, None, *plan(every[None], 16), 16)
    x, w, rows, v = (t.double() for t in (x, w, rows, v))
    for found, sums in (
        (spread, torch.einsum("nd,ndf->nf", x, w[experts[:, 0].long()])),
        (logits, x @ w[:, :, 0].t()),
        (collected, torch.einsum("nkd,kdf->nf", rows.view(4, 16, -1), v)),
    ):
        assert float((found.double() - sums).norm() / sums.norm()) < 3.5e-4


def as_slice(x, before, after):
    """Return the values of ``x`` (B, S, ...) as a slice of a cache with more positions on both sides."""
    return torch.cat([x[:, :before], x, x[:, :after]], 1)[:, before : before + x.shape[1]]


@pytest.mark.parametrize("operator", ["mqa", "ragged", "decode"])
def test_keys_and_values_have_their_own_strides(operator):
    q, (k, v) = features(2, 3, 2, 16), (features(2, 19, 2, 16, seed=seed) for seed in (1, 2))
    gates = features(2, 3, 2, seed=3)
    heads = torch.arange(2, device=DEVICE, dtype=torch.int32).expand(2, 3, 2)
    attend_from = {
        "mqa": lambda k, v: ops.mqa(q, k[:, :, 0], v[:, :, 0], gates, None, True),
        "ragged": lambda k, v: ops.ragged(q, k, v, None, heads, gates, *plan(heads, 2), None, True),
        "decode": lambda k, v: ops.decode(q[:, 0], k, v, heads[:, 0], gates[:, 0], None),
    }[operator]
    expected = attend_from(k, v)
    # wider rows change the stride of a position, more positions that of a sequence
    wide = torch.cat([v, v], 2)[:, :, :2]
    for keys, values in ((as_slice(k, 2, 3), v), (k, as_slice(v, 1, 0)), (as_slice(k, 2, 3), wide)):
        assert torch.equal(attend_from(keys, values), expected)
