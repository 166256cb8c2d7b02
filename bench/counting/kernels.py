"""Record the kernels of a target by a run on meta tensors, in the process that runs user code."""

from dataclasses import dataclass, replace

import torch

from headcount.bench.counting.copies import on_meta
from headcount.bench.counting.kernel_recorder import record_kernels
from headcount.bench.performance.kernel import Kernel
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError, build_target, run_user_code
from headcount.bench.trace.record import run_pass


@dataclass(frozen=True)
class Recorded:
    """The kernels of a target.

    Attributes:
        forward: of a forward pass without gradients.
        training: of a forward and a backward pass; empty where it has none.
        reason: why it has none.
        trained: number of trained parameters.
        dtype: type of most weights.
    """

    forward: tuple[Kernel, ...]
    training: tuple[Kernel, ...]
    reason: str
    trained: int
    dtype: str


def record_target(target: Target) -> Recorded:
    """Return the kernels of a target. Raises UserCodeError for one that does not run on meta tensors."""
    built = build_target(replace(target, device=None))
    module, args, kwargs = run_user_code("moving the module to meta", lambda: on_meta(built.call))

    def run(training: bool) -> tuple[Kernel, ...]:
        with record_kernels() as recorder:
            run_pass(module, args, kwargs, training)
        return tuple(recorder.kernels)

    forward = run_user_code("the run on meta tensors that its kernels are of", lambda: run(False))
    training, reason = (), ""
    try:
        training = run_user_code("its backward pass", lambda: run(True))
    except UserCodeError as error:
        reason = str(error)
    parameters = list(module.parameters())
    sizes: dict[torch.dtype, int] = {}
    for parameter in parameters:
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
    most = max(sizes, key=sizes.__getitem__, default=torch.float32)
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    return Recorded(forward, training, reason, trained, str(most).removeprefix("torch."))
