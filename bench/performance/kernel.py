"""A kernel: one launch on a GPU, with the bytes that it moves and its multiply-accumulates. Imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

PRODUCT, UNALIGNED, GROUPED, WEIGHT_GRAD = "product", "product_unaligned", "grouped", "weight_grad"
CORE, CORE_BACKWARD, DECODE = "core", "core_backward", "decode"
ELEMENTWISE, SORT, TOP_K = "elementwise", "sort", "topk"
KINDS = (PRODUCT, UNALIGNED, GROUPED, WEIGHT_GRAD, CORE, CORE_BACKWARD, DECODE, ELEMENTWISE, SORT, TOP_K)
"""Kinds of kernels: a dense product, and one whose matrices have rows that do not begin at multiples of ALIGNMENT; a
product of each row with its expert's matrix; the gradient of such matrices by Triton; an attention core, its backward
pass, and the core of one query for each sequence; what has no products; a sort, and the selection of the largest."""
ALIGNMENT = 16
"""Bytes that a GPU loads at once; where the rows of a matrix do not begin at multiples, slower kernels run."""

UNLISTED = {
    "loop": "reads sizes on the host, so that no graph holds it",
    "ragged": "gathers rows on meta tensors, where CUDA packs them",
}
"""Implementations whose kernels a run on meta tensors does not give, with the reason."""


class CoreSizes(NamedTuple):
    """Sizes of an attention core: sequences times heads, queries and keys of each, and the width of a head."""

    batch: int
    queries: int
    keys: int
    width: int


@dataclass(frozen=True)
class Kernel:
    """``times`` equal launches.

    Attributes:
        name: the operator of torch, the Triton kernel, or the module path of a closed form.
        kind: one of KINDS.
        bytes: bytes of the tensors that one launch reads and writes, each once.
        macs: multiply-accumulates of one launch.
        core: sizes of an attention core; None for others.
        sorted: elements that a sort orders, rows whose largest are selected; 0 for others.
        times: the number of launches.
        source: fingerprint of the code of a Triton kernel; empty for others.
    """

    name: str
    kind: str
    bytes: int
    macs: int = 0
    core: CoreSizes | None = None
    sorted: int = 0
    times: int = 1
    source: str = ""


def product_kind(row_bytes: Iterable[int]) -> str:
    """Return the kind of a dense product, given the bytes from row to row of its matrices."""
    return UNALIGNED if any(size % ALIGNMENT for size in row_bytes) else PRODUCT
