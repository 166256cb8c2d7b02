"""Each row of torch's table is torch's own formula: both are asked for the same tensors, on meta, gradients too."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.flex_attention import flex_attention
from torch.utils.flop_counter import flop_registry

from headcount.bench.counters.torch_dispatch import TABLE
from headcount.bench.trace.events import OPERATION, Event
from headcount.bench.trace.recorder import Recorder


def tensor(*shape):
    return torch.empty(shape, device="meta")


def convolved(x, weight, stride, padding, dilation, transposed, output_padding, groups):
    out = torch.convolution(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    return (x, weight, None, stride, padding, dilation, transposed, output_padding, groups), out


def differentiated(mask, x, weight, *rest):
    gradient = torch.convolution(x, weight, None, *rest)
    out = tuple(tensor(*of.shape) if wanted else None for of, wanted in zip((x, weight, x), mask, strict=True))
    return (gradient, x, weight, [weight.shape[0]], *rest, list(mask)), out


PLAIN = (tensor(3, 4, 11, 13), tensor(10, 2, 3, 5), [1, 2], [1, 0], [1, 1], False, [0, 0], 2)
TURNED = (tensor(3, 4, 5, 7), tensor(4, 5, 3, 2), [2, 1], [1, 0], [1, 1], True, [1, 0], 2)
LINE = (tensor(3, 5, 17), tensor(7, 5, 3), [2], [1], [2], False, [0], 1)
Q, K, V, OUT = tensor(3, 2, 5, 7), tensor(3, 2, 11, 7), tensor(3, 2, 11, 13), tensor(3, 2, 5, 13)
FLASH_Q, FLASH_K, FLASH_V = (tensor(3, 5, 2, 7) for _ in range(3))
FUSED = [f"_scaled_dot_product_{kernel}_attention" for kernel in ("efficient", "flash", "cudnn")]
if torch.ops.aten._scaled_dot_product_flash_attention_for_cpu in flop_registry:
    FUSED.append("_scaled_dot_product_flash_attention_for_cpu")
CONVOLUTIONS = {"plain": PLAIN, "transposed": TURNED, "one dimension": LINE}
CALLS = {
    "mm": ("mm", (tensor(3, 5), tensor(5, 7)), tensor(3, 7)),
    "addmm": ("addmm", (tensor(7), tensor(3, 5), tensor(5, 7)), tensor(3, 7)),
    "bmm": ("bmm", (tensor(2, 3, 5), tensor(2, 5, 7)), tensor(2, 3, 7)),
    "baddbmm": ("baddbmm", (tensor(2, 3, 7), tensor(2, 3, 5), tensor(2, 5, 7)), tensor(2, 3, 7)),
    "_scaled_mm": ("_scaled_mm", (tensor(3, 5), tensor(5, 7), tensor(1), tensor(1)), tensor(3, 7)),
    **{name: ("convolution", *convolved(*of)) for name, of in CONVOLUTIONS.items()},
    **{
        f"backward, {name}, {'' if x else 'no '}input, {'' if w else 'no '}weight": (
            "convolution_backward",
            *differentiated((x, w, True), *of),
        )
        for name, of in CONVOLUTIONS.items()
        for x in (True, False)
        for w in (True, False)
    },
    **{name: (name, (Q, K, V), OUT) for name in FUSED},
    **{
        f"{name}_backward": (f"{name}_backward", (OUT, Q, K, V, OUT), tuple(tensor(*of.shape) for of in (Q, K, V)))
        for name in FUSED
    },
    **({"flex": ("flex_attention", (Q, K, V), OUT)} if "flex_attention" in TABLE else {}),
    "raw flash": (
        "_flash_attention_forward",
        (FLASH_Q, FLASH_K, FLASH_V, None, None, 5, 5, 0.0, False, False),
        FLASH_Q,
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_row_is_torchs_formula(call):
    name, args, out = CALLS[call]
    formula = flop_registry[flex_attention if name == "flex_attention" else getattr(torch.ops.aten, name)]
    # flash reads its fourth to seventh arguments by name
    named = dict(zip(("cum_seq_q", "cum_seq_k", "max_q", "max_k"), args[3:7], strict=False)) if "raw" in call else {}
    flops = formula(*(args[:3] if named else args), **named, out_val=out)
    describe = Recorder(nn.Module()).describe
    rule, _ = TABLE[name]
    assert 2 * rule(Event(0, None, OPERATION, name, "", describe(args), {}, describe(out))) == flops


def test_every_row_is_tested():
    # convolutions of several names are one rule
    convolutions = {name for name in TABLE if "conv" in name} - {"convolution", "convolution_backward"}
    assert {name for name, _, _ in CALLS.values()} == TABLE.keys() - convolutions
    assert {TABLE[name] for name in convolutions} == {TABLE["convolution"]}


def test_packed_flash_attention_is_not_counted():
    lengths = torch.empty(4, dtype=torch.int32, device="meta")
    args = (tensor(17, 2, 7), tensor(17, 2, 7), tensor(17, 2, 7), lengths, lengths, 11, 11, 0.0, False, False)
    rule, _ = TABLE["_flash_attention_forward"]
    assert (
        rule(Event(0, None, OPERATION, "_flash_attention_forward", "", Recorder(nn.Module()).describe(args), {}))
        is None
    )
