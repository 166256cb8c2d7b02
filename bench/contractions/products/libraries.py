"""Operators of other libraries, and of a user who registers a rule or torch's formula of FLOPs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from headcount.bench.contractions.products.attention import attention, attention_products
from headcount.bench.contractions.products.convolution import convolution, window_dims
from headcount.bench.contractions.products.product import Product, Rule
from headcount.bench.trace.events import Event, TensorFact, tensors_in


def _neighborhood(event: Event) -> list[Product]:
    """Return the products of (B, *positions, h, d), each query with the keys of its window, kernel_size in all cases.

    Tiled kernels take the groups of dilation in B, and padded positions; an argument has the sizes without padding.
    """
    q, k, v = event.args[:3]
    backward = event.name.endswith("backward")
    window_at = 6 if backward else 3
    batch, heads, queries, window = q.shape[0], q.shape[-2], prod(q.shape[1:-2]), prod(event.args[window_at])
    if "_na" in event.name:
        batch, queries = batch // prod(event.args[window_at + 2]), prod(event.args[window_at + 7])

    def reshaped(x: TensorFact, length: int) -> TensorFact:
        return replace(x, shape=(batch, heads, length, x.shape[-1]))

    gradient = reshaped(event.args[4], queries) if backward else None
    return attention_products(reshaped(q, queries), reshaped(k, window), reshaped(v, window), gradient)


def _depthwise(event: Event) -> list[Product]:
    x, weight = event.args[:2]
    return [Product(window_dims(x, weight, x, transposed=False), (x, weight), "conv")]


def _depthwise_backward(event: Event) -> list[Product]:
    """Return the gradients of input and weight of causal-conv1d: (B, c, T) through a window (c, w) for each channel."""
    x, weight = event.args[:2]
    dims = window_dims(x, weight, x, transposed=False)
    return [Product(dims, (weight,), "conv_dx"), Product(dims, (x,), "conv_dw")]


def by_attribute(rule: Callable[..., Sequence[tuple]], event: Event) -> list[Product]:
    return [Product(sizes, tuple(event.args[i] for i in at), kind) for kind, sizes, at in rule(*event.args)]


def by_flops(formula: Callable[..., int], event: Event) -> list[Product]:
    flops = formula_flops(formula, event)
    if flops % 2:
        raise ValueError(f"the formula registered for {event.name} gives {flops:,} FLOPs, which is odd")
    return [Product({"i": flops // 2}, tuple(tensors_in(event.args)), "contraction")]


def formula_flops(formula: Callable[..., int], event: Event) -> int:
    """Return what a formula of ``torch.utils.flop_counter`` gives for a recorded call; it looks at shapes only."""
    return formula(*on_meta(event.args), **on_meta(event.kwargs), out_val=on_meta(event.out))


def on_meta(value: Any) -> Any:
    """Return a recorded value with a tensor on meta for each fact."""
    return tree_map_only(
        TensorFact, lambda fact: torch.empty(fact.shape, dtype=getattr(torch, fact.dtype), device="meta"), value
    )


_NATTEN = ("", "hopper_", "blackwell_")
"""Beginnings of the names of natten's kernels; those with a name are tiled."""

LIBRARIES: Mapping[str, Rule] = {
    # flash_attn/flash_attn_interface.py: (q (B, T, h, d), k, v, …), and (gradient, q, k, v, …). Packed sequences,
    # here and below, are unsupported: their lengths are values.
    "flash_attn._flash_attn_forward": attention(tokens_first=True),
    "flash_attn._flash_attn_backward": attention(1, gradient_at=0, tokens_first=True),
    # xformers/ops/fmha: (q (B, T, h, d), k, v, …)
    "xformers_flash.flash_fwd": attention(tokens_first=True, lengths_at=3),
    "xformers.efficient_attention_forward_cutlass": attention(tokens_first=True, lengths_at=4),
    # causal_conv1d/cpp_functions.py: (x (B, c, T), window (c, w), …)
    "DaoAILab._causal_conv1d_fwd_cpp": _depthwise,
    "DaoAILab._causal_conv1d_bwd_cpp": _depthwise_backward,
    # torchvision: (x (B, c, …), window (o, c, …), offsets, …)
    "torchvision.deform_conv2d": partial(convolution, transposed=False),
    # natten/_libnatten/torch_wrappers.py: (q (B, T, h, d), k, v, …)
    "natten.fmha_forward": attention(tokens_first=True, lengths_at=7),
    "natten.hopper_fmha_forward": attention(tokens_first=True),
    "natten.blackwell_fmha_forward": attention(tokens_first=True, lengths_at=8),
    **dict.fromkeys(
        (f"natten.{kernel}fmha_backward" for kernel in _NATTEN),
        attention(gradient_at=4, tokens_first=True, lengths_at=6),
    ),
    # (q (B, *positions, h, d), k, v, …)
    **{
        f"natten.{kernel}na{n}d_{way}": _neighborhood
        for kernel in _NATTEN
        for n in (1, 2, 3)
        for way in ("forward", "backward")
    },
}
