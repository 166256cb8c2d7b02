"""Bytes moved, MACs without masked pairs, and FLOPs of other operations, against values by hand."""

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import headcount as hc
from headcount.bench.contractions.costs import other_flops, weights_read
from headcount.bench.trace import masks
from headcount.bench.trace.memory import measure_activations
from headcount.bench.trace.record import record
from tests.bench.contractions.function_modules import Calls, module

B, H, T, S, D, V = 2, 3, 7, 11, 5, 5
Q, K, VALUES = torch.randn(B, H, T, D), torch.randn(B, H, S, D), torch.randn(B, H, S, V)
SQUARE = B * H * T * S * (D + V)


def attend(**options):
    return hc.count(module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)), Q, K, VALUES)


def test_bytes_of_linear_and_view():
    count = hc.count(nn.Linear(5, 7), torch.ones(3, 5))
    # input, weight, bias, result; the transposed weight is a view
    assert count.bytes_moved == 4 * (3 * 5 + 5 * 7 + 7 + 3 * 7)
    assert count.intensity == Fraction(3 * 5 * 7, 4 * (3 * 5 + 5 * 7 + 7 + 3 * 7))
    half = hc.count(nn.Linear(5, 7, bias=False).half(), torch.ones(3, 5, dtype=torch.half))
    assert half.bytes_moved == 2 * (3 * 5 + 5 * 7 + 3 * 7)


@pytest.mark.parametrize("program, elements", [
    (lambda x: x.view(5, 7).transpose(0, 1), 0),
    (lambda x: x * x, 35 + 35),
    (lambda x: x + x[:, :1], 35 + 7 + 35),
    (lambda x: x + x[:, :1].expand(7, 5), 35 + 7 + 35),
    (lambda x: torch.empty_like(x).copy_(x), 35 + 35),
    (lambda x: x.clone().add_(1), 2 * (35 + 35)),
    (lambda x: torch.zeros(7, 5), 35),
    (lambda x: x.sum(), 35 + 1),
    (lambda x: x @ x.T, 35 + 35 + 49),
])  # fmt: skip
def test_bytes_of_operations(program, elements):
    assert hc.count(module(program), torch.ones(7, 5)).bytes_moved == 4 * elements


def test_bytes_of_embedding_are_gathered_rows():
    count = hc.count(nn.Embedding(41, 5), torch.zeros(3, 7, dtype=torch.long))
    assert count.bytes_moved == 8 * 21 + 4 * (21 * 5 + 21 * 5) and count.intensity == 0
    assert hc.count(nn.Identity(), torch.ones(3)).intensity is None


@pytest.mark.parametrize("rows, matrices", [(3, 3), (16, 5)])
def test_grouped_product_reads_at_most_a_matrix_for_each_row(rows, matrices):
    weight = nn.Parameter(torch.ones(5, 32, 16, dtype=torch.bfloat16))
    layer = Calls(lambda m, x, ends: torch._grouped_mm(x, m.weight, offs=ends), weight=weight)
    inputs = torch.ones(rows, 32, dtype=torch.bfloat16), torch.tensor([1, 1, 2, 2, rows], dtype=torch.int32)
    assert weights_read(record(layer, inputs)) == matrices * 32 * 16


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
def test_causal_macs_of_fused_and_decomposed_attention(backend):
    dense = torch.rand(T, S) > 0.4
    with sdpa_kernel(backend):
        assert attend().causal_macs == SQUARE
        assert attend(is_causal=True).causal_macs == B * H * (D + V) * T * (T + 1) // 2
        assert attend(attn_mask=dense).causal_macs == B * H * (D + V) * int(dense.sum())
        hidden = torch.zeros(B, 1, T, S).masked_fill(~dense, -torch.inf)
        assert attend(attn_mask=hidden).causal_macs == B * H * (D + V) * int(dense.sum())


def test_causal_macs_of_more_queries_than_keys():
    count = hc.count(module(lambda q, k: F.scaled_dot_product_attention(k, q, q, is_causal=True)), Q, K)
    assert count.causal_macs == B * H * 2 * D * sum(min(i, T) for i in range(1, S + 1))


def test_causal_macs_of_backward():
    fused = module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    count = hc.count(fused, Q, K[:, :, :T], VALUES[:, :, :T, :D], backward=True)
    # forward, and the five products of a fused backward
    assert count.macs == 7 * B * H * T * T * D and count.causal_macs == 7 * B * H * D * T * (T + 1) // 2
    # softmax, once more in the backward pass, and its gradient
    assert count.other_flops["softmax"] == 3 * 3 * B * H * T * T


def test_causal_macs_without_values_are_unknown():
    mask = torch.ones(T, S, dtype=torch.bool)
    meta = [x.to("meta") for x in (Q, K, VALUES, mask)]
    fused = module(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask))
    assert hc.count(fused, *meta).causal_macs is None
    written = module(lambda q, k, v: torch.softmax((q @ k.mT).masked_fill(~mask, -torch.inf), -1) @ v)
    assert hc.count(written, Q, K, VALUES).causal_macs is None
    # one attention has a known mask, and the other an unknown one
    both = module(lambda q, k, v: (F.scaled_dot_product_attention(q, k, v), written(q, k, v)))
    assert hc.count(both, Q, K, VALUES).causal_macs is None
    # weights are hidden after the softmax, or no score is
    hidden = module(lambda q, k, v: torch.softmax(q @ k.mT, -1) * mask @ v)
    assert hc.count(hidden, Q, K, VALUES).causal_macs is None
    open_ = module(lambda q, k, v: torch.softmax(q @ k.mT / 3, -1) @ v)
    assert hc.count(open_, Q, K, VALUES).causal_macs == hc.count(open_, Q, K, VALUES).macs
    assert hc.count(nn.Linear(5, 7), torch.ones(3, 5)).causal_macs is None


def test_causal_macs_of_module_keep_other_products():
    layer = nn.MultiheadAttention(10, 2, batch_first=True).train()
    x = torch.randn(3, 7, 10)
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    count = hc.count(layer, x, x, x, kwargs=dict(attn_mask=later, need_weights=False), training=True)
    assert count.causal_macs == 3 * 7 * 10 * 40 + 2 * 3 * 10 * 7 * 8 // 2


def test_causal_macs_of_block_masks():
    def run(mask, **options):
        attention = module(lambda q, k: flex_attention(q, k, k, block_mask=mask, **options))
        return hc.count(attention, Q, K).causal_macs

    assert run(None) == 2 * B * H * T * S * D
    of_window = create_block_mask(lambda b, h, q, k: (k <= q) & (q < k + 3), None, None, T, S, "cpu", BLOCK_SIZE=4)
    assert run(of_window) == 2 * B * H * D * sum(min(i, 3) for i in range(1, T + 1))
    # blocks of 4 x 4 without a function: the first of 3 in the first row, the last two in the second
    counts = torch.tensor([[[1, 2]]], dtype=torch.int32)
    indices = torch.tensor([[[[0, 1, 2], [1, 2, 0]]]], dtype=torch.int32)
    of_blocks = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=4, seq_lengths=(T, S))
    assert run(of_blocks) == 2 * B * H * D * (4 * 4 + 3 * (4 + 3))
    assert run(of_window, score_mod=lambda score, b, h, q, k: score * 2) is None


def test_large_block_masks_are_not_evaluated(monkeypatch):
    mask = create_block_mask(lambda b, h, q, k: k <= q, None, None, T, S, "cpu", BLOCK_SIZE=4)
    attention = module(lambda q, k: flex_attention(q, k, k, block_mask=mask))
    assert hc.count(attention, Q, K).causal_macs == 2 * B * H * D * T * (T + 1) // 2
    monkeypatch.setattr(masks, "MAX_VALUES", T * S - 1)
    found = hc.count(attention, Q, K)
    assert found.macs == 2 * B * H * T * S * D and found.causal_macs is None


def test_other_flops_by_kind():
    layer = nn.Sequential(
        nn.LayerNorm(5), nn.Linear(5, 7), nn.GELU(), nn.Softmax(-1), module(lambda x: (x + 1).sum(-1))
    )
    found = hc.count(layer, torch.ones(3, 5)).other_flops
    expected = {"norm": 5 * 15, "bias": 21, "activation": 21, "softmax": 3 * 21, "elementwise": 21, "reduction": 21}
    assert {kind: flops for kind, flops in found.items() if flops} == expected
    run = hc.count(layer, torch.ones(3, 5)).run
    cheap = other_flops(run.trace, run.by_event, {"norm": 0, "softmax": 1})
    assert {kind: flops for kind, flops in cheap.items() if flops} == {
        "bias": 21, "activation": 21, "softmax": 21, "elementwise": 21, "reduction": 21,
    }  # fmt: skip


def test_other_flops_of_fused_attention_and_moves():
    assert sum(attend().other_flops.values()) == attend().other_flops["softmax"] == 3 * B * H * T * S
    moves = module(lambda x: torch.where(x > 0, x, 0).transpose(0, 1).contiguous()[[0, 2]].double())
    assert not any(hc.count(moves, torch.ones(3, 5)).other_flops.values())
    with pytest.raises(ValueError, match="softmaxx.*softmax, norm"):
        other_flops(attend().trace, {}, {"softmaxx": 2})


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_statistics_have_four_bytes(size, dtype):
    heads, tokens, width = (2, 3), 7, 8
    inputs = [torch.zeros(*heads, tokens, width, dtype=dtype, device="meta").requires_grad_() for _ in range(3)]
    attention = module(F.scaled_dot_product_attention)
    found = measure_activations(attention, inputs, {}, training=True, element_bytes=size)
    assert found.saved_bytes == 6 * tokens * (size * width + 4)
