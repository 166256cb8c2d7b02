"""What is asked of the process that runs user code: one module counted, by every counter that is wanted."""

import contextlib
import copy
import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_only

from headcount.bench.contractions.count import ContractionCount, ElementwiseError, Formula, UncountedError
from headcount.bench.counters.readings import Readings, as_record, read
from headcount.bench.counters.run_context import one_thread
from headcount.bench.isolated.user_code import UserCodeError, build, called, load
from headcount.bench.trace.events import Event, tensors_in
from headcount.bench.trace.modes import tensors_of
from headcount.formulas.published.expressions import evaluate

META = "meta"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The right count, its audit, the parameters and every reading; only what is ``uncounted`` where that is an error.

    ``request`` holds spec, here, settings, counters, device, allow_uncounted, elementwise and formulas. Raises
    UserCodeError.
    """
    try:
        return _counted(request)
    except UncountedError as error:
        return {"uncounted": [line.text() for line in error.uncounted]}
    except ElementwiseError as error:
        return {"refused": list(dict.fromkeys(part.text() for part in error.elementwise))}


def _counted(request: dict[str, Any]) -> dict[str, Any]:
    spec = request["spec"]
    function = load(spec, Path(request["here"]))
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(0)
    module, args, kwargs = build(spec, function, request["settings"])
    _materialised(module, args, kwargs)

    def run(module: nn.Module, args: tuple, kwargs: dict, counters: Sequence[str] = request["counters"]) -> Readings:
        with one_thread():
            return read(
                module,
                args,
                kwargs,
                counters=counters,
                label=spec,
                allow_uncounted=request["allow_uncounted"],
                elementwise=request["elementwise"],
                formulas={name: formula(text) for name, text in request["formulas"].items()},
            )

    found, device, why = _where_it_runs(run, module, args, kwargs, request["device"])
    return {
        "device": device,
        "why_not_meta": why,
        "macs": found.right.macs,
        "headline": found.right.headline,
        "dispatched": found.right.dispatched,
        "with_elementwise": found.right.with_elementwise,
        "elementwise": _written_elementwise(found.right),
        "ledger": found.right.ledger.as_records(),
        "inputs": inputs_of(args, kwargs),
        "params": parameters(module),
        "trainable_params": sum(p.numel() for p in module.parameters() if p.requires_grad),
        "counters": [as_record(cell) for cell in found.counters],
        "audit": [
            {"operation": line.operation, "state": line.state, "path": line.path, "calls": line.calls,
             "shapes": line.shapes, "text": line.text()}
            for line in found.right.audit
        ],
    }  # fmt: skip


def formula(text: str) -> Formula:
    """An expression in the sizes of an operation's tensors as the MACs of a call.

    ``a`` is the number of elements of the first tensor, ``a0`` its first size; ``o`` is the result. Raises
    UserCodeError for a letter that the call does not have, and for a result that is no whole number.
    """

    def macs(event: Event) -> int:
        sizes: dict[str, int] = {}
        for letter, fact in (*zip(string.ascii_lowercase, event.tensors(), strict=False), ("o", None)):
            fact = fact or next(tensors_in(event.out), None)
            if fact is not None:
                sizes |= {letter: fact.numel, **{f"{letter}{axis}": size for axis, size in enumerate(fact.shape)}}
        try:
            return evaluate(text, sizes)
        except (ValueError, ZeroDivisionError) as error:
            raise UserCodeError(f"--formula {event.name}={text}: {error}") from error

    return macs


def _materialised(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Run a module with lazy parts once, so that they have shapes. Raises UserCodeError."""
    if any(isinstance(tensor, UninitializedTensorMixin) for tensor in (*module.parameters(), *module.buffers())):
        try:
            with torch.no_grad():
                module(*args, **kwargs)
        except Exception as error:
            raise called("the first run of a module with lazy parts", error) from error


def _written_elementwise(right: ContractionCount) -> list[dict[str, Any]]:
    """Equal products of one module as one line with repetitions."""
    lines: dict[tuple, dict[str, Any]] = {}
    for part in right.elementwise:
        key = (part.path, part.call, part.kind, tuple(part.dims.items()))
        line = lines.setdefault(
            key,
            {"path": part.path, "call": part.call, "kind": part.kind, "dims": dict(part.dims), "times": 0, "size": 0},
        )
        line["times"] += 1
        line["size"] += part.size
    return list(lines.values())


def _where_it_runs(
    run: Callable, module: nn.Module, args: tuple, kwargs: dict, device: str | None
) -> tuple[Readings, str, str | None]:
    """The readings on ``device``, or else on meta, or else where the module is; the device, and why not meta."""
    given = {tensor.device.type for tensor in (*module.parameters(), *tensors_of((args, kwargs)))} or {"cpu"}
    why = None
    if device in (None, META):
        try:
            copied = _on_meta(module), *_moved((args, kwargs), META)
            found = run(*copied)
            why = None if device else _otherwise(run, found.right, module, args, kwargs, given)
            if why is None:
                return found, META, None
        except (UncountedError, ElementwiseError, UserCodeError):
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
    except (UncountedError, ElementwiseError, UserCodeError):
        raise
    except Exception as error:
        if _runs(module, args, kwargs):
            # The module is fine, so this program is not: its own traceback is wanted.
            raise
        raise called(f"the module's forward pass on {place}", error) from error


CHEAP_MACS = 10**9
"""A model up to this size runs once more where it is, to see whether that counts what meta does."""


def _otherwise(
    run: Callable, on_meta: ContractionCount, module: nn.Module, args: tuple, kwargs: dict, given: set[str]
) -> UserCodeError | None:
    """What is said of a module that counts otherwise where it is than on meta; None for any other."""
    if META in given or on_meta.macs > CHEAP_MACS:
        return None
    try:
        there = run(module, args, kwargs, ()).right
    except Exception:
        return None
    if (there.dispatched, there.with_elementwise) == (on_meta.dispatched, on_meta.with_elementwise):
        return None
    return UserCodeError(f"it counts {on_meta.macs:,} there and {there.macs:,} on {'/'.join(sorted(given))}")


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


def parameters(module: nn.Module) -> list[dict[str, Any]]:
    """Each parameter tensor once, at the module that owns it first."""
    return [
        {
            "path": name.rpartition(".")[0],
            "name": name.rpartition(".")[2],
            "shape": list(parameter.shape),
            "params": parameter.numel(),
            "trainable": parameter.requires_grad,
        }
        for name, parameter in module.named_parameters()
    ]


def inputs_of(args: tuple, kwargs: dict) -> list[str]:
    """The tensors among the inputs: where each stands, its shape and its type."""
    places = tree_flatten_with_path({str(number): value for number, value in enumerate(args)} | kwargs)[0]
    return [
        f"{place[0].key}{keystr(place[1:])}: {'x'.join(map(str, value.shape)) or 'scalar'} "
        f"{str(value.dtype).removeprefix('torch.')}"
        for place, value in places
        if isinstance(value, Tensor)
    ]
