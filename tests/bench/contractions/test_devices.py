"""Fused kernels, recurrent layers, complex convolutions and FlexAttention: the same MACs on every device."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from headcount.bench.api.count import count_macs
from headcount.bench.contractions.products import products
from headcount.bench.counting.run import count_contractions
from headcount.bench.trace.events import OPERATION, Event
from headcount.bench.trace.record import record
from headcount.bench.trace.recorder import Recorder
from tests.bench.contractions.function_modules import module

DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])
B, H, T, S, D = 2, 3, 7, 11, 16
ATTENTION = 2 * B * H * T * S * D


def move_to(device, *tensors):
    return tuple(tensor.to(device) for tensor in tensors)


# torch's attention: a fused backward recomputes the scores


def attend(q, k, mask=None, **options):
    mask = None if mask is None else torch.zeros(mask, device=q.device)
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask, **options)


FUSED = {
    "plain": attend,
    "causal": lambda q, k: attend(q, k, is_causal=True),
    "scaled": lambda q, k: attend(q, k, scale=0.5),
    "biased": lambda q, k: attend(q, k, (T, S)),
    "masked": lambda q, k: F.scaled_dot_product_attention(
        q, k, k, attn_mask=torch.ones(T, S, dtype=torch.bool, device=q.device)
    ),
    "grouped": lambda q, k: attend(q, k[:, :1], enable_gqa=True),
}
NOT_FUSED = {
    "learned": lambda q, k: F.scaled_dot_product_attention(
        q, k, k, attn_mask=torch.ones(T, S, device=q.device, requires_grad=True)
    ),
    "dropout": lambda q, k: attend(q, k, dropout_p=0.5),
    "narrow values": lambda q, k: F.scaled_dot_product_attention(q, k, k[..., :8]),
}
# torch 2.14 takes them as one batch
(FUSED if torch.__version__ >= (2, 14) else NOT_FUSED)["3 dimensions"] = lambda q, k: attend(
    q.flatten(0, 1), k.flatten(0, 1)
)
EITHER = {
    "keys of one head": lambda q, k: attend(q, k[:, :1]),
    "keys of one sequence": lambda q, k: attend(q, k[:1]),
    "mask of 3 dimensions": lambda q, k: attend(q, k, (H, T, S)),
    "3 dimensions, mask of 3": lambda q, k: attend(q.flatten(0, 1), k.flatten(0, 1), (B * H, T, S)),
    "3 dimensions, mask of 2": lambda q, k: attend(q[0], k[0], (T, S)),
    "3 dimensions, mask of 4": lambda q, k: attend(q[0], k[0], (2, H, T, S)),
    "3 dimensions, keys of one head": lambda q, k: attend(q[0], k[0, :1]),
}
"""Calls that a CPU fuses only in some versions of torch."""


def kernel_options(trace):
    """Return dropout, causal flag, scale and mask of the fused calls of a forward pass on the CPU."""
    calls = [call for call in trace.operations() if call.name == NAMES[1] and not call.backward]
    masks = [call.argument(5, "attn_mask") for call in calls]
    options = [(call.argument(3, "", 0.0), call.argument(4, "", False), call.argument(6, "scale")) for call in calls]
    return options, [mask and (mask.shape, mask.dtype) for mask in masks]


@pytest.mark.parametrize("name", [*FUSED, *NOT_FUSED, *EITHER])
def test_attention_agrees_on_devices(name):
    inputs = torch.ones(B, H, T, D), torch.ones(B, H, S, D)
    attention = module((FUSED | NOT_FUSED | EITHER)[name])
    cpu, meta = (record(attention, move_to(device, *inputs), backward=True) for device in ("cpu", "meta"))
    kinds = count_contractions(meta).by_kind()
    assert count_contractions(cpu).macs == sum(kinds.values())
    assert [fact.shape for fact in cpu.out] == [fact.shape for fact in meta.out]
    if name in FUSED:
        assert kernel_options(cpu) == kernel_options(meta) and kernel_options(meta)[0]
        assert (sum(kinds.values()), kinds["scores_recompute"]) == (7 * ATTENTION // 2, ATTENTION // 2)
    elif name in NOT_FUSED:
        assert "scores_recompute" not in kinds


# Kernels of every device: queries of 6 heads, keys and values of 3

HEADS, KEYS, WIDTH, OUT = 6, 5, 11, 13
SHAPES = ((HEADS, T, WIDTH), (3, KEYS, WIDTH), (3, KEYS, OUT), (HEADS, T, OUT))
Q, K, V, GRADIENT = (torch.empty(B, *shape, device="meta") for shape in SHAPES)
TOKENS_FIRST = [tensor.transpose(1, 2) for tensor in (Q, K, V)]
PACKED = torch.empty(4, dtype=torch.int32, device="meta")
KERNELS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
NAMES = [f"_scaled_dot_product_{kernel}" for kernel in (*KERNELS, "fused_attention_overrideable")]
PAIRS = B * HEADS
FORWARD = [("scores", (PAIRS, T, WIDTH, KEYS), [Q, K]), ("values", (PAIRS, T, KEYS, OUT), [V])]
BACKWARD = [
    ("scores_recompute", (PAIRS, T, WIDTH, KEYS), [Q, K]),
    ("values_dx", (PAIRS, T, OUT, KEYS), [GRADIENT, V]),
    ("values_dw", (PAIRS, KEYS, T, OUT), [GRADIENT]),
    ("scores_dx", (PAIRS, T, KEYS, WIDTH), [K]),
    ("scores_dw", (PAIRS, KEYS, T, WIDTH), [Q]),
]


def describe(name, *args):
    """Return kind, sizes and operands' elements of each product of an operation; None if it is unsupported."""
    event = Event(0, None, OPERATION, name, "", Recorder(nn.Module()).describe(args), {})
    described = products(event)
    if described is not None:
        return [(one.kind, tuple(one.dims.values()), [fact.numel for fact in one.operands]) for one in described]


def elements(expected):
    return [(kind, dims, [tensor.numel() for tensor in operands]) for kind, dims, operands in expected]


@pytest.mark.parametrize("name", [*NAMES, "flex_attention"])
def test_fused_kernel(name):
    gradients = (GRADIENT, Q, K, V)
    if name == "flex_attention":
        # the gradient is after the output and the log-sum-exp
        gradients = (Q, K, V, GRADIENT[..., :1], GRADIENT[..., 0], GRADIENT)
    assert describe(name, Q, K, V) == elements(FORWARD)
    assert describe(f"{name}_backward", *gradients) == elements(BACKWARD)


@pytest.mark.parametrize(
    "name, args, lengths_at",
    [
        ("_flash_attention_forward", (*TOKENS_FIRST, None, None, T, KEYS, 0.0, False, False), 3),
        ("_efficient_attention_forward", (*TOKENS_FIRST, None, None, None, T, KEYS, 0.0, 0, False), 4),
    ],
)
def test_packed_sequences_are_unsupported(name, args, lengths_at):
    assert describe(name, *args) == elements(FORWARD)
    assert describe(name, *args[:lengths_at], PACKED, *args[lengths_at + 1 :]) is None
    assert describe(name, *(tensor.flatten(0, 1) for tensor in TOKENS_FIRST), *args[3:]) is None


# Recurrent layers: no gradient of the first state, which is zeros

STEPS, IN, HIDDEN = 5, 13, 11


@DEVICES
@pytest.mark.parametrize(
    ("layer", "gates", "added"), [(nn.RNN, 1, 0), (nn.GRU, 3, 0), (nn.LSTM, 4, 2), (nn.LSTMCell, 4, 2)]
)
def test_recurrent_layer(layer, gates, added, device):
    """``added``: products of f c + i g of an LSTM, which only the unfused kernels run as elementwise operations."""
    steps = 1 if layer is nn.LSTMCell else STEPS
    x = torch.ones(steps, B, IN, device=device)
    model, inputs = layer(IN, HIDDEN).to(device), x[0] if steps == 1 else x
    into, over = steps * B * IN * gates * HIDDEN, steps * B * HIDDEN * gates * HIDDEN
    forward = count_macs(model, inputs, elementwise="include")
    assert (forward.dispatched, forward.macs) == (into + over, into + over + added * steps * B * HIDDEN)
    if steps > 1:
        assert count_macs(model, inputs, backward=True).dispatched == 3 * into + 3 * over - over // steps


# A product of complex numbers is one multiply-accumulate


def complex_ones(*shape):
    return torch.ones(shape, dtype=torch.complex64)


@DEVICES
def test_complex_convolution(device):
    x, w = move_to(device, complex_ones(2, 3, 9), complex_ones(5, 3, 3))
    macs = 2 * 7 * 3 * 3 * 5
    unfolded = module(lambda x, w: x.unfold(2, 3, 1).permute(0, 2, 1, 3).flatten(2) @ w.flatten(1).mT)
    assert count_macs(module(F.conv1d), x, w).macs == count_macs(unfolded, x, w).macs == macs
    assert count_macs(module(F.conv1d), x, w, backward=True).macs == 3 * macs
    # one of its three real convolutions has no bias
    with_bias = module(lambda x, w: F.conv1d(x, w, w[:, 0, 0]))
    assert count_macs(with_bias, x, w, backward=True).macs == 3 * macs


class Convolving(torch.autograd.Function):
    """Compute complex convolutions in one backward call."""

    @staticmethod
    def forward(ctx, x, *weights):
        ctx.save_for_backward(x, *weights)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        return grad * sum(F.conv1d(x, w).abs().sum() for w in weights), *(None for _ in weights)


@pytest.mark.parametrize("widths", [(3, 5), (3, 3)])
def test_complex_convolutions_in_one_gradient(widths):
    weights = [complex_ones(5, 3, width) for width in widths]
    frozen = module(lambda x: Convolving.apply(x, *weights).abs())
    macs = sum(2 * (9 - width + 1) * 3 * width * 5 for width in widths)
    assert count_macs(frozen, complex_ones(2, 3, 9), backward=True).macs == macs


# FlexAttention: score_mod and mask_mod run once for each score

BIAS, SLOPES, ROWS, COLUMNS = torch.ones(T, S), torch.ones(H), torch.ones(T, 5), torch.ones(S, 5)


@pytest.mark.parametrize(
    ("score_mod", "mask", "width"),
    [
        (lambda s, b, h, i, j: s + (ROWS[i] * COLUMNS[j]).sum(-1), None, 5),
        (lambda s, b, h, i, j: s + torch.dot(ROWS[i], COLUMNS[j]), None, 5),
        (lambda s, b, h, i, j: s + ROWS[i] @ COLUMNS[j], None, 5),
        (lambda s, b, h, i, j: s + BIAS[i, j], None, 0),
        (lambda s, b, h, i, j: s * SLOPES[h], None, 0),
        # masked blocks are counted
        (None, lambda b, h, i, j: i >= j, 0),
    ],
)
def test_score_mod_counts_per_score(score_mod, mask, width):
    block = mask and create_block_mask(mask, None, None, T, S, device="cpu")
    run = module(lambda q, k: flex_attention(q, k, k, score_mod=score_mod, block_mask=block))
    inputs = torch.ones(B, H, T, D), torch.ones(B, H, S, D)
    assert count_macs(run, *inputs).with_elementwise == ATTENTION + B * H * T * S * width
