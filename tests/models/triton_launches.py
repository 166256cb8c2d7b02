"""Record the launches of the Triton kernels of every case that a GPU campaign checks or times, on meta tensors."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.bench.latency import gates
from headcount.bench.latency.campaign import campaign_cases
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from headcount.models.kernels import triton_ops
from headcount.models.kernels.triton_launch import Launched, recording

TRITON = "triton"
_NARROW = {"attention": "moa", "d_model": 512, "num_experts": 8, "top_k": 8, "head_dim": 64}


class Call(NamedTuple):
    """A layer or model at one shape; ``which`` is forward, both or decode."""

    config: Any
    seq_len: int
    batch_size: int
    which: str


OTHERS = (
    Call(preset("mlm-moa-8K64E256D").attention, 512, 8, "both"),
    Call(preset("moa-8K8E256D").attention, 8192, 8, "decode"),
    Call(make_config(_NARROW), 64, 8, "forward"),
    Call(make_config(_NARROW), 512, 8, "both"),
)
"""Calls that use launch configurations which no case of a campaign uses."""


class Launching(TorchDispatchMode):
    """Run the code that launches the kernels also for meta tensors, for which operators return shapes alone."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "headcount":
            return func(*args, **(kwargs or {}))
        return getattr(triton_ops, func.overloadpacket.__name__)._init_fn(*args)


NO_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh")
"""Operations that return new tensors without a kernel."""


class Operations(TorchDispatchMode):
    """Count the operations of a run on meta tensors that launch a kernel: those that return no view."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        is_made = not any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if is_made and func.overloadpacket.__name__ not in NO_KERNEL:
            self.number += 1
        return func(*args, **(kwargs or {}))


def calls(dtype: str) -> list[Call]:
    """Return the calls of a campaign in ``dtype`` that have kernels, those of its correctness checks, and others."""
    cases = [*gates.check_cases(gates.LAYERS, "cuda", [dtype]), *campaign_cases(dtype=dtype)]
    found = dict.fromkeys(Call(case.config, case.seq_len, case.batch_size, case.which) for case in cases)
    return [call for call in (*found, *OTHERS) if _has_kernels(call.config)]


def _has_kernels(config: Any) -> bool:
    return any(impl.name == TRITON for impl in getattr(config, "attention", config).implementations)


def launches(dtype: str = "bfloat16", arch: int = 90) -> list[Launched]:
    """Return every launch of a campaign on a GPU of this compute capability, in order."""
    return launches_of(calls(dtype), dtype, arch)


def launches_of(calls: Iterable[Call], dtype: str, arch: int = 90) -> list[Launched]:
    """Return every launch of these calls, in order."""
    with recording(arch) as found, Launching():
        for call in calls:
            _run(call, getattr(torch, dtype))
    return found


def _run(call: Call, dtype: torch.dtype) -> None:
    config, trains = call.config, call.which == "both"
    module = build(config, device="meta", dtype=dtype, impl=TRITON)
    with torch.set_grad_enabled(trains):
        if hasattr(config, "attention"):
            lengths = dict.fromkeys(config.lengths, call.seq_len) | {"batch_size": call.batch_size}
            out = module(*example_inputs(config, lengths, device="meta", dtype=dtype).values())
        elif call.which == "decode":
            cache = module.make_cache(call.batch_size, call.seq_len, "meta", dtype)
            cache.length = call.seq_len - 1
            out = module(torch.empty(call.batch_size, 1, config.d_model, dtype=dtype, device="meta"), cache=cache)
        else:
            shape = call.batch_size, call.seq_len, config.d_model
            out = module(torch.empty(shape, dtype=dtype, device="meta", requires_grad=trains))
        if trains:
            out.float().square().mean().backward()
