"""Time user modules, presets and configurations in turns, in the process that runs user code."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from headcount.bench.counting.module import move_call
from headcount.bench.env import device_name
from headcount.bench.latency.timing import ImplFailed, TimedCall, interleave, side_stream
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import Built, UserCodeError, build_that_runs, check_module_names, run_user_code
from headcount.bench.trace.copies import as_leaf
from headcount.bench.trace.record import run_pass


def time_targets(
    targets: Sequence[Target], *, device: str, backward: bool, blocks: int, threads: int | None, mode: str
) -> dict[str, Any]:
    """Return the samples of each target, those of an A/A control of the first, and where they were taken.

    ``mode`` is "train" or "eval". Raises UserCodeError for a target that cannot be built or that fails.
    """
    if threads:
        torch.set_num_threads(threads)
    with side_stream(device):
        try:
            calls = [_make_call(target, device, backward, mode) for target in targets]
        finally:
            # an error may be of a target that ran the code of another
            check_module_names([target.spec for target in targets])
        control = replace(calls[0])
        try:
            interleave([*calls, control], blocks=blocks, device=device)
        except ImplFailed as failed:
            raise UserCodeError(str(failed)) from failed
    facts = {"device": device_name(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"targets": [call.samples() for call in calls], "control": control.samples(), **facts}


def _make_call(target: Target, device: str, backward: bool, mode: str) -> TimedCall:
    """Return one pass of a target with random weights on ``device``, or of its first alternative that runs."""

    def run(_: Target, built: Built) -> Callable[[int], Any]:
        def move() -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
            module, *inputs = move_call(built.call, device)
            inputs = tree_map_only(torch.Tensor, as_leaf, inputs) if backward else inputs
            return module.train(mode == "train"), *inputs

        module, args, kwargs = run_user_code(f"moving the model to {device}", move)

        def call(_: int) -> Any:
            return run_pass(module, args, kwargs, backward)

        run_user_code("the first pass", lambda: call(0))
        return call

    _, _, call = build_that_runs(replace(target, device=device), run, random=True)
    return TimedCall(target.spec, call)
