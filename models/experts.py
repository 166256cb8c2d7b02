"""Products of rows with a matrix selected for each: experts, or the part of a projection that belongs to a head.

Each row's matrix is gathered for it. Rows go in chunks whose gathered matrices fill at most GATHERED_BYTES, on meta
all at once; the split changes neither result nor count.
"""

from collections.abc import Callable
from contextvars import ContextVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.shapes import SelectedHeads

GATHERED_BYTES = 4 * 2**20
CHUNK_RULE: ContextVar[Callable[[int, int], int] | None] = ContextVar("CHUNK_RULE", default=None)
"""Rows in a chunk, given the number of rows and of elements gathered for each; set by measurements of peak memory."""


class ExpertLinear(nn.Module):
    """y = x W_e + b_e, with the expert e chosen row by row; ``weight`` is (E, in, out), ``bias`` (E, out).

    Plain form: each row's weight matrix is gathered for it (:func:`gathered_product`). Weights are not initialised
    here: :func:`headcount.models.build.build` does it.
    """

    def __init__(self, num_experts: int, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(num_experts, out_features)) if bias else None

    def forward(
        self,
        x: Float[Tensor, "batch tgt top_k in_features"],
        indices: Int[Tensor, "batch tgt top_k"],
        gates: Float[Tensor, "batch tgt top_k"] | None = None,
    ) -> Float[Tensor, "batch tgt top_k out_features"]:
        """Map row (b, t, k) by expert ``indices[b, t, k]``; with ``gates`` g_e (x W_e + b_e)."""
        if gates is not None:
            # the product is linear in x, so the gate may act on the narrow side
            x = x * gates[..., None]
        y = gathered_product(x, self.weight, indices)
        if self.bias is None:
            return y
        bias = self.bias[indices]
        return y + (bias if gates is None else bias * gates[..., None])


def gathered_product(
    x: Float[Tensor, "batch tgt k fan_in"], matrices: Float[Tensor, "experts fan_in fan_out"], chosen: SelectedHeads
) -> Float[Tensor, "batch tgt k fan_out"]:
    """Multiply row (b, t, i) by matrix ``chosen[b, t, i]``; ``torch.bmm``, which every counter reads."""
    _, fan_in, fan_out = matrices.shape
    rows = x.reshape(-1, 1, fan_in)
    chunk = rows_per_chunk(rows, fan_in * fan_out)
    parts = zip(in_chunks(rows, chunk), in_chunks(chosen.reshape(-1), chunk), strict=True)
    return torch.cat([torch.bmm(row, _gather(matrices, e)) for row, e in parts]).reshape(*chosen.shape, fan_out)


def _gather(matrices: Tensor, chosen: Tensor) -> Tensor:
    # whole matrices that lie together are copied much faster than elements one by one
    return matrices.index_select(0, chosen) if matrices.is_contiguous() else matrices[chosen]


def to_autocast_dtype(x: Float[Tensor, "*shape"] | None) -> Float[Tensor, "*shape"] | None:
    """Return ``x`` in the dtype of autocast, which handles neither grouped products nor Triton kernels."""
    # torch raises for meta, which has no autocast, and torch 2.11 cannot trace a test for it
    if x is None or x.device.type == "meta" or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def rows_per_chunk(rows: Float[Tensor, "rows 1 width"], gathered: int | Tensor) -> int | None:
    """Return the rows per chunk, so that ``gathered`` elements per row fill at most GATHERED_BYTES; None on meta."""
    # torch.compile traces no ContextVar
    if not torch.compiler.is_compiling() and (rule := CHUNK_RULE.get()):
        return rule(len(rows), int(gathered))
    return None if rows.is_meta else max(1, GATHERED_BYTES // int(gathered * rows.element_size()))


def in_chunks(x: Tensor, chunk: int | None) -> tuple[Tensor, ...]:
    """Split ``x`` into parts of ``chunk`` rows; whole for None."""
    return (x,) if chunk is None else x.split(chunk)
