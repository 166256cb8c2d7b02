"""Run a module once and record the run as events."""

import asyncio
import concurrent.futures
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from gc import get_referents
from types import CoroutineType, FunctionType, ModuleType
from typing import Any

import torch
import torch.utils._python_dispatch as python_dispatch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from headcount.bench.trace.copies import Copier, as_leaf, global_names
from headcount.bench.trace.events import GroupFact, Trace
from headcount.bench.trace.garbage_collector import no_full_gc
from headcount.bench.trace.modes import parts_of, results_of, unread_results
from headcount.bench.trace.names import AttributePatches, set_mode
from headcount.bench.trace.recorder import Recorder
from headcount.bench.trace.shapes import find_cache

_FUTURES = (concurrent.futures.Future, asyncio.Future)
_UNFOLLOWED = (type, ModuleType, Tensor, nn.Module, FunctionType)
"""Objects behind which no search for a module goes on; of a function only its closure and defaults."""


@no_full_gc
def record(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    names: Sequence[str] = (),
    backward: bool = False,
    training: bool = False,
    hooked: bool = False,
    input_gradients: bool = True,
) -> Trace:
    """Return one call of a copy of ``model``, on the device of its tensors, as a Trace.

    ``names`` are Python names ("torch.matmul") whose calls become events too. ``backward`` differentiates all
    floating-point outputs with respect to every trainable parameter and every floating-point input; without
    ``input_gradients`` inputs need none, as the data of a training step. The model runs in eval mode, with ``training``
    in training mode, and without autograd unless ``backward``. With ``hooked`` each module has a hook, as under a tool
    that sets hooks: torch's encoder layer then leaves its fast path. The run draws the random numbers of one call;
    nothing else of the caller's changes, and torch's functions and modes are restored. A model that refuses to be
    copied runs itself. Errors of the model pass through.
    """
    kwargs = dict(kwargs or {})
    lazy = next((name for name, part in model.named_modules() if _is_lazy(part)), None)
    if lazy is not None:
        kind = type(model.get_submodule(lazy)).__name__
        raise ValueError(f"{kind} at {lazy or 'the model'} has no shapes before it has run: call the module once")
    changed = AttributePatches()
    # No context manager: an interrupt may come first in its __exit__.
    try:
        _restore_modes(changed)
        torch._C._set_grad_enabled(False)
        with Copier() as copier:
            original, model = model, copier.model(model)
            if model is original:
                _restore_module(model, copier, changed, backward)
            args, kwargs = copier.inputs(args, kwargs)
        set_mode(model, training)
        if hooked:
            for module in model.modules():
                changed.callback(module.register_forward_hook(lambda *_: None).remove)
        torch._C._set_grad_enabled(backward)
        if backward:
            # The fused recurrent layer of oneDNN computes the gradient of the first state even if not needed.
            torch._C._set_mkldnn_enabled(False)
            if input_gradients:
                args, kwargs = tree_map_only(Tensor, as_leaf, (args, kwargs))
        recorder = Recorder(model, copier.memo.values(), copier.shared)
        cache = find_cache(model, names, recorder.trace.events)
        dispatch, function = recorder.start(names, changed, cache)
        with dispatch, function:
            out = model(*args, **kwargs)
            if backward:
                run_backward(model, out)
        refuse_unrun(out)
    except RecursionError as error:
        raise RecursionError(
            f"{error}: modules nest deeper than Python's limit of {sys.getrecursionlimit()} calls; "
            "sys.setrecursionlimit sets another"
        ) from error
    finally:
        try:
            changed.undo()
        except KeyboardInterrupt:
            changed.undo()
            raise
    trace = recorder.trace
    trace.is_copy = model is not original
    trace.backward, trace.training = backward, training
    trace.input_gradients = backward and input_gradients
    trace.args, trace.kwargs = recorder.describe(args), recorder.describe(kwargs)
    trace.out = recorder.describe(tuple(results_of(out)))
    trace.groups = _process_groups()
    if trace.is_copy:
        trace.unmade = recorder.unmade()
    recorder.forget_facts()
    return trace


def _restore_module(model: nn.Module, copier: Copier, changed: AttributePatches, backward: bool) -> None:
    """Give a module that runs itself buffers for the run, and let ``changed`` restore its own and its flags.

    Raises ValueError for a hook of a parameter, which a ``backward`` pass would call.
    """
    for name, parameter in model.named_parameters() if backward else ():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            kind = type(model).__name__
            raise ValueError(f"{kind} has no copy, and {name} has a hook, which a backward pass calls: remove the hook")
    for part in model.modules():
        changed.callback(setattr, part, "training", part.training)
        changed.callback(setattr, part, "_buffers", part._buffers)
        part._buffers = {name: copier.copy(buffer) for name, buffer in part._buffers.items()}


def _restore_modes(changed: AttributePatches) -> None:
    """Let ``changed`` restore autograd and the modes of this thread, of which an interrupt may leave some."""
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()

    def leave() -> None:
        while torch._C._len_torch_dispatch_stack() > modes[0]:
            python_dispatch._pop_mode()
        while torch._C._len_torch_function_stack() > modes[1]:
            torch.overrides._pop_mode()

    for name, value in vars(python_dispatch).items():
        if name.startswith("_is_in_"):
            changed.callback(setattr, python_dispatch, name, value)
    changed.callback(leave)
    changed.callback(torch._C._set_grad_enabled, torch.is_grad_enabled())
    changed.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
    changed.callback(torch.set_default_dtype, torch.get_default_dtype())


def _process_groups() -> dict[str, GroupFact]:
    """Return the process groups that this process belongs to, by name."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None or not distributed.is_initialized():
        return {}
    known = distributed._world.pg_names.items()
    return {name: GroupFact(group.size(), group.rank(), group.group_desc) for group, name in known}


def _is_lazy(module: nn.Module) -> bool:
    own = (*module._parameters.values(), *module._buffers.values())
    return any(isinstance(tensor, UninitializedTensorMixin) for tensor in own)


def run_pass(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], backward: bool) -> Any:
    """Run a model and return its output; with ``backward`` also run backward from every output."""
    with torch.set_grad_enabled(backward):
        out = model(*args, **kwargs)
        if backward:
            run_backward(model, out)
    return out


def run_backward(model: nn.Module, out: Any, exclude: Callable[..., None] = lambda *_: None) -> None:
    """Run backward from every output and restore ``grad``. ``exclude`` is called with the outputs' gradients first."""
    outputs = [tensor for tensor in results_of(out) if tensor.requires_grad]
    if not outputs and torch.is_inference_mode_enabled():
        raise RuntimeError("a backward pass needs autograd, which torch.inference_mode turns off")
    if not outputs and (unread := unread_results(out)):
        kind = type(unread[0]).__name__
        raise RuntimeError(f"a backward pass begins at a tensor; none is found in a result of type {kind}")
    # Created outside the recording, as in a larger model. Contiguous: a grouped product refuses the stride 0 that
    # sum() sends back.
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        gradients = [torch.ones_like(tensor, memory_format=torch.contiguous_format) for tensor in outputs]
        exclude(*gradients)
    before = {parameter: parameter.grad for parameter in model.parameters()}
    try:
        for parameter in before:
            parameter.grad = None
        if outputs:
            # Not autograd.grad: reentrant checkpoints refuse it.
            torch.autograd.backward(outputs, gradients)
    finally:
        for parameter, gradient in before.items():
            parameter.grad = gradient


def refuse_unrun(out: Any) -> None:
    """Raise ValueError if ``out`` holds code that has not run and that may run modules. Nothing in it is consumed."""
    for value in _parts(out):
        if unrun := _find_unrun(value):
            raise ValueError(f"the result holds {unrun} in forward")


def _find_unrun(value: Any) -> str | None:
    """Return what ``value`` is and what runs it, if it has not run and may run modules."""
    if isinstance(value, CoroutineType):
        # Python would warn that it was never awaited
        value.close()
        return "a coroutine, which runs nothing before it is awaited: await it"
    if isinstance(value, _FUTURES):
        return None if value.done() else "a Future that is not done: wait for its result"
    if isinstance(value, Awaitable):
        return f"an object to await ({type(value).__name__}): await it"
    if isinstance(value, Iterator | AsyncIterator):
        is_lazy = _runs_modules(value) or _computes(value)
        return (
            f"an iterator ({type(value).__name__}) that has not run: return a list of its elements" if is_lazy else None
        )
    if callable(value) and not isinstance(value, type) and _runs_modules(value):
        return f"a function ({type(value).__name__}) that runs modules and that is not called: call it"
    return None


def _parts(out: Any) -> Iterator[Any]:
    """Iterate over everything in nested containers, and in attributes of objects, that is no container itself."""
    seen: set[int] = set()
    rest = [out]
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            rest += value
        if parts := parts_of(value):
            rest += parts
        elif not isinstance(value, Tensor | nn.Module | type | ModuleType):
            yield value
            rest += _attributes(value)


def _attributes(value: Any) -> Iterator[Any]:
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    yield from (getattr(value, name, None) for name in slots)
    yield from getattr(value, "__dict__", {}).values()


def _runs_modules(value: Any) -> bool:
    return any(isinstance(found, nn.Module) for found in _reached(value))


def _computes(value: Any) -> bool:
    """Return whether ``value`` is a generator that was defined as a function, with a tensor to compute from."""
    code = getattr(value, "gi_code", getattr(value, "ag_code", None))
    return code is not None and code.co_name != "<genexpr>" and any(isinstance(one, Tensor) for one in _reached(value))


def _reached(value: Any) -> Iterator[Any]:
    """Iterate over the objects that ``value``, which is code or an iterator, refers to; of their kinds _UNFOLLOWED."""
    seen: set[int] = set()
    rest = [value]
    while rest:
        found = rest.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, FunctionType):
            rest += _of_function(found)
        elif not isinstance(found, _UNFOLLOWED):
            rest += get_referents(found)


def _of_function(function: FunctionType) -> Iterator[Any]:
    yield from function.__closure__ or ()
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    named = (function.__globals__.get(name) for name in global_names(function.__code__))
    yield from (value for value in named if isinstance(value, nn.Module))
