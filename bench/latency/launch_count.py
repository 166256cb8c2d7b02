"""Count the kernels that a call launches: operations of a run on meta tensors, except views and empty tensors."""

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.bench.latency.case_tensors import DTYPES
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.build import build, example_inputs

NO_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh")


class _Operations(TorchDispatchMode):
    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = not any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if made and func.overloadpacket.__name__ not in NO_KERNEL:
            self.number += 1
        return func(*args, **(kwargs or {}))


class _Fused(TorchFunctionMode):
    """Mode that counts the fused attention core as one kernel, which meta tensors would decompose.

    Its output has the strides that it has on a GPU: token by token.
    """

    number = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call ``func``, or count the fused core."""
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.number += 1
        (batch, heads, tokens, _), width = args[0].shape, args[2].shape[-1]
        return args[0].new_empty(batch, tokens, heads, width).transpose(1, 2)


def count_launches(case: TimingCase, spec: ImplSpec) -> int | None:
    """Return the kernels of a forward pass; None for another pass, and where it does not run on meta tensors."""
    if case.which not in ("forward", "decode"):
        return None
    how = dict(device="meta", dtype=DTYPES[case.dtype])
    try:
        module = build(spec.config, impl=spec.impl, **how)
        if case.subject == "model":
            arguments = example_inputs(spec.config, case.at_lengths(spec.config).lengths, **how).values()
        else:
            arguments = [torch.empty(case.batch_size, case.new_len, spec.config.d_model, **how)]
        options = {}
        if case.which == "decode":
            options["cache"] = module.make_cache(case.batch_size, case.seq_len)
            options["cache"].length = case.seq_len - 1
        with torch.no_grad(), _Operations() as operations, _Fused() as fused:
            module(*arguments, **options)
    except Exception:
        # an implementation that reads values, or needs a package that is not installed
        return None
    return operations.number + fused.number
