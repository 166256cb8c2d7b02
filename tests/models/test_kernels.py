"""Every fast implementation equals the reference: outputs and gradients under any routing, mask and length."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.kernels import grouped

MOA = {
    "K3-E7-dm11-D5": dict(d_model=11, num_experts=7, top_k=3, head_dim=5),
    "K3-E7-dm11-D5-biased": dict(d_model=11, num_experts=7, top_k=3, head_dim=5, bias=True),
    "K5-E5-dm11-D3-biased-plain-probabilities": dict(
        d_model=11, num_experts=5, top_k=5, head_dim=3, gates="released", bias=True
    ),
    "K1-E1-dm7-D5": dict(d_model=7, num_experts=1, top_k=1, head_dim=5),
    "K3-E7-dm11-D10-g2-selected-output-biased": dict(
        d_model=11, num_experts=7, top_k=3, head_dim=10, num_kv_heads=2, gates="selected", output_bias=True
    ),
    "K5-E5-dm11-D6-g3": dict(d_model=11, num_experts=5, top_k=5, head_dim=6, num_kv_heads=3, bias=True),
    "K3-E7-dm24-D8": dict(d_model=24, num_experts=7, top_k=3, head_dim=8),
}
MHA = {
    "h3-g3-dm11-D5": dict(d_model=11, num_heads=3, head_dim=5),
    "h6-g2-dm13-D5": dict(d_model=13, num_heads=6, num_kv_heads=2, head_dim=5),
    "h7-g1-dm11-D3": dict(d_model=11, num_heads=7, num_kv_heads=1, head_dim=3, bias=False),
}
# grouped-mm: the path that CUDA takes, on the CPU, where torch computes it in float32 at most
IMPLS = [*(impl.name for impl in MixtureOfAttentionHeadsConfig.implementations[1:] if not impl.package), "grouped-mm"]
TOLERANCE = {torch.float64: dict(rtol=1e-10, atol=1e-12), torch.float32: dict(rtol=1e-4, atol=2e-5)}


def lengths(batch_size, tgt_len, src_len=None):
    """Random inputs; without ``src_len`` the layer attends to its own queries."""

    def make(d_model):
        generator = torch.Generator().manual_seed(5)
        shapes = [(batch_size, n, d_model) for n in (tgt_len, src_len) if n]
        return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes], {}

    return make


def masked(make, *, causal=False, queries=(), keys=()):
    """``queries`` and ``keys``: for each sequence, how many of its last tokens are padding."""

    def build_inputs(d_model):
        tensors, _ = make(d_model)
        kwargs = {"causal": causal}
        for name, padded, x in (("query", queries, tensors[0]), ("key", keys, tensors[-1])):
            if padded:
                ends = torch.tensor([x.shape[1] - n for n in padded])
                kwargs[f"{name}_padding_mask"] = torch.arange(x.shape[1]) >= ends[:, None]
        return tensors, kwargs

    return build_inputs


def non_contiguous(make):
    def build_inputs(d_model):
        tensors, kwargs = make(d_model)
        return [x.transpose(0, 1).contiguous().transpose(0, 1) for x in tensors], kwargs

    return build_inputs


SITUATIONS = {
    "B3-T13": lengths(3, 13),
    "B1-T1": lengths(1, 1),
    "B2-T7-S11": lengths(2, 7, 11),
    "B3-T13-causal": masked(lengths(3, 13), causal=True),
    "B2-T5-S11-causal": masked(lengths(2, 5, 11), causal=True),
    "B3-T13-padded": masked(lengths(3, 13), queries=(0, 5, 12), keys=(0, 5, 12)),
    "B3-T13-causal-padded": masked(lengths(3, 13), causal=True, queries=(0, 5, 12), keys=(0, 5, 12)),
    "B2-T7-S11-no-visible-key": masked(lengths(2, 7, 11), keys=(0, 11)),
    "B3-T17-non-contiguous": non_contiguous(lengths(3, 17)),
}


def outcome(layer, impl, make):
    """Output, and the gradients of inputs and parameters, of a loss that weighs every output differently."""
    layer.impl = impl
    layer.zero_grad()
    tensors, kwargs = make(layer.config.d_model)
    dtype = next(layer.parameters()).dtype
    # detaching keeps the strides, so that a non-contiguous input stays one
    tensors = [x.to(dtype).detach().requires_grad_() for x in tensors]
    y = layer(*tensors, **kwargs)
    (y * torch.linspace(-1, 2, y.numel(), dtype=dtype).view_as(y)).sum().backward()
    grads = {f"input {i}": x.grad for i, x in enumerate(tensors)}
    return {"output": y.detach(), **grads, **{name: p.grad for name, p in layer.named_parameters()}}


def assert_same(layer, impl, make):
    expected, actual = outcome(layer, "reference", make), outcome(layer, impl, make)
    assert layer.impl_used == impl
    # an implementation may order its rows differently where no backward pass follows
    tensors, kwargs = make(layer.config.d_model)
    with torch.no_grad():
        inference = layer(*(x.to(expected["output"].dtype) for x in tensors), **kwargs)
    torch.testing.assert_close(inference, expected["output"], **TOLERANCE[inference.dtype])
    for name, value in expected.items():
        torch.testing.assert_close(
            actual[name], value, **TOLERANCE[value.dtype], msg=lambda text, n=name: f"{n}: {text}"
        )


def moa_layer(values, dtype, biases=True):
    layer = build(MixtureOfAttentionHeadsConfig(**values), dtype=dtype, seed=3)
    with torch.no_grad():
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
            if projection.bias is not None:
                projection.bias.normal_(generator=torch.Generator().manual_seed(7))
    return layer


@pytest.fixture
def impl(request, monkeypatch):
    """An implementation's name and the dtype to compare it in."""
    if request.param != "grouped-mm":
        return request.param, torch.float64
    monkeypatch.setattr(grouped, "has_fast_path", lambda device, dtype: True)
    return "grouped", torch.float32


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("case", MOA)
@pytest.mark.parametrize("impl", IMPLS, indirect=True)
def test_moa_impls_match_reference(impl, case, situation):
    impl, dtype = impl
    assert_same(moa_layer(MOA[case], dtype), impl, SITUATIONS[situation])


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("case", MHA)
def test_fused_mha_matches_reference(case, situation):
    assert_same(build(MultiHeadAttentionConfig(**MHA[case]), dtype=torch.float64), "fused", SITUATIONS[situation])


def skew(layer, preference):
    """Make the router prefer experts by ``preference``, through a first feature that is 1 in every token."""
    with torch.no_grad():
        layer.router.proj.weight[:, 0] = torch.tensor(preference, dtype=layer.router.proj.weight.dtype)

    def make(d_model):
        tensors, kwargs = SITUATIONS["B3-T13"](d_model)
        tensors[0][..., 0] = 1
        return tensors, kwargs

    return make


@pytest.mark.parametrize("impl", IMPLS, indirect=True)
@pytest.mark.parametrize(
    "top_k, preference, tokens",
    [
        (3, (3.0, 2.0, 0.0, 0.0, -2.0, -40.0, 0.0), None),
        (3, (30.0, 30.0, -30.0, 30.0, -30.0, -30.0, -30.0), [39, 39, 0, 39, 0, 0, 0]),
        (1, (-30.0, -30.0, -30.0, -30.0, -30.0, -30.0, 30.0), [0, 0, 0, 0, 0, 0, 39]),
    ],
    ids=["skewed-with-an-empty-expert", "three-experts-of-seven", "all-tokens-to-the-last-expert"],
)
def test_moa_impls_match_reference_under_any_load(impl, top_k, preference, tokens):
    impl, dtype = impl
    layer = moa_layer(dict(d_model=11, num_experts=7, top_k=top_k, head_dim=5, bias=True), dtype)
    make = skew(layer, preference)
    layer.router.record_routing = True
    assert_same(layer, impl, make)
    indices = layer.router.recorded.routing.indices
    counts = [int((indices == e).sum()) for e in range(7)]
    assert counts[5] == 0
    assert tokens is None or counts == tokens


@pytest.mark.parametrize("impl", IMPLS, indirect=True)
def test_frozen_weights_get_no_gradient(impl):
    impl, dtype = impl
    layer = moa_layer(MOA["K3-E7-dm11-D5-biased"], dtype)
    layer.q_proj.requires_grad_(False)
    layer.out_proj.requires_grad_(False)
    make = SITUATIONS["B3-T13"]
    expected, actual = outcome(layer, "reference", make), outcome(layer, impl, make)
    frozen = {name for name, value in expected.items() if value is None}
    assert frozen == {"q_proj.weight", "q_proj.bias", "out_proj.weight", "out_proj.bias"}
    assert {name for name, value in actual.items() if value is None} == frozen
    torch.testing.assert_close(actual["input 0"], expected["input 0"], **TOLERANCE[dtype])


@pytest.mark.parametrize("impl", IMPLS, indirect=True)
def test_noisy_training_matches_reference(impl):
    impl, dtype = impl
    layer = moa_layer(dict(MOA["K3-E7-dm11-D5"], noisy=True), dtype).train()
    results = []
    for name in ("reference", impl):
        torch.manual_seed(11)
        results.append(outcome(layer, name, SITUATIONS["B3-T13"]))
        assert layer.router.recorded is not None
    torch.testing.assert_close(results[1], results[0], **TOLERANCE[dtype])
