"""Count the query-key pairs that a call of attention computes, from its causal flag or the values of its mask."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention.flex_attention import create_mask
from torch.utils._python_dispatch import _disable_current_modes

from headcount.bench.trace.shapes import MAX_VALUES

Pairs = tuple[int, int]
"""Pairs that a mask leaves, and all pairs, of all sequences and heads."""


def attention_arguments(args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``F.scaled_dot_product_attention`` by name."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def attention_pairs(args: tuple, kwargs: Mapping[str, Any]) -> Pairs | None:
    """Return the pairs of ``F.scaled_dot_product_attention``; None if its mask has no values here.

    A mask of numbers hides a pair by -inf or the least number of its type. Causal is from the first query and key on.
    """
    given = attention_arguments(args, kwargs)
    query, key, mask = given["query"], given["key"], given.get("attn_mask")
    if query.is_nested or key.is_nested or not all(type(size) is int for size in (*query.shape, *key.shape)):
        return None
    *rows, queries, _ = query.shape
    keys = key.shape[-2]
    every = prod(rows) * queries * keys
    if given.get("is_causal"):
        late = min(queries, keys)
        return prod(rows) * (late * (late + 1) // 2 + (queries - late) * keys), every
    if mask is None:
        return every, every
    if not _has_values(mask) or not mask.numel() or every % mask.numel():
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
        return int(seen.sum()) * (every // mask.numel()), every


def operand_pairs(name: str, args: tuple, out: Any) -> Pairs | None:
    """Return the pairs that a mask with values leaves of an operation's result; None for other operations.

    The mask is added, or it fills or selects; the other operand has no values here, as weights and activations of a run
    with fake weights.
    """
    tensors = (value for value in args if isinstance(value, Tensor) and _has_values(value))
    # one with values may be what a mask without values selects
    selects = name in ("masked_fill", "where")
    mask = next((value for value in tensors if (value.dtype == torch.bool) == selects), None)
    if mask is None or not isinstance(out, Tensor) or not mask.numel() or out.numel() % mask.numel():
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        if name == "masked_fill":
            seen = ~mask
        elif name == "where":
            seen = mask if isinstance(args[1], FakeTensor) else ~mask
        elif mask.is_floating_point():
            seen = mask > torch.finfo(mask.dtype).min
        else:
            return None
        return int(seen.sum()) * (out.numel() // mask.numel()), out.numel()


def flex_pairs(args: tuple) -> Pairs | None:
    """Return the pairs of a FlexAttention call by its BlockMask; None if its functions read other tensors.

    None too if its mask has more than MAX_VALUES pairs.

    A full block hides none of its pairs, and a partial one those of ``mask_mod``. A ``score_mod`` may hide others.
    """
    query, key, _, score_mod, block_mask = args[:5]
    counts, indices, full_counts, full_indices = block_mask[2:6]
    mask_mod, block_sizes = block_mask[-1], block_mask[-3:-1]
    if getattr(score_mod, "__name__", "") != "_identity" or not _has_values(counts) or any(map(len, args[7:9])):
        return None
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if prod(counts.shape[:2]) * queries * keys > MAX_VALUES:
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        seen = create_mask(mask_mod, *counts.shape[:2], queries, keys, query.device)
        seen = seen & _in_blocks(counts, indices, block_sizes, (queries, keys))
        if full_counts is not None:
            seen = seen | _in_blocks(full_counts, full_indices, block_sizes, (queries, keys))
        return int(seen.sum()) * (batch * heads * queries * keys // seen.numel()), batch * heads * queries * keys


def _in_blocks(counts: Tensor, indices: Tensor, block_sizes: tuple[int, int], sizes: tuple[int, int]) -> Tensor:
    """Return (B, h, T, S), True in the listed blocks: the first ``counts`` of ``indices`` in a row of blocks."""
    (rows, columns), (queries, keys) = block_sizes, sizes
    number = -(-keys // columns)
    listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    blocks = counts.new_zeros(*counts.shape, number + 1, dtype=torch.bool)
    blocks.scatter_(-1, torch.where(listed, indices, number).long(), True)
    # a block may be larger than the sequence
    blocks = blocks[..., :number].repeat_interleave(min(rows, queries), -2).repeat_interleave(min(columns, keys), -1)
    return blocks[..., :queries, :keys]


def _has_values(tensor: Tensor) -> bool:
    """Return whether a plain tensor has values that can be read now, outside transforms of torch.func."""
    return type(tensor) is Tensor and not tensor.is_meta and torch._C._functorch.peek_interpreter_stack() is None
