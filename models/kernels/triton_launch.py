"""Start the Triton kernels: by name, with the constants that follow from their arguments.

Block sizes follow from shapes alone, and no value is read on the host, so that every launch can be captured in a CUDA
graph. Importable without triton, which the first launch imports.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headcount.models.kernels.triton_configs import Launch, interpreted_launch, launch_for

PADDED = (("E", 16), ("C", 16), ("K", 1), ("D", 16))
"""Sizes that kernels pad to a power of two, and the least power."""
FLAGS = (
    ("bias_ptr", "BIASED"), ("gates_ptr", "GATED"), ("other_ptr", "DOTTED"), ("top_ptr", "PARTED"),
    ("hidden_ptr", "HIDDEN"),
)  # fmt: skip
"""Tensors that a launch may lack, and the constants of the kernels that have them."""


class Launched(NamedTuple):
    """A launch that was recorded instead of started."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any]
    launch: Launch


_recorded: ContextVar[tuple[list[Launched], int] | None] = ContextVar("recorded", default=None)


@contextmanager
def recording(arch: int = 90) -> Iterator[list[Launched]]:
    """Record launches for a compute capability in a list instead of starting them: their tensors may be on meta."""
    found: list[Launched] = []
    token = _recorded.set((found, arch))
    try:
        yield found
    finally:
        _recorded.reset(token)


def configure(kernel: str, **sizes: int) -> Launch:
    """Return the launch of ``kernel`` for a call of these sizes; in the interpreter the same for all."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return interpreted_launch(kernel)
    recorded = _recorded.get()
    major, minor = divmod(recorded[1], 10) if recorded else torch.cuda.get_device_capability()
    return launch_for(kernel, arch=10 * major + minor, **sizes)


def start(name: str, grid: tuple[int, ...], launch: Launch, *arguments: Any, **constants: Any) -> None:
    """Start or record a kernel. Constants of padded sizes, of absent tensors (None) and of the precision are added."""
    kernel = _kernel(name)
    names = kernel.arg_names
    constants |= {f"{size}_PAD": pad(constants[size], least) for size, least in PADDED if f"{size}_PAD" in names}
    given = dict(zip(names, arguments, strict=False))
    constants |= {flag: given[name] is not None for name, flag in FLAGS if flag in names and name in given}
    if "PRECISION" in names:
        # 16-bit products ignore it
        has_half = any(isinstance(one, Tensor) and one.dtype.itemsize == 2 for one in arguments)
        constants["PRECISION"] = "tf32" if has_half else "ieee"
    constants |= launch.blocks
    arguments = tuple(arguments[0] if value is None else value for value in arguments)
    recorded = _recorded.get()
    if recorded is None:
        kernel[grid](*arguments, **constants, **launch.options)
    else:
        recorded[0].append(Launched(kernel, grid, arguments, constants, launch))


def start_attention(
    name: str, programs: int, launch: Launch, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **constants: Any
) -> None:
    """Start a kernel over keys and values, whose last arguments are the scale and the strides of these in units."""
    # the heads of a position lie together, as in a slice of a cache
    k, v = (x if x[0, 0].is_contiguous() else x.contiguous() for x in (k, v))
    head_dim = q.shape[-1]
    strides = k.stride(0), k.stride(1), v.stride(0), v.stride(1)
    # the most elements that one instruction loads; rows of a packed product are often multiples of 8 alone
    unit = math.gcd(8, *strides)
    rest = *rest, 1 / (math.sqrt(head_dim) * math.log(2)), *(stride // unit for stride in strides)
    start(name, (programs,), launch, q, k, v, *rest, D=head_dim, UNIT=unit, **constants)


@cache
def _kernel(name: str) -> Any:
    if _recorded.get() is not None and find_spec("triton") is None:
        # a launch that is recorded needs the name alone
        return SimpleNamespace(__name__=f"{name}_kernel", arg_names=())
    from headcount.models.kernels import triton_attention, triton_rows

    return (vars(triton_rows) | vars(triton_attention))[f"{name}_kernel"]


def cdiv(size: int, block: int) -> int:
    """Return the number of blocks that hold ``size`` elements."""
    return -(-size // block)


def pad(size: int, least: int = 16) -> int:
    """Return the next power of two, at least ``least``."""
    return max(least, 1 << (size - 1).bit_length())


def with_rows(x: Tensor) -> Tensor:
    """Return (…, width) as rows (N, width) whose elements lie together; a copy only where they do not."""
    rows = x.flatten(0, -2)
    return rows if rows.stride(1) == 1 else rows.contiguous()


def contiguous(*tensors: Tensor | None) -> Iterator[Tensor | None]:
    """Yield the tensors in rows without gaps, masks as bytes."""
    for x in tensors:
        yield x if x is None else x.contiguous().view(torch.uint8 if x.dtype == torch.bool else x.dtype)
