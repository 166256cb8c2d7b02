"""Products of rows with their experts' matrices, one product per contiguous segment of rows with one expert.

The rows of a segment are copied where they are used, so that they stay in the processor's cache, and never as a
whole (N*K, d_m) array, in neither direction. Sizes of the segments lie on the host: on the CPU they are there
anyway, on CUDA reading them waits for the device.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.autograd.function import once_differentiable


class Segments(NamedTuple):
    """For each expert the ids of its rows and of their tokens; row n*K + k is slot k of token n."""

    rows: tuple[Tensor, ...]
    tokens: tuple[Tensor, ...]

    def filled(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield expert, rows and tokens of every expert that has a row."""
        for expert, (rows, tokens) in enumerate(zip(self.rows, self.tokens, strict=True)):
            if rows.numel():
                yield expert, rows, tokens


def sort_rows(indices: Int[Tensor, "*tokens top_k"], num_experts: int) -> tuple[Int[Tensor, "rows"], Int[Tensor, "E"]]:
    """Return the rows in the order of their experts and the int32 end of each expert's rows, without host reads."""
    # in the narrowest dtype: a sort takes as many passes as its keys have bytes
    kind = next(one for one in (torch.uint8, torch.int16, torch.int32) if num_experts - 1 <= torch.iinfo(one).max)
    experts, order = torch.sort(indices.flatten().to(kind), stable=True)
    # the host never learns the sizes, as it would from bincount
    wanted = torch.arange(num_experts, device=order.device, dtype=experts.dtype)
    return order, torch.searchsorted(experts, wanted, right=True, out_int32=True)


def make_segments(indices: Int[Tensor, "batch tgt top_k"], num_experts: int) -> Segments:
    """Return the rows of each expert, in the order of the tokens."""
    order, ends = sort_rows(indices, num_experts)
    bounds = ends[:-1].tolist()
    return Segments(order.tensor_split(bounds), (order // indices.shape[-1]).tensor_split(bounds))


def _spread(x: Tensor, weight: Tensor, bias: Tensor | None, segments: Segments) -> Tensor:
    """Return x_n W_e + b_e as row (n, k), for the expert e of slot k of token n."""
    out = x.new_empty(sum(rows.numel() for rows in segments.rows), weight.shape[-1])
    for e, rows, tokens in segments.filled():
        x_e = x.index_select(0, tokens)
        out.index_copy_(0, rows, x_e @ weight[e] if bias is None else torch.addmm(bias[e], x_e, weight[e]))
    return out


def _collect(x: Tensor, gates: Tensor | None, weight: Tensor, num_tokens: int, segments: Segments) -> Tensor:
    """Return for each token the sum over its K rows of g x W_e, added in float32 or wider; without ``gates`` g is 1."""
    out = x.new_zeros(num_tokens, weight.shape[-1], dtype=torch.promote_types(x.dtype, torch.float32))
    for e, rows, tokens in segments.filled():
        x_e = x.index_select(0, rows)
        if gates is not None:
            x_e.mul_(gates.index_select(0, rows)[:, None])
        out.index_add_(0, tokens, (x_e @ weight[e]).to(out.dtype))
    return out.to(x.dtype)


def _weight_grad(like: Tensor, of_tokens: Tensor, of_rows: Tensor, segments: Segments) -> Tensor:
    """Return for each expert the sum of the outer products of its rows with their tokens, zeros where it has no row.

    ``like`` (E, in, out) has the layout of the result; tokens (N, in or out), rows (N*K, out or in).
    """
    grad = torch.zeros_like(like)
    for e, rows, tokens in segments.filled():
        torch.mm(of_tokens.index_select(0, tokens).t(), of_rows.index_select(0, rows), out=grad[e])
    return grad


class SpreadSegments(torch.autograd.Function):
    """x_n W_e + b_e as row (n, k), for the expert e of slot k of token n.

    ``x`` (N, in), ``weight`` (E, in, out), ``bias`` (E, out) or None, and :class:`Segments`, to (N*K, out).
    """

    @staticmethod
    def forward(ctx, x, weight, bias, segments):
        ctx.save_for_backward(x, weight)
        ctx.segments = segments
        return _spread(x, weight, bias, segments)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x, weight), segments = ctx.saved_tensors, ctx.segments
        wants_x, wants_weight, wants_bias, _ = ctx.needs_input_grad
        dx = _collect(grad, None, weight.mT, len(x), segments) if wants_x else None
        dw = _weight_grad(weight, x, grad, segments) if wants_weight else None
        db = torch.stack([grad.index_select(0, rows).sum(0) for rows in segments.rows]) if wants_bias else None
        return dx, dw, db, None


class CollectSegments(torch.autograd.Function):
    """For each token the sum over its K rows of g x W_e.

    ``x`` (N*K, in), ``gates`` (N*K), ``weight`` (E, in, out), N and :class:`Segments`, to (N, out).
    """

    @staticmethod
    def forward(ctx, x, gates, weight, num_tokens, segments):
        ctx.save_for_backward(x, gates, weight)
        ctx.segments = segments
        return _collect(x, gates, weight, num_tokens, segments)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, gates, weight = ctx.saved_tensors
        back, dw = _spread(grad, weight.mT, None, ctx.segments), None
        if ctx.needs_input_grad[2]:
            dw = _weight_grad(weight.mT, grad, x * gates[:, None], ctx.segments).mT
        return back * gates[:, None], (back * x).sum(-1), dw, None, None
