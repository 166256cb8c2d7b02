"""How many kernels a call launches: operations of a run on tensors without values, views and empty memory apart."""

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.shared import DTYPES
from headcount.models.build import build, example_inputs

NO_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh")


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = not any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if made and func.overloadpacket.__name__ not in NO_KERNEL:
            self.number += 1
        return func(*args, **(kwargs or {}))


class _Fused(TorchFunctionMode):
    """The fused core is one kernel, which meta tensors would take apart; its output lies token by token, as a GPU's."""

    def __init__(self, operations: _Operations) -> None:
        super().__init__()
        self.operations = operations

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call ``func``, or count the core."""
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.operations.number += 1
        (batch, heads, tokens, _), width = args[0].shape, args[2].shape[-1]
        return args[0].new_empty(batch, tokens, heads, width).transpose(1, 2)


def launches(cell: Cell, spec: ArmSpec) -> int | None:
    """Kernels of a forward pass of an arm; None for another pass, and where it does not run without values."""
    if cell.which not in ("forward", "decode"):
        return None
    # a dense layer stands beside many others
    key = (spec.config, spec.arm, cell.subject, cell.which, cell.seq_len, cell.batch_size, cell.dtype)
    if key not in _counted:
        _counted[key] = _launched(cell, spec)
    return _counted[key]


_counted: dict[tuple, int | None] = {}


def _launched(cell: Cell, spec: ArmSpec) -> int | None:
    dtype = DTYPES[cell.dtype]
    try:
        module = build(spec.config, device="meta", dtype=dtype, impl=spec.arm)
        arguments, options = _call(cell, spec, module, dtype)
        with torch.no_grad(), _Operations() as operations, _Fused(operations):
            module(*arguments, **options)
    except Exception:
        # what an arm asks of values, or of a package, that are not there
        return None
    return operations.number


def _call(cell: Cell, spec: ArmSpec, module: Any, dtype: torch.dtype) -> tuple[tuple, dict]:
    if cell.subject == "model":
        lengths = cell.case(spec.config).lengths
        return tuple(example_inputs(spec.config, lengths, device="meta", dtype=dtype).values()), {}
    x = torch.empty(cell.batch_size, cell.new_len, spec.config.d_model, device="meta", dtype=dtype)
    if cell.which == "forward":
        return (x,), {}
    cache = module.make_cache(cell.batch_size, cell.seq_len)
    cache.length = cell.seq_len - 1
    return (x,), {"cache": cache}
