"""Fused attention, that of devices which are not here too: the products of its sizes, whatever their order."""

import pytest
import torch
from torch import nn

from headcount.bench.contractions.products import products
from headcount.bench.trace.events import OPERATION, Event
from headcount.bench.trace.recorder import Recorder

B, H, G, T, S, D, DV = 2, 6, 3, 7, 5, 11, 13
Q, K, V, OUT = (torch.empty(B, *size, device="meta") for size in ((H, T, D), (G, S, D), (G, S, DV), (H, T, DV)))
FIRST = [tensor.transpose(1, 2) for tensor in (Q, K, V)]
LENGTHS = torch.empty(4, dtype=torch.int32, device="meta")
KERNELS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
NAMES = [f"_scaled_dot_product_{kernel}" for kernel in (*KERNELS, "fused_attention_overrideable")]
PAIRS = B * H * T * S


def found(name, *args):
    described = products(Event(0, None, OPERATION, name, "", Recorder(nn.Module()).describe(args), {}))
    return None if described is None else [(one.kind, tuple(one.dims.values()), one.macs) for one in described]


def operands(name, *args):
    """The shapes of the tensors that each product reads, of those that are given."""
    event = Event(0, None, OPERATION, name, "", Recorder(nn.Module()).describe(args), {})
    return [[tuple(fact.shape) for fact in one.operands] for one in products(event)]


FORWARD = [("scores", (B * H, T, D, S), PAIRS * D), ("values", (B * H, T, S, DV), PAIRS * DV)]
BACKWARD = [
    ("scores_recompute", (B * H, T, D, S), PAIRS * D),
    ("values_dx", (B * H, T, DV, S), PAIRS * DV),
    ("values_dw", (B * H, S, T, DV), PAIRS * DV),
    ("scores_dx", (B * H, T, S, D), PAIRS * D),
    ("scores_dw", (B * H, S, T, D), PAIRS * D),
]


@pytest.mark.parametrize("name", [*NAMES, "flex_attention"])
def test_fused_forward(name):
    assert found(name, Q, K, V) == FORWARD


@pytest.mark.parametrize(
    "name, args, lengths_at",
    [
        ("_flash_attention_forward", (*FIRST, None, None, T, S, 0.0, False, False), 3),
        ("_efficient_attention_forward", (*FIRST, None, None, None, T, S, 0.0, 0, False), 4),
    ],
)
def test_raw_forward_and_packed_sequences(name, args, lengths_at):
    assert found(name, *args) == FORWARD
    assert found(name, *args[:lengths_at], LENGTHS, *args[lengths_at + 1 :]) is None
    assert found(name, *(tensor.flatten(0, 1) for tensor in FIRST), *args[3:]) is None


@pytest.mark.parametrize("name", NAMES)
def test_backward_has_five_products(name):
    assert found(f"{name}_backward", OUT, Q, K, V) == BACKWARD


def test_operands_of_products():
    q, k, v, gradient = (tuple(tensor.shape) for tensor in (Q, K, V, OUT))
    assert operands("flex_attention", Q, K, V) == [[q, k], [v]]
    backward = [[q, k], [gradient, v], [gradient], [k], [q]]
    assert operands(f"{NAMES[0]}_backward", OUT, Q, K, V) == backward
    # there the gradient is the sixth argument, behind the output and the sums of exponentials
    of_flex = ("flex_attention_backward", Q, K, V, OUT[..., :1], OUT[..., 0], OUT)
    assert operands(*of_flex) == backward and found(*of_flex) == BACKWARD
