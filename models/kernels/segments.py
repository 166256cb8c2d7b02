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


def smallest_integer(below: int) -> torch.dtype:
    """Return the narrowest dtype for 0 to ``below`` - 1: a sort takes as many passes as its keys have bytes."""
    return next(kind for kind in (torch.uint8, torch.int16, torch.int32) if below - 1 <= torch.iinfo(kind).max)


def sort_rows(indices: Int[Tensor, "*tokens top_k"], num_experts: int) -> tuple[Int[Tensor, "rows"], Int[Tensor, "E"]]:
    """Return the rows in the order of their experts and the int32 end of each expert's rows, without host reads."""
    experts, order = torch.sort(indices.flatten().to(smallest_integer(num_experts)), stable=True)
    # the host never learns the sizes, as it would from bincount
    wanted = torch.arange(num_experts, device=order.device, dtype=experts.dtype)
    return order, torch.searchsorted(experts, wanted, right=True, out_int32=True)


def make_segments(indices: Int[Tensor, "batch tgt top_k"], num_experts: int) -> Segments:
    """Return the rows of each expert, in the order of the tokens."""
    experts = indices.flatten()
    order = torch.sort(experts.to(smallest_integer(num_experts)), stable=True).indices
    sizes = torch.bincount(experts, minlength=num_experts).tolist()
    return Segments(order.split(sizes), (order // indices.shape[-1]).split(sizes))


def _sums(x: Tensor, num_tokens: int, width: int) -> Tensor:
    """Return zeros to add K addends into, in float32 or wider."""
    return x.new_zeros(num_tokens, width, dtype=torch.promote_types(x.dtype, torch.float32))


class SpreadSegments(torch.autograd.Function):
    """x_n W_e + b_e as row (n, k), for the expert e of slot k of token n.

    ``x`` (N, in), ``weight`` (E, in, out), ``bias`` (E, out) or None, and :class:`Segments`, to (N*K, out).
    """

    @staticmethod
    def forward(ctx, x, weight, bias, segments):
        ctx.save_for_backward(x, weight)
        ctx.segments = segments
        out = x.new_empty(sum(rows.numel() for rows in segments.rows), weight.shape[-1])
        for e, rows, tokens in segments.filled():
            x_e = x.index_select(0, tokens)
            out.index_copy_(0, rows, x_e @ weight[e] if bias is None else torch.addmm(bias[e], x_e, weight[e]))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, _ = ctx.needs_input_grad
        dx = _sums(x, *x.shape) if wants_x else None
        dw = torch.zeros_like(weight) if wants_weight else None
        db = weight.new_zeros(weight.shape[0], weight.shape[2]) if wants_bias else None
        for e, rows, tokens in ctx.segments.filled():
            grad_e = grad.index_select(0, rows)
            if wants_x:
                dx.index_add_(0, tokens, (grad_e @ weight[e].t()).to(dx.dtype))
            if wants_weight:
                torch.mm(x.index_select(0, tokens).t(), grad_e, out=dw[e])
            if wants_bias:
                torch.sum(grad_e, 0, out=db[e])
        return None if dx is None else dx.to(x.dtype), dw, db, None


class CollectSegments(torch.autograd.Function):
    """For each token the sum over its K rows of g x W_e.

    ``x`` (N*K, in), ``gates`` (N*K), ``weight`` (E, in, out), N and :class:`Segments`, to (N, out).
    """

    @staticmethod
    def forward(ctx, x, gates, weight, num_tokens, segments):
        ctx.save_for_backward(x, gates, weight)
        ctx.segments = segments
        out = _sums(x, num_tokens, weight.shape[-1])
        for e, rows, tokens in segments.filled():
            gated = x.index_select(0, rows).mul_(gates.index_select(0, rows)[:, None])
            out.index_add_(0, tokens, (gated @ weight[e]).to(out.dtype))
        return out.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, gates, weight = ctx.saved_tensors
        wants_x, wants_gates, wants_weight, _, _ = ctx.needs_input_grad
        # every row belongs to one expert, so that every one of these is written
        dx = torch.empty_like(x) if wants_x else None
        dgates = torch.empty_like(gates) if wants_gates else None
        dw = torch.zeros_like(weight) if wants_weight else None
        for e, rows, tokens in ctx.segments.filled():
            grad_e, x_e, gates_e = (t.index_select(0, i) for t, i in ((grad, tokens), (x, rows), (gates, rows)))
            back = grad_e @ weight[e].t()
            if wants_gates:
                dgates.index_copy_(0, rows, (back * x_e).sum(-1))
            if wants_x:
                dx.index_copy_(0, rows, back.mul_(gates_e[:, None]))
            if wants_weight:
                torch.mm(x_e.mul_(gates_e[:, None]).t(), grad_e, out=dw[e])
        return dx, dgates, dw, None, None
