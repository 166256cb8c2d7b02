"""Launch the Triton kernels: grids and block sizes follow from shapes alone.

No value is read on the host, so that every launch can be captured in a CUDA graph. Imports triton.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from headcount.models.kernels import triton_attention, triton_rows
from headcount.models.kernels.triton_configs import INTERPRETED, Launch, launch_for, splits_of_keys

PADDED = (("E", 16), ("K", 1), ("D", 16))
"""Sizes that kernels pad to a power of two, and the least power."""
FLAGS = (("bias_ptr", "BIASED"), ("gates_ptr", "GATED"), ("other_ptr", "DOTTED"), ("hidden_ptr", "HIDDEN"))
"""Tensors that a launch may lack, and the constants of the kernels that have them."""


class Launched(NamedTuple):
    """A launch that was recorded instead of started."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any]
    launch: Launch


_recorded: ContextVar[list[Launched] | None] = ContextVar("recorded", default=None)


@contextmanager
def recording() -> Iterator[list[Launched]]:
    """Record launches in a list instead of starting them: their tensors may be on meta."""
    found: list[Launched] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)


def route(x: Tensor, w: Tensor, top_k: int, renormalise: bool, with_logits: bool) -> tuple[Tensor, ...]:
    """Return gates and experts (N, K), order (N*K), ends (E), logits (N, E or 0) of tokens (N, d) and W_g (E, d)."""
    (num_tokens, d_model), num_experts = x.shape, w.shape[0]
    chosen = _configured("route", E=num_experts, N=num_tokens)
    num_blocks = triton.cdiv(num_tokens, chosen.blocks["BM"])
    selects = top_k < num_experts
    x, w = x.contiguous(), w.contiguous()
    gates = x.new_empty(num_tokens, top_k, dtype=torch.float32)
    experts, ranks = (x.new_empty(num_tokens, top_k if selects else 0, dtype=torch.int32) for _ in range(2))
    counts = x.new_empty(num_blocks, num_experts if selects else 0, dtype=torch.int32)
    logits = x.new_empty(num_tokens, num_experts if with_logits else 0, dtype=torch.float32)
    _start(
        triton_rows.route_kernel, (num_blocks,), chosen,
        x, w, gates, experts, ranks, counts, logits, num_tokens, d_model, x.stride(0),
        E=num_experts, K=top_k, RENORMALISE=renormalise, WITH_LOGITS=with_logits,
    )  # fmt: skip
    if not selects:
        return gates, experts, x.new_empty(0, dtype=torch.int32), x.new_empty(0, dtype=torch.int32), logits
    return gates, experts, *_place(experts, ranks, counts, chosen.blocks["BM"], 1), logits


def plan(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Return rows (groups * n * K) by group and expert and where each ends; experts (groups, n, K) are int32."""
    groups, group_len, top_k = experts.shape
    chosen = _configured("rank")
    per_group = triton.cdiv(group_len, chosen.blocks["BM"])
    ranks = torch.empty_like(experts)
    counts = experts.new_empty(groups * per_group, num_experts)
    _start(
        triton_rows.rank_kernel, (groups * per_group,), chosen, experts, ranks, counts, group_len, per_group,
        E=num_experts, K=top_k,
    )  # fmt: skip
    return _place(experts, ranks, counts, chosen.blocks["BM"], groups)


def _place(experts: Tensor, ranks: Tensor, counts: Tensor, block: int, groups: int) -> tuple[Tensor, Tensor]:
    num_blocks, num_experts = counts.shape
    top_k = experts.shape[-1]
    order, ends = experts.new_empty(experts.numel()), experts.new_empty(groups * num_experts)
    _start(
        triton_rows.place_kernel, (num_blocks,), _configured("place"), experts, ranks, counts, order, ends,
        num_blocks, experts.numel() // top_k // groups, num_blocks // groups,
        E=num_experts, K=top_k, BM=block,
    )  # fmt: skip
    return order, ends


def expert(
    a: Tensor,
    w: Tensor,
    bias: Tensor | None,
    gates: Tensor | None,
    order: Tensor,
    ends: Tensor,
    rows_per_a: int,
    other: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Multiply each row of ``a`` (N*K / rows_per_a, in) by its expert's matrix of ``w`` (E, in, out): (N*K, out).

    Also return the product of each row, without its gate, and the row of ``other`` (N*K, out): (N*K), or (0).
    """
    num_experts, in_features, out_features = w.shape
    a, bias, gates, order, ends, other = _contiguous(a, bias, gates, order, ends, other)
    rows = order.numel()
    # the widest block leaves no registers for the sums of rows
    widest = out_features if other is None else min(out_features, 128)
    chosen = _configured("expert", rows=rows // num_experts, i=in_features, o=widest)
    c = a.new_empty(rows, out_features)
    tiles = min(rows, triton.cdiv(rows, chosen.blocks["BM"]) + num_experts - 1)
    blocks = triton.cdiv(out_features, chosen.blocks["BN"])
    dots = a.new_empty(0 if other is None else rows, blocks, dtype=torch.float32)
    _start(
        triton_rows.expert_kernel, (blocks * tiles,), chosen,
        a, w, bias, gates, other, dots, c, order, ends, in_features, out_features, a.stride(0), *w.stride(),
        E=num_experts, ROWS_PER_A=rows_per_a,
    )  # fmt: skip
    # blocks are summed in order, so that equal inputs give equal bits
    return c, dots[:, 0] if blocks == 1 else dots.sum(1)


def slots(rows: Tensor, top_k: int) -> Tensor:
    """Sum the K rows of each token: (N*K, width) to (N, width)."""
    num_tokens, width = rows.shape[0] // top_k, rows.shape[1]
    chosen = _configured("slots")
    out = rows.new_empty(num_tokens, width)
    grid = (triton.cdiv(num_tokens, chosen.blocks["BM"]), triton.cdiv(width, chosen.blocks["BN"]))
    _start(triton_rows.slots_kernel, grid, chosen, rows, out, num_tokens, width, K=top_k)
    return out


def weight_grad(
    a: Tensor, g: Tensor, gates: Tensor | None, order: Tensor, ends: Tensor, biased: bool
) -> tuple[Tensor, Tensor]:
    """Return dW (E, in, out) and db (E, out or 0) from ``a`` and ``g``, one row for each row or for each token."""
    (a_rows, in_features), (g_rows, out_features) = a.shape, g.shape
    a, g, gates, order, ends = _contiguous(a, g, gates, order, ends)
    num_experts, rows = ends.numel(), order.numel()
    chosen = _configured("weight_grad")
    dw = a.new_empty(num_experts, in_features, out_features)
    db = a.new_empty(num_experts, out_features if biased else 0)
    grid = (triton.cdiv(in_features, chosen.blocks["BI"]), triton.cdiv(out_features, chosen.blocks["BO"]), num_experts)
    _start(
        triton_rows.weight_grad_kernel, grid, chosen,
        a, g, gates, dw, db, order, ends, in_features, out_features, a.stride(0), g.stride(0),
        ROWS_PER_A=rows // a_rows, ROWS_PER_G=rows // g_rows, BIASED=biased,
    )  # fmt: skip
    return dw, db


def mqa(q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, hidden: Tensor | None, causal: bool) -> Tensor:
    """Attend from (B, T, K, D) to (B, S, D), times gates (B, T, K)."""
    batch_size, tgt_len, top_k, head_dim = q.shape
    q, gates, hidden = _contiguous(q, gates, hidden)
    out = torch.empty_like(q)
    chosen = _configured("mqa", D=_padded(head_dim))
    _attend(
        triton_attention.mqa_kernel, triton.cdiv(tgt_len * top_k, chosen.blocks["BM"]) * batch_size, chosen,
        q, k, v, gates, hidden, out, tgt_len * top_k, k.shape[1], K=top_k, CAUSAL=causal,
    )  # fmt: skip
    return out


def ragged(
    q: Tensor, k: Tensor, v: Tensor, heads: Tensor, gates: Tensor, hidden: Tensor | None, causal: bool
) -> Tensor:
    """Attend from (B, T, h, D) to (B, S, g, D) by heads (B, T, k) times gates (B, T, k); zeros elsewhere."""
    batch_size, tgt_len, num_heads, head_dim = q.shape
    q, gates, hidden = _contiguous(q, gates, hidden)
    order, ends = plan(heads, num_heads)
    out = torch.zeros_like(q)
    rows = tgt_len * heads.shape[-1] // num_heads
    if q.dtype == torch.float32 and head_dim > 64:
        # the keys and values of the widest block do not fit into shared memory
        rows = 0
    chosen = _configured("ragged", D=_padded(head_dim), rows=rows)
    _attend(
        triton_attention.ragged_kernel, triton.cdiv(tgt_len, chosen.blocks["BM"]) * batch_size * num_heads, chosen,
        q, k, v, gates, hidden, out, order, ends, tgt_len, k.shape[1],
        H=num_heads, GROUP=num_heads // k.shape[2], K=heads.shape[-1], CAUSAL=causal,
    )  # fmt: skip
    return out


def decode(q: Tensor, k: Tensor, v: Tensor, heads: Tensor, gates: Tensor, hidden: Tensor | None) -> Tensor:
    """Attend from one query (B, h, D) per sequence to (B, S, g, D) by heads (B, k) times gates (B, k); else 0."""
    (batch_size, num_heads, head_dim), (src_len, num_kv_heads) = q.shape, k.shape[1:3]
    q, heads, gates, hidden = _contiguous(q, heads, gates, hidden)
    top_k, group, chosen = heads.shape[-1], num_heads // num_kv_heads, _configured("decode", D=_padded(head_dim))
    tiles = batch_size * num_kv_heads * triton.cdiv(min(top_k, group), chosen.blocks["BM"])
    splits = splits_of_keys(tiles, src_len)
    part = q.new_empty(batch_size, top_k, splits, head_dim, dtype=torch.float32)
    top, norm = (part.new_empty(part.shape[:-1]) for _ in range(2))
    out = torch.zeros_like(q)
    sizes = dict(H=num_heads, K=top_k, SPLITS=splits)
    _attend(
        triton_attention.decode_kernel, splits * tiles, chosen,
        q, k, v, heads, hidden, part, top, norm, src_len, triton.cdiv(src_len, splits), GROUP=group, **sizes,
    )  # fmt: skip
    _start(
        triton_attention.combine_kernel, (top_k * batch_size,), _configured("combine"),
        part, top, norm, heads, gates, out, D=head_dim, **sizes,
    )  # fmt: skip
    return out


def _attend(
    kernel: Any, programs: int, chosen: Launch, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **constants: Any
) -> None:
    """Start a kernel over keys and values, whose last arguments are the scale and the strides of these."""
    k, v, head_dim = _rows_together(k), _rows_together(v), q.shape[-1]
    rest = *rest, 1 / (math.sqrt(head_dim) * math.log(2)), k.stride(0), k.stride(1), v.stride(0), v.stride(1)
    _start(kernel, (programs,), chosen, q, k, v, *rest, D=head_dim, **constants)


def _start(kernel: Any, grid: tuple[int, ...], chosen: Launch, *arguments: Any, **constants: Any) -> None:
    """Start or record a kernel. Constants of padded sizes, of absent tensors (None) and of the precision are added."""
    names = kernel.arg_names
    constants |= {f"{size}_PAD": _padded(constants[size], least) for size, least in PADDED if f"{size}_PAD" in names}
    given = dict(zip(names, arguments, strict=False))
    constants |= {flag: given[name] is not None for name, flag in FLAGS if flag in names and name in given}
    if "PRECISION" in names:
        # 16-bit products ignore it
        constants["PRECISION"] = "ieee" if arguments[0].dtype == torch.float32 else "tf32"
    constants |= chosen.blocks
    arguments = tuple(arguments[0] if value is None else value for value in arguments)
    recorded = _recorded.get()
    if recorded is None:
        kernel[grid](*arguments, **constants, **chosen.options)
    else:
        recorded.append(Launched(kernel, grid, arguments, constants, chosen))


def _configured(kernel: str, **sizes: int) -> Launch:
    return INTERPRETED[kernel] if triton.knobs.runtime.interpret else launch_for(kernel, **sizes)


def _padded(size: int, least: int = 16) -> int:
    return max(least, triton.next_power_of_2(size))


def _rows_together(x: Tensor) -> Tensor:
    """Return keys or values with the heads of a position contiguous, as in a slice of a cache."""
    inner = x.shape[2:]
    packed = all(n == 1 or x.stride(2 + i) == math.prod(inner[i + 1 :]) for i, n in enumerate(inner))
    return x if packed else x.contiguous()


def _contiguous(*tensors: Tensor | None) -> Iterator[Tensor | None]:
    """Yield the tensors in rows without gaps, masks as bytes."""
    for x in tensors:
        yield x if x is None else x.contiguous().view(torch.uint8 if x.dtype == torch.bool else x.dtype)
