"""Ragged heads: packing on CUDA simulated on the CPU, MACs, and the choice of a path."""

import logging

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

from headcount.bench.api.count import count_macs
from headcount.models.attention import Inputs
from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.kernels import ragged
from headcount.models.kernels.segments import sort_rows
from tests.cases import features, padding, randomise
from tests.models.test_selection import Operations

B, T = 3, 7
CASES = {
    "h5-s2-r1-g5": dict(num_heads=5, num_shared_heads=2, top_k=1, head_dim=6),
    "h6-s0-r2-g3": dict(num_heads=6, num_shared_heads=0, top_k=2, num_kv_heads=3, head_dim=4),
    "h6-s6-r0-g1": dict(num_heads=6, num_shared_heads=6, top_k=0, num_kv_heads=1, head_dim=4),
    "h7-s3-r4-biased": dict(num_heads=7, num_shared_heads=3, top_k=4, head_dim=4, bias=True),
    "h6-s2-r1-norm": dict(num_heads=6, num_shared_heads=2, top_k=1, num_kv_heads=2, head_dim=4, router="query_norm"),
    "h5-s1-r2-printed": dict(num_heads=5, num_shared_heads=1, top_k=2, head_dim=4, gates="printed"),
}


def make_layer(case, impl="ragged"):
    config = make_config(dict(attention="moh", d_model=13, **CASES[case]))
    return randomise(build(config, dtype=torch.float64, impl=impl))


def attention_by_sequence(query, key, value, ends, key_ends, most, src_len):
    """Compute variable-length attention in a loop over sequences."""
    # the kernel accepts only int32
    assert ends.dtype == key_ends.dtype == torch.int32
    assert max(ends.diff().tolist()) <= most and max(key_ends.diff().tolist()) <= src_len
    out = []
    for i, size in enumerate(ends.diff().tolist()):
        q = query[ends[i] : ends[i] + size]
        k, v = (x[key_ends[i] : key_ends[i + 1]] for x in (key, value))
        weights = torch.softmax(torch.einsum("thd,shd->hts", q, k) * q.shape[-1] ** -0.5, -1)
        out.append(torch.einsum("hts,shd->thd", weights, v))
    return torch.cat(out)


@pytest.mark.parametrize("is_padded", [False, True], ids=["all", "padded"])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("case", CASES)
def test_device_packing_matches_reference(case, length, is_padded, monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", attention_by_sequence)
    module, x, hidden = make_layer(case), features(B, length, 13), None
    if is_padded:
        hidden = padding([length, max(1, length - 3), 1], length)
    key, value = (p(x).unflatten(-1, (-1, module.config.head_dim)) for p in (module.k_proj, module.v_proj))
    inputs = Inputs(x, key, value, key_padding_mask=hidden)
    found = ragged._packed_on_device(module, inputs)
    expected = make_layer(case, "reference")(x, key_padding_mask=hidden)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_device_packing_has_no_host_reads(monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda q, *rest: q)
    module, x = make_layer("h6-s0-r2-g3"), features(B, T, 13)
    key, value = (p(x).unflatten(-1, (-1, module.config.head_dim)) for p in (module.k_proj, module.v_proj))
    with Operations() as operations:
        ragged._packed_on_device(module, Inputs(x, key, value))
    assert not {name for name, _ in operations.seen} & Operations.READS_BACK


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mask", [{}, {"causal": True}], ids=["all", "causal"])
def test_macs_on_meta_match_cpu(case, mask):
    counts = []
    for device in ("cpu", "meta"):
        module = build(make_config(dict(attention="moh", d_model=13, **CASES[case])), device=device, impl="ragged")
        counts.append(count_macs(module, torch.zeros(B, T, 13, device=device), kwargs=mask).macs)
    ideal = build(make_config(dict(attention="moh", d_model=13, form="ideal", **CASES[case])), device="meta")
    assert counts == [count_macs(ideal, torch.zeros(B, T, 13, device="meta"), kwargs=mask).macs] * 2


@pytest.mark.parametrize(
    "case, shape",
    # over one key/value head, which is not copied, heads are further queries
    [("h7-s3-r4-biased", (B, 3, T, 4)), ("h6-s6-r0-g1", (B, 1, 6 * T, 4)), ("h6-s0-r2-g3", None)],
)
def test_shared_heads_are_one_attention_call(case, shape, monkeypatch):
    module, shapes, attention = make_layer(case), [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda q, *rest, **how: shapes.append(q.shape) or attention(q, *rest, **how)
    )
    module(features(B, T, 13))
    own = [shape for shape in shapes if shape[:2] != (1, 1)]
    assert own == ([shape] if shape else [])
    routed = sum(shape[2] for shape in shapes if shape[:2] == (1, 1))
    assert routed == B * T * CASES[case]["top_k"]


@pytest.mark.parametrize(
    "tgt_len, causal, dtype, lack",
    [
        (7, True, torch.bfloat16, "causal"),
        (7, False, torch.float32, "float32"),
        (7, False, torch.bfloat16, None),
        (1, True, torch.bfloat16, None),
    ],
    ids=["causal", "float32", "all-keys", "last-token"],
)
def test_cuda_packs_heads_or_uses_fused(tgt_len, causal, dtype, lack, monkeypatch):
    calls, logged, module = [], [], make_layer("h6-s2-r1-norm")
    monkeypatch.setattr(ragged, "log_once", lambda *words: logged.append(words))
    monkeypatch.setattr(ragged, "fused", lambda *args, every: calls.append(("fused", *args, every)) or x)
    monkeypatch.setattr(ragged, "_packed_on_device", lambda *args: calls.append(("packed", *args)) or x)
    with FakeTensorMode():
        # tensors on CUDA without values: no GPU is needed
        x = torch.empty(1, tgt_len, 12, device="cuda", dtype=dtype)
    inputs = Inputs(x, x, x, causal)
    ragged.ragged(module, inputs)
    assert calls == [("fused", module, inputs, False) if lack else ("packed", module, inputs)]
    message = f"ragged computes every head: torch has no packed {lack} attention on CUDA"
    assert logged == ([(logging.WARNING, message)] if lack else [])


def test_order_of_more_than_256_keys():
    sequences = torch.randint(131 * 3, (131, 2, 2), generator=torch.Generator().manual_seed(1))
    order, ends = sort_rows(sequences, 131 * 3)
    keys = sequences.flatten().tolist()
    assert order.tolist() == sorted(range(131 * 4), key=keys.__getitem__)
    assert ends.tolist() == [sum(key <= last for key in keys) for last in range(131 * 3)]


def test_dropout_raises():
    config = make_config(dict(attention="moh", d_model=13, attention_dropout=0.1, **CASES["h5-s2-r1-g5"]))
    module = build(config, impl="ragged").train()
    with pytest.raises(ConfigError, match="^ragged takes no dropout; choose fused$"):
        module(features(B, T, 13).float())
