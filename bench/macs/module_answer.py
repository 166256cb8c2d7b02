"""What ``bench.macs --module`` asks of the process that runs user code: one module counted by every counter."""

import contextlib
import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from headcount.bench.contractions.count import UncountedError
from headcount.bench.counters.readings import Readings, as_record, read
from headcount.bench.counters.undisturbed import one_thread
from headcount.bench.isolated.user_code import build, called, load
from headcount.bench.trace.modes import tensors_of

META = "meta"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The right count, its audit, the parameters and every reading; only what is ``uncounted`` where that is an error.

    ``request`` holds spec, here, settings, counters, device and allow_uncounted. Raises UserCodeError.
    """
    try:
        return _counted(request)
    except UncountedError as error:
        return {"uncounted": [line.text() for line in error.uncounted]}


def _counted(request: dict[str, Any]) -> dict[str, Any]:
    spec = request["spec"]
    function = load(spec, Path(request["here"]))
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(0)
    module, args, kwargs = build(spec, function, request["settings"])

    def run(module: nn.Module, args: tuple, kwargs: dict) -> Readings:
        with one_thread():
            return read(
                module,
                args,
                kwargs,
                counters=request["counters"],
                label=spec,
                allow_uncounted=request["allow_uncounted"],
            )

    found, device, why = _where_it_runs(run, module, args, kwargs, request["device"])
    return {
        "device": device,
        "why_not_meta": why,
        "macs": found.right.macs,
        "ledger": found.right.ledger.as_records(),
        "params": _params(module),
        "trainable_params": sum(p.numel() for p in module.parameters() if p.requires_grad),
        "counters": [as_record(cell) for cell in found.counters],
        "audit": [
            {"operation": line.operation, "state": line.state, "path": line.path, "calls": line.calls,
             "shapes": line.shapes, "text": line.text()}
            for line in found.right.audit
        ],
    }  # fmt: skip


def _where_it_runs(
    run: Callable, module: nn.Module, args: tuple, kwargs: dict, device: str | None
) -> tuple[Readings, str, str | None]:
    """The readings on ``device``, or else on meta, or else where the module is; the device, and why not meta."""
    given = {tensor.device.type for tensor in (*module.parameters(), *tensors_of((args, kwargs)))} or {"cpu"}
    why = None
    if device in (None, META):
        try:
            copied = _on_meta(module), *_moved((args, kwargs), META)
            return run(*copied), META, None
        except UncountedError:
            raise
        except Exception as error:
            why = called("a run on meta", error)
            if device == META or META in given:
                raise why from error
    place = device or "cpu"
    try:
        if device is not None:
            module, (args, kwargs) = module.to(device), _moved((args, kwargs), device)
        return run(module, args, kwargs), device or "/".join(sorted(given)), why and why.reason
    except UncountedError:
        raise
    except Exception as error:
        if _runs(module, args, kwargs):
            # The module is fine, so this program is not: its own traceback is wanted.
            raise
        raise called(f"the module's forward pass on {place}", error) from error


def _runs(module: nn.Module, args: tuple, kwargs: dict) -> bool:
    try:
        with torch.no_grad():
            module.eval()(*args, **kwargs)
    except Exception:
        return False
    return True


def _on_meta(module: nn.Module) -> nn.Module:
    """A copy of the module whose parameters and buffers have no values; sharing stays."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to(META), parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = buffer.detach().to(META)
    return copy.deepcopy(module, memo)


def _moved(value: Any, device: str) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), value)


def _params(module: nn.Module) -> list[dict[str, Any]]:
    """Each parameter tensor once, at the module that owns it first."""
    return [
        {"path": name.rpartition(".")[0], "name": name.rpartition(".")[2], "params": parameter.numel()}
        for name, parameter in module.named_parameters()
    ]
