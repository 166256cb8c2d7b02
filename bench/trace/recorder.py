"""The recorder: a function mode, a dispatch mode and patched names that append to one list of events."""

import _thread
import concurrent.futures
import functools
import multiprocessing.pool
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any

import torch
import torch._tensor
import torch.functional
import torch.nn.functional as F
import torch.overrides
import torch.utils._python_dispatch as python_dispatch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import Function, _SingleLevelFunction
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from headcount.bench.trace.events import (
    AUTOGRAD,
    MODULE,
    NAMED,
    OPERATION,
    Event,
    ModuleFact,
    TensorFact,
    Trace,
    Weight,
)
from headcount.bench.trace.garbage_collector import NestedCountError
from headcount.bench.trace.modes import DispatchTracer, FunctionTracer, Nodes, backward_state, tensors_of
from headcount.bench.trace.names import (
    IN_PATCHED_THREAD,
    ORIGINAL,
    AttributePatches,
    CompilerImports,
    Guards,
    keep_eager,
    patch_names,
    skip_shape_propagation,
    wrap,
)
from headcount.bench.trace.shapes import FakeShapeCache, ShapeCache
from headcount.bench.trace.weights import is_parameter, own_tensor, represented_shape, stored_tensors

_UNTRACED = (
    (threading.Thread, "start"),
    (_thread, "start_new_thread"),
    (os, "fork"),
    (multiprocessing.process.BaseProcess, "start"),
    (multiprocessing.pool.Pool, "apply_async"),
    (multiprocessing.pool.Pool, "_map_async"),
    (multiprocessing.pool.Pool, "imap"),
    (multiprocessing.pool.Pool, "imap_unordered"),
    (concurrent.futures.ThreadPoolExecutor, "submit"),
    (concurrent.futures.ProcessPoolExecutor, "submit"),
    (torch._C, "_DisableTorchDispatch"),
    (python_dispatch, "_disable_current_modes"),
    (Tensor, "__dlpack__"),
)
"""Calls whose work no dispatch mode of this thread sees."""
_DISABLED_MODES = ("torch._C._DisableTorchDispatch", "torch.utils._python_dispatch._disable_current_modes")
_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
_APPLY_OWNERS = [cls for cls in (Function, _SingleLevelFunction) if not isinstance(vars(cls).get("apply"), classmethod)]
"""The classes whose apply is implemented in C: the base of Function, and from torch 2.14 on Function too."""
_SEQUENCES = (tuple, list)
MODULE_STATE = frozenset(vars(nn.Module()))
"""Names of the flags and dictionaries of nn.Module itself, which no other module shares."""
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))
_EXACTLY_PLAIN = frozenset(_PLAIN_TYPES)


class Recorder:
    """Append events to ``trace`` from :meth:`start` on.

    ``copies`` are the modules and tensors that the run alone has, ``shared`` those with the memory of the caller's.
    """

    def __init__(self, model: nn.Module, copies: Collection[Any] = (), shared: Sequence[Tensor] = ()) -> None:
        self.trace = Trace()
        self._copied = {id(one): one for one in copies if isinstance(one, nn.Module | Tensor)}
        self._shared = [tensor for tensor in shared if id(tensor) in self._copied]
        self._open: list[Event] = []
        self._sources: dict[int, int] = {}
        # A weak reference prevents reuse of a storage's address without holding its memory.
        self._storages: dict[int, tuple[int, weakref.ref]] = {}
        self._made = 0
        # By identity, with a weak reference for the same reason; cleared when shapes of other tensors change too.
        self._facts: dict[int, tuple[weakref.ref, TensorFact]] = {}
        self._nodes = Nodes()
        self._anonymous = 0
        self.times = 1
        """Number of runs that each call stands for."""
        self._numbers: dict[nn.Module, int] = {}
        self._add_modules(model)
        # Of a function, which registers none, parameters are found when they are used.
        self._finds_weights = not self.trace.weights
        self._found: dict[nn.Module, str] = {}
        # Of buffers and attributes, whose values were copied.
        stored = {self._storage(part) for tensor in shared for part in stored_tensors(own_tensor(tensor))}
        self._own = (self.trace.buffers.keys() | self.trace.given) - stored
        self._copies: dict[int, torch.UntypedStorage] = {}
        self._unmade: dict[int, weakref.ref] = {}
        self._restored = AttributePatches()

    def _add_modules(self, model: nn.Module) -> None:
        named = list(model.named_modules())
        self._numbers = {module: number for number, (_, module) in enumerate(named)}
        for path, module in named:
            attributes = {}
            for name, value in vars(module).items():
                is_own = name in MODULE_STATE
                if type(value) in _EXACTLY_PLAIN or not is_own and _is_plain(value):
                    attributes[name] = value
                elif not is_own:
                    self.trace.given.update(map(self._storage, tensors_of(value)))
            children = tuple(self._numbers[child] for child in module.children())
            parameters = {n: None if p is None else tuple(p.shape) for n, p in module._parameters.items()}
            self.trace.modules.append(ModuleFact(path, type(module), children, parameters, attributes))
        for name, tensor in model.named_parameters():
            self._add_weight(name, tensor)
        for name, tensor in model.named_buffers():
            self.trace.buffers.setdefault(self._storage(tensor), (name, tuple(tensor.shape)))

    def _add_weight(self, name: str, tensor: Tensor, registered: bool = True) -> None:
        part = own_tensor(tensor)
        stored = stored_tensors(part)
        storages = tuple(map(self._storage, stored))
        if not registered and storages[0] in self.trace.parameters:
            return
        size = sum(one.numel() * one.element_size() for one in stored)
        weight = Weight(name, represented_shape(part), tensor.requires_grad, size, storages, registered)
        self.trace.weights.append(weight)
        for storage, one in zip(storages, stored, strict=True):
            self.trace.parameters.setdefault(storage, (name, tuple(one.shape)))

    def _find_module(self, module: nn.Module, path: str) -> str:
        """Add the parameters of a module that the model does not register, and return its path.

        Each call looks again, as torch.func.functional_call exchanges parameters.
        """
        if module not in self._found:
            kind, number = f"{path[:-1]}", 1
            while path in self.trace.found:
                number += 1
                path = f"{kind} {number})"
            for inner, part in module.named_modules():
                place = f"{path}.{inner}" if inner else path
                self._found.setdefault(part, place)
                self.trace.found.setdefault(place, type(part).__name__)
                attributes = (value for name, value in vars(part).items() if name not in MODULE_STATE)
                self.trace.given.update(self._storage(one) for value in attributes for one in tensors_of(value))
        path = self._found[module]
        for name, tensor in module.named_parameters():
            self._add_weight(f"{path}.{name}", tensor, registered=False)
        for name, tensor in module.named_buffers():
            self.trace.buffers.setdefault(self._storage(own_tensor(tensor)), (f"{path}.{name}", tuple(tensor.shape)))
        return path

    def start(
        self,
        names: Sequence[str],
        replaced: AttributePatches,
        cache: ShapeCache | FakeShapeCache | None,
    ) -> tuple[DispatchTracer, FunctionTracer]:
        """Patch what no mode sees, until ``replaced`` is undone, and return the modes that record the rest.

        ``names`` are as :func:`bench.trace.record.record` takes them; ``cache`` answers equal operations.
        """
        self._restored = replaced
        if _recorders:
            raise NestedCountError("a count inside a count: the module that is counted counts; call its layers instead")
        guards = Guards(FunctionTracer, replaced)
        # nn.MultiheadAttention calls torch.overrides before it takes its fast path.
        for module in (F, torch.functional, torch._tensor, torch.overrides):
            guards.open(vars(module))
        replaced.set(nn.Module, "__call__", self._module_call(nn.Module.__call__))
        # From torch 2.14 on a stored reference to apply is implemented in C and cannot be patched: the operations
        # that it runs are recorded as part of the event around it.
        for owner in _APPLY_OWNERS:
            replaced.set(owner, "apply", classmethod(_apply))
        replaced.set(sys.modules[__name__], "_recorders", (self,))
        keep_eager(replaced)
        CompilerImports(replaced)
        skip_shape_propagation(replaced)
        patch_names(names, replaced, self._named_call)
        # It refuses tensors with weak references.
        patch_names(["torch.utils.swap_tensors"], replaced, self._forgetting_call)
        replaced.callback(self.forget_facts)
        for owner, name in _UNTRACED:
            full_name = f"{owner.__name__}.{name}"
            replaced.set(owner, name, wrap(full_name, getattr(owner, name), self._untraced_call))
        return DispatchTracer(self, cache), FunctionTracer(self, guards)

    def begin(self, what: str, name: str, args: tuple, kwargs: dict, path: str | None = None) -> Event:
        """Open an event inside the innermost open one."""
        outer = self._open[-1] if self._open else None
        backward, forward = backward_state()
        if path is None:
            # A gradient has the path of the operation that it differentiates, in a forward pass too.
            within = forward is None or outer and outer.backward
            source = outer if within else self.trace.events[forward]
            path = source.path if source else ""
        event = Event(
            index=len(self.trace.events),
            parent=outer.index if outer else None,
            what=what,
            name=name,
            path=path,
            args=self.describe(args),
            kwargs=self.describe(kwargs) if kwargs else {},
            backward=backward,
            forward=forward,
            times=self.times,
            transformed=torch._C._functorch.peek_interpreter_stack() is not None,
        )
        if forward is not None:
            self._nodes.on_begin(event, outer)
        self.trace.events.append(event)
        self._open.append(event)
        return event

    def call(self, event: Event, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Call ``function`` as the open ``event`` and close it."""
        try:
            out = function(*args, **kwargs)
        except BaseException:
            event.failed = True
            raise
        finally:
            self._close(event)
        if event.what != OPERATION:
            event.out = self.describe(out)
            self._nodes.on_return(event, out)
        return out

    def _close(self, event: Event) -> None:
        while self._open.pop() is not event:
            pass

    def describe(self, value: Any) -> Any:
        """Return a value as plain data: tensors as TensorFacts, sequences as tuples, other objects by type name."""
        kind = type(value)
        if kind in _EXACTLY_PLAIN:
            return value
        if isinstance(value, Tensor):
            reference, fact = self._facts.get(id(value), _NO_FACT)
            is_current = reference() is value and fact.source == self._sources.get(fact.storage)
            return fact if is_current else self._new_fact(value)
        if kind is tuple or kind is list or isinstance(value, _SEQUENCES):
            return tuple([self.describe(part) for part in value])
        if isinstance(value, dict):
            return {key: self.describe(part) for key, part in value.items()}
        if isinstance(value, _PLAIN_TYPES):
            return value
        if group := _process_group(value):
            return group.group_name
        fields = getattr(value, "__dict__", None)
        if fields and not callable(value):
            tensors = {name: self.describe(part) for name, part in fields.items() if isinstance(part, Tensor)}
            return tensors or type(value).__name__
        return str(value) if isinstance(value, torch.dtype | torch.device) else type(value).__name__

    def _new_fact(self, tensor: Tensor) -> TensorFact:
        # These queries are not part of the run.
        with torch._C.DisableTorchFunction():
            fact = self._fact(tensor)
            if self._finds_weights and fact.source is None and tensor.is_leaf:
                self._find_parameter(tensor, fact)
            # A tensor without memory has another number each time.
            if fact.storage >= 0:
                self._facts[id(tensor)] = weakref.ref(tensor), fact
                if fact.source is None and fact.storage not in self.trace.parameters:
                    memory = _memory(tensor)
                    # That of other libraries, such as numpy, is not.
                    if memory.resizable():
                        self._unmade[fact.storage] = weakref.ref(memory)
        return fact

    def _find_parameter(self, tensor: Tensor, fact: TensorFact) -> None:
        """Add a parameter that a function refers to: an nn.Parameter, or a leaf that is trained and no input."""
        is_constant = self.trace.events and all(x.storage != fact.storage for x in self.trace.events[0].tensors())
        if is_parameter(tensor) or is_constant and tensor.requires_grad:
            self._add_weight(f"parameter_{len(self.trace.weights)}", tensor, registered=False)

    def _fact(self, tensor: Tensor) -> TensorFact:
        storage, layout = self._storage(tensor), tensor.layout
        dtype, source = _dtype_name(tensor.dtype), self._sources.get(storage)
        if layout is torch.strided and tensor.is_nested:
            with _disable_current_modes():
                parts = tuple(map(tuple, tensor._nested_tensor_size().tolist()))
            return TensorFact((), dtype, storage, source, stored=sum(map(prod, parts)), parts=parts)
        is_sparse, strides, offset = layout in _SPARSE, None, 0
        if storage >= 0 and not is_sparse and not tensor._has_symbolic_sizes_strides:
            strides, offset = tensor.stride(), tensor.storage_offset()
        # Symbolic sizes (bench.derive.symbolic) stay symbols.
        shape = tuple(tensor.shape)
        if layout is torch.jagged:
            packed = tuple(tensor._values.shape)
            return TensorFact(shape, dtype, storage, source, stored=prod(packed), parts=(packed,))
        # A sparse tensor stores whole blocks.
        stored = _values(tensor).numel() if is_sparse else None
        return TensorFact(shape, dtype, storage, source, strides, offset, stored)

    def _storage(self, tensor: Tensor) -> int:
        try:
            storage = _memory(tensor)
        except (RuntimeError, NotImplementedError):
            # tensors without memory, as those of functorch and of some subclasses, refuse it by either
            self._anonymous -= 1
            return self._anonymous
        number, reference = self._storages.get(id(storage), _NO_STORAGE)
        if reference() is not storage:
            number, self._storages[id(storage)] = self._made, (self._made, weakref.ref(storage))
            self._made += 1
        return number

    def record_writes(self, event: Event, written: tuple[Tensor, ...], out: Any) -> None:
        """Record the arguments that an operation wrote to and its new tensors; views of old tensors are not new."""
        number = self._made
        with torch._C.DisableTorchFunction():
            for tensor in written:
                # It may have another shape or memory now.
                self._facts.pop(id(tensor), None)
            event.writes = tuple(map(self._storage, written))
            made = list(map(self._storage, tensors_of(out)))
        for storage in event.writes:
            self._sources[storage] = event.index
        for storage in made:
            if storage >= number or not self._is_known(storage, event):
                self._sources[storage] = event.index
        event.out = self.describe(out)

    def with_own_memory(
        self, written: Sequence[Tensor], args: tuple, kwargs: dict[str, Any], name: str
    ) -> tuple[tuple, dict[str, Any]]:
        """Return the arguments of a call that writes to ``written``, with memory of the run's own for each such tensor.

        Memory that no operation of the run made is the caller's. The run has a copy of it from the first write on.
        """
        for tensor in written:
            number = self._storage(tensor)
            if number in self._copies or not (number in self._sources or number in self._own):
                self._copy_memory(tensor, number, name)
        return tree_map_only(Tensor, self._in_copy, (args, kwargs)) if self._copies else (args, kwargs)

    def _own_shared_memory(self, name: str) -> None:
        """Give the copies memory of their own, before work that no mode sees and that may write to it."""
        shared, self._shared = self._shared, []
        for tensor in shared:
            for part in stored_tensors(own_tensor(tensor)):
                if part.layout is torch.strided and not (part.is_nested or part.is_meta):
                    self._copy_memory(part, self._storage(part), name)
                    part.data = self._in_copy(part)

    def _copy_memory(self, tensor: Tensor, number: int, name: str) -> None:
        if not tensor.is_inference():
            versions = torch._C._autograd._unsafe_set_version_counter
            self._restored.callback(versions, (tensor,), (tensor._version,))
        if number in self._copies or tensor.is_meta or isinstance(tensor, FakeTensor):
            return
        if tensor.layout is not torch.strided or tensor.is_nested or name.startswith(("set_", "resize_")):
            path = self._path() or "the model"
            raise RuntimeError(f"{name} in {path} writes to a tensor that is not the run's, and that cannot be copied")
        if name == "untyped_storage" and torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.AutogradOther):
            # torch.load reads its storage; it has no operations.
            return
        # Not part of the run.
        with _disable_current_modes():
            copied = self._copies[number] = tensor.untyped_storage().clone()
        self._storages[id(copied)] = number, weakref.ref(copied)

    def _in_copy(self, tensor: Tensor) -> Tensor:
        """Return ``tensor`` in the run's own copy of its memory; the tensor itself where there is none."""
        copied = self._copies.get(self._storage(tensor))
        if copied is None or tensor.untyped_storage() is copied:
            return tensor
        with _disable_current_modes():
            return tensor.detach().set_(copied, tensor.storage_offset(), tensor.shape, tensor.stride())

    def _is_known(self, storage: int, event: Event) -> bool:
        """Return whether a storage has a producer, is a weight's or belongs to an argument of ``event``."""
        known = self._sources, self.trace.parameters, self.trace.buffers
        return any(storage in storages for storages in known) or any(x.storage == storage for x in event.tensors())

    def unmade(self) -> dict[int, weakref.ref]:
        """Return a reference to each memory that torch allocated, no operation made and the run was not given."""
        found = dict(self._unmade)
        tensors = [one for one in self._copied.values() if isinstance(one, Tensor)] if found else []
        with torch._C.DisableTorchFunction():
            for tensor in tensors:
                for part in stored_tensors(own_tensor(tensor)):
                    found.pop(self._storage(part), None)
        return found

    def forget_facts(self) -> None:
        """Describe every tensor again from here on: its memory, shape or producer may have changed."""
        self._facts.clear()

    def _module_call(self, original: Callable) -> Callable:
        """Return the ``__call__`` that records. It takes no more frames than torch's, so that modules nest as deep."""
        is_torchs = original is nn.Module._wrapped_call_impl

        @functools.wraps(original)
        def __call__(module, *args, **kwargs):
            if not IN_PATCHED_THREAD:
                if id(module) in self._copied:
                    self._note_elsewhere(module, args)
                return original(module, *args, **kwargs)
            call = functools.partial(original, module)
            if is_torchs:
                call = module._compiled_call_impl or module._call_impl
            event = self._begin_module(module, args, kwargs)
            try:
                out = call(*args, **kwargs)
            except BaseException:
                event.failed = True
                raise
            finally:
                self._close(event)
            event.out = self.describe(out)
            self._nodes.on_return(event, out)
            return out

        setattr(__call__, ORIGINAL, original)
        return __call__

    def _note_elsewhere(self, module: nn.Module, args: tuple) -> None:
        """Note that another thread runs a module of this run, unless it runs inside one that is noted."""
        number, known = self._numbers.get(module), self.trace.elsewhere
        path = f"({type(module).__name__})" if number is None else self.trace.modules[number].path
        if not any(path == outer or path.startswith(f"{outer}.") for outer in known):
            known[path] = tuple(tuple(tensor.shape) for tensor in tensors_of(args))

    def _begin_module(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Event:
        number = self._numbers.get(module)
        if number is None:
            outer = self._path()
            path = f"{outer}{'.' if outer else ''}({type(module).__name__})"
            if self._finds_weights:
                with torch._C.DisableTorchFunction():
                    path = self._find_module(module, path)
        else:
            path = self.trace.modules[number].path
        event = self.begin(MODULE, type(module).__name__, args, kwargs, path)
        event.module = number
        return event

    def _untraced_call(self, name: str, original: Callable, args: tuple, kwargs: dict) -> Any:
        # torch itself disables modes to compute shapes; the trace contains the results.
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if not (name in _DISABLED_MODES and caller.startswith("torch.")):
            self.trace.left.append((name, len(self.trace.events)))
            with torch._C.DisableTorchFunction():
                self._own_shared_memory(name)
                exported = [one for one in args[:1] if isinstance(one, Tensor)]
                args, kwargs = self.with_own_memory(exported, args, kwargs, name)
        return original(*args, **kwargs)

    def _forgetting_call(self, _: str, original: Callable, args: tuple, kwargs: dict) -> Any:
        self.forget_facts()
        return original(*args, **kwargs)

    def _path(self) -> str:
        return self._open[-1].path if self._open else ""

    def _named_call(self, name: str, original: Callable, args: tuple, kwargs: dict) -> Any:
        return self.call(self.begin(NAMED, name, args, kwargs), original, args, kwargs)


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _values(sparse: Tensor) -> Tensor:
    # This query is not part of the run.
    with _disable_current_modes():
        return sparse._values() if sparse.layout is torch.sparse_coo else sparse.values()


def _memory(tensor: Tensor) -> torch.UntypedStorage:
    """Return the storage of a tensor; of a sparse one, that of the elements that it stores."""
    return (_values(tensor) if tensor.layout in _SPARSE else tensor).untyped_storage()


def _process_group(value: Any) -> Any:
    """Return the process group that ``value`` is or boxes; None for other objects."""
    kind = type(value).__name__
    if kind == "ScriptObject" and value._type().qualified_name().endswith("c10d.ProcessGroup"):
        return torch.distributed.ProcessGroup.unbox(value)
    return value if kind == "ProcessGroup" else None


def _is_plain(value: Any) -> bool:
    return (
        type(value) in _EXACTLY_PLAIN
        or isinstance(value, _PLAIN_TYPES)
        or isinstance(value, tuple)
        and all(_is_plain(part) for part in value)
    )


_NO_STORAGE = -1, lambda: None
_NO_FACT = _NO_STORAGE[1], None
_recorders: tuple[Recorder, ...] = ()
"""The recorder at work, if any."""


def _apply(cls, *args, **kwargs):
    """Record a call of a ``torch.autograd.Function`` as an event and mark its nodes in the autograd graph."""
    original = super(_SingleLevelFunction, cls).apply
    # A stored reference may outlive the recording. A transform calls a Function that it derives from this one.
    is_derived = issubclass(cls, Function) and torch._C._are_functorch_transforms_active()
    if is_derived or not (_recorders and IN_PATCHED_THREAD):
        return original(*args, **kwargs)
    recorder = _recorders[-1]
    name = f"{cls.__module__}.{cls.__qualname__}"
    return recorder.call(recorder.begin(AUTOGRAD, name, args, kwargs), original, args, kwargs)
