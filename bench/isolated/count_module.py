"""Count a user module, in the process that runs user code."""

import contextlib
import copy
import random
import string
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_only

from headcount.bench.contractions.count import ContractionCount, ElementwiseError, Formula, UnsupportedError
from headcount.bench.counters.base import as_record
from headcount.bench.counters.results import ReportedCounts, read
from headcount.bench.counters.run_context import one_thread
from headcount.bench.isolated.module_count import ModuleCount, merge_elementwise
from headcount.bench.isolated.user_code import UserCodeError, build, called, load
from headcount.bench.trace.events import Event, tensors_in
from headcount.bench.trace.modes import tensors_of
from headcount.formulas.published.expressions import evaluate

META = "meta"


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the ModuleCount of a user module, or why it is ``refused``.

    ``request`` holds the arguments of module_count.count_module. Raises UserCodeError.
    """
    try:
        return _count(request).as_record()
    except UnsupportedError as error:
        hint = "--formula OPERATOR=EXPRESSION counts one, --allow-unsupported leaves them out"
        lines = "; ".join(line.text() for line in error.unsupported)
        return {"refused": f"unsupported operations, which may hold products: {lines} ({hint})"}
    except ElementwiseError as error:
        lines = "; ".join(dict.fromkeys(part.text() for part in error.elementwise))
        return {"refused": f"contractions written elementwise: {lines} (--elementwise report names them)"}


def _count(request: Mapping[str, Any]) -> ModuleCount:
    function = load(request["spec"])
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(0)
    module, args, kwargs = build(request["spec"], function, request["settings"])
    _materialize(module, args, kwargs)
    formulas = {name: formula(text) for name, text in request["formulas"].items()}
    options = {name: request[name] for name in ("counters", "allow_unsupported", "elementwise")}
    run = partial(read, label=request["spec"], formulas=formulas, **options)
    with one_thread():
        found, device, why_not_meta = _run_on_device(run, module, args, kwargs, request["device"])
    count = found.headcount
    products = (
        {"path": one.path, "call": one.call, "kind": one.kind, "dims": dict(one.dims), "times": 1, "size": one.size}
        for one in count.elementwise
    )
    return ModuleCount(
        device=device,
        why_not_meta=why_not_meta,
        macs=count.macs,
        headline=count.headline,
        dispatched=count.dispatched,
        with_elementwise=count.with_elementwise,
        trainable_params=sum(p.numel() for p in module.parameters() if p.requires_grad),
        inputs=tuple(inputs_of(args, kwargs)),
        ledger=count.ledger,
        elementwise=tuple(merge_elementwise(products)),
        parameters=tuple(parameters(module)),
        counters=tuple(map(as_record, found.counters)),
        audit=tuple({**vars(line), "text": line.text()} for line in count.audit),
    )


def formula(text: str) -> Formula:
    """Return the function that gives the MACs of a call by an expression in the sizes of its tensors.

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


def _materialize(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Run a module with lazy parts once, so that they have shapes. Raise UserCodeError where it fails."""
    if any(isinstance(tensor, UninitializedTensorMixin) for tensor in (*module.parameters(), *module.buffers())):
        try:
            with torch.no_grad():
                module(*args, **kwargs)
        except Exception as error:
            raise called("the first run of a module with lazy parts", error) from error


_PASSED_ON = (UnsupportedError, ElementwiseError, UserCodeError)
"""Errors that do not depend on the device."""
CHEAP_MACS = 10**9
"""A model up to this size runs once more on its own device, to check that it counts there what it does on meta."""


def _run_on_device(
    run: Callable[..., ReportedCounts], module: nn.Module, args: tuple, kwargs: dict, device: str | None
) -> tuple[ReportedCounts, str, str | None]:
    """Return the counts on ``device`` (default: on meta, else where the module is), the device, and why not meta."""
    own = {tensor.device.type for tensor in (*module.parameters(), *tensors_of((args, kwargs)))} or {"cpu"}
    why = None
    if device in (None, META):
        try:
            found = run(_on_meta(module), *_moved((args, kwargs), META))
            if not device:
                why = _difference(run, found.headcount, module, args, kwargs, own)
            if why is None:
                return found, META, None
        except _PASSED_ON:
            raise
        except Exception as error:
            reason = called("a run on meta", error)
            if device == META or META in own:
                raise reason from error
            why = str(reason)
    try:
        if device is not None:
            module, (args, kwargs) = module.to(device), _moved((args, kwargs), device)
        return run(module, args, kwargs), device or "/".join(sorted(own)), why
    except _PASSED_ON:
        raise
    except Exception as error:
        try:
            with torch.no_grad():
                module.eval()(*args, **kwargs)
        except Exception:
            raise called(f"the module's forward pass on {device or 'cpu'}", error) from error
        # the module runs, so headcount is at fault: its own traceback is printed
        raise


def _difference(
    run: Callable[..., ReportedCounts],
    on_meta: ContractionCount,
    module: nn.Module,
    args: tuple,
    kwargs: dict,
    own: set[str],
) -> str | None:
    """Return by how much a cheap module counts differently on its own device and on meta; None where it does not."""
    if META in own or on_meta.macs > CHEAP_MACS:
        return None
    try:
        there = run(module, args, kwargs, counters=()).headcount
    except Exception:
        return None
    if (there.dispatched, there.with_elementwise) == (on_meta.dispatched, on_meta.with_elementwise):
        return None
    return f"it counts {on_meta.macs:,} there and {there.macs:,} on {'/'.join(sorted(own))}"


def _on_meta(module: nn.Module) -> nn.Module:
    """Return a copy of the module on meta that shares and freezes the same tensors."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to(META), parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = buffer.detach().to(META)
    return copy.deepcopy(module, memo)


def _moved(value: Any, device: str) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), value)


def parameters(module: nn.Module) -> list[dict[str, Any]]:
    """Return a record of each parameter tensor, once, at the first module that owns it."""
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
    """Return the place, shape and type of each tensor among the inputs."""
    places = tree_flatten_with_path({str(number): value for number, value in enumerate(args)} | kwargs)[0]
    return [
        f"{place[0].key}{keystr(place[1:])}: {'x'.join(map(str, value.shape)) or 'scalar'} "
        f"{str(value.dtype).removeprefix('torch.')}"
        for place, value in places
        if isinstance(value, Tensor)
    ]
