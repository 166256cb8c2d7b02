"""Time user modules, presets and configurations in turns, in the process that runs user code."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from headcount.bench.env import device_name
from headcount.bench.isolated.run import specs_of
from headcount.bench.isolated.user_code import UserCodeError, build_target, check_module_names, run_user_code
from headcount.bench.latency.capture import side_stream
from headcount.bench.latency.timing import ImplFailed, TimedCall, interleave
from headcount.bench.trace.copies import as_leaf
from headcount.bench.trace.record import run_backward


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the samples of each target, those of an A/A control of the first, and where they were taken.

    ``request`` holds ``targets``, each as user_code.build_target takes it, ``device``, ``backward``, ``blocks``,
    ``threads`` and ``mode``, "train" or "eval". Raises UserCodeError for a target that cannot be built or that fails.
    """
    device = request["device"]
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    with side_stream(device):
        try:
            calls = [_make_call(target, device, request["backward"], request["mode"]) for target in request["targets"]]
        finally:
            # an error may be of a target that ran the code of another
            check_module_names(specs_of(request))
        control = replace(calls[0], wall_s=[], gpu_s=[])
        try:
            interleave([*calls, control], blocks=request["blocks"], device=device)
        except ImplFailed as failed:
            raise UserCodeError(str(failed)) from failed
    facts = {"device": device_name(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"targets": [call.samples() for call in calls], "control": control.samples(), **facts}


def _make_call(target: Mapping[str, Any], device: str, backward: bool, mode: str) -> TimedCall:
    """Return one pass of a target with random weights on ``device``."""
    built = build_target({**target, "device": device, "random": True})

    def move() -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
        inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (built.args, built.kwargs))
        if backward:
            inputs = tree_map_only(torch.Tensor, as_leaf, inputs)
        return built.module.to(device).train(mode == "train"), *inputs

    module, args, kwargs = run_user_code(f"moving the model to {device}", move)

    def call(_: int) -> Any:
        with torch.set_grad_enabled(backward):
            out = module(*args, **kwargs)
            if backward:
                run_backward(module, out)
        return out

    run_user_code("the first pass", lambda: call(0))
    return TimedCall(target["spec"], call)
