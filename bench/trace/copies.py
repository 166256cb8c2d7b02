"""Copy the module and the inputs that a count runs, so that the run changes nothing of the caller's.

A copied parameter or input shares memory with the caller's, but no hook, gradient or version counter. The recorder
copies its memory before the run first writes to it (bench.trace.recorder). The values of buffers and other tensors are
copied at once: torch's normalisations write to buffers, and their schemas do not say so.
"""

import copy
import dis
import functools
import operator
import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from headcount.bench.trace.shapes import fake_like, fake_view

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size))
_OWN_WAYS = ("__deepcopy__", "__reduce__", "__reduce_ex__")
"""Methods by which a class says itself how it is copied."""


_OF_FUNCTIONS = (nn.Module, FunctionType, functools.partial, torch.optim.Optimizer)
"""Kinds of objects that a copied function has copies of."""


class NotCopied(ValueError):
    """A module has no copy: it refuses, as FSDP does, or it frees what it holds when the copy ends."""


def as_leaf(tensor: Tensor) -> Tensor:
    """Return a differentiable leaf that shares the memory of ``tensor``, which is unchanged."""
    return share(tensor, tensor.is_floating_point() or tensor.is_complex())


def share(tensor: Tensor, requires_grad: bool, clone: bool = False) -> Tensor:
    """Return a leaf of the same class and memory, without the hooks, the gradient and the version of ``tensor``.

    ``clone``: its memory is a copy.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if _has_fake_memory(tensor) and not clone:
            # its data would be an operation of its mode
            shared = fake_view(tensor, tensor.shape, tensor.stride(), tensor.storage_offset())
        else:
            shared = tensor.data.clone() if clone else tensor.data
        if type(shared) is not type(tensor):
            shared = Tensor._make_subclass(type(tensor), shared)
        shared.requires_grad_(requires_grad)
    shared.__dict__.update(vars(tensor))
    return shared


def _has_fake_memory(tensor: Tensor) -> bool:
    """Return whether a tensor is fake, of sizes that are integers: memory of symbols would set conditions on them."""
    return type(tensor) is FakeTensor and not tensor._has_symbolic_sizes_strides


class Copier(TorchFunctionMode):
    """Copies of modules and inputs that refer to one another as the originals do.

    Attributes:
        memo: copies by the identity of the original, as copy.deepcopy has them.
        shared: the copies that have the memory of the original.

    What Python cannot copy, such as a lock or a file, is the caller's. With ``writable`` nothing shares memory.
    """

    def __init__(self, writable: bool = False) -> None:
        super().__init__()
        self.memo: dict[int, Any] = {}
        self.shared: list[Tensor] = []
        self._writable = writable
        self._shares = False
        # its identities are not used again
        self._states: list[Any] = []

    def inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Return copies of a call's inputs; their tensors share the memory of the originals."""
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, nn.Module):
                self.copy(leaf)
            if isinstance(leaf, Iterator | AsyncIterator) and self.copy(leaf) is leaf:
                kind = type(leaf).__name__
                raise ValueError(f"an input is an iterator ({kind}), which the run would use up: give a list")
        self._shares = True
        return self.copy(tuple(args)), self.copy(dict(kwargs))

    def model(self, module: nn.Module) -> nn.Module:
        """Return a copy of ``module`` that shares the memory of its parameters; the module itself if it refuses."""
        try:
            return self.copy(module)
        except NotCopied:
            self.memo.clear()
            self.shared = list(module.parameters())
            return module

    def copy(self, value: Any) -> Any:
        """Return a copy of any value, the same one each time."""
        if type(value) in _PLAIN:
            return value
        if id(value) in self.memo:
            return self.memo[id(value)]
        build = _CONTAINERS.get(type(value))
        if build:
            return build(self, value)
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, nn.Parameter) or self._shares and isinstance(value, Tensor):
            return self._share(value)
        return self._clone(value) if _has_plain_memory(value) else self._deepcopy(value)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is not Tensor.__deepcopy__:
            return function(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) in memo:
            return memo[id(tensor)]
        if self._shares:
            return self._share(tensor)
        if _has_fake_memory(tensor):
            # torch copies its mode too
            copied = memo[id(tensor)] = fake_like(tensor)
            return copied
        if tensor.is_leaf:
            return function(tensor, memo)
        # torch copies leaves only
        copied = memo[id(tensor)] = function(tensor.detach(), memo).requires_grad_(tensor.requires_grad)
        return copied

    def _share(self, tensor: Tensor) -> Tensor:
        shared = self.memo[id(tensor)] = share(tensor, tensor.requires_grad, self._writable)
        self.shared.append(shared)
        return shared

    def _clone(self, tensor: Tensor) -> Tensor:
        """Return a tensor as its deepcopy is, in a copy of the memory that views share."""
        memory = copy.deepcopy(tensor.untyped_storage(), self.memo)
        cloned = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        cloned.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
        self.memo[id(tensor)] = cloned.requires_grad_(tensor.requires_grad)
        return cloned

    def _deepcopy(self, value: Any) -> Any:
        """Return a copy of ``value``, the value itself if Python has none of it."""
        if _frees(type(value)):
            return value
        known = len(self.memo)
        try:
            return copy.deepcopy(value, self.memo)
        except Exception:
            self._forget(known)
            return value

    def _forget(self, known: int) -> None:
        """Forget the copies after the first ``known`` ones: they are not complete."""
        while len(self.memo) > known:
            self.memo.popitem()

    def _module(self, module: nn.Module) -> nn.Module:
        """Return the copy of ``module``, all of whose modules are made before any is filled: none needs recursion."""
        scripts = [part for part in module.modules() if isinstance(part, torch.jit.ScriptModule)]
        inside = {id(part) for script in scripts for part in script.modules() if part is not script}
        parts = [part for part in module.modules() if id(part) not in inside and id(part) not in self.memo]
        for part in parts:
            if _frees(type(part)):
                raise NotCopied(f"{type(part).__name__} has __del__, which would run for a copy too")
            if not isinstance(part, torch.jit.ScriptModule):
                for parameter in part._parameters.values():
                    self.copy(parameter)
            if not _copies_itself(type(part)):
                self.memo[id(part)] = object.__new__(type(part))
        # a module comes after those inside it
        for part in reversed(parts):
            if not _copies_itself(type(part)):
                self._fill(self.memo[id(part)], part)
            elif id(part) not in self.memo:
                self._copy_itself(part)
        return self.memo[id(module)]

    def _copy_itself(self, module: nn.Module) -> None:
        known = len(self.memo)
        try:
            copied = copy.deepcopy(module, self.memo)
        except TypeError:
            # a part of it cannot be copied
            self._forget(known)
            copied = None
        except Exception as error:
            raise NotCopied(f"{type(module).__name__} refuses to be copied") from error
        if not isinstance(copied, nn.Module):
            copied = object.__new__(type(module))
            self.memo[id(module)] = copied
            self._fill(copied, module)
        self.memo[id(module)] = copied
        if isinstance(module, torch.jit.ScriptModule):
            for parameter, own in zip(module.parameters(), copied.parameters(), strict=True):
                own.requires_grad_(parameter.requires_grad)

    def _fill(self, copied: nn.Module, module: nn.Module) -> None:
        state = module.__getstate__()
        self._states.append(state)
        copied.__setstate__(self.copy(state))

    def _dict(self, value: dict) -> dict:
        copied = self.memo[id(value)] = type(value)()
        for key, part in value.items():
            # a module has dozens of flags
            key = key if type(key) in _PLAIN else self.copy(key)
            copied[key] = part if type(part) in _PLAIN else self.copy(part)
        return copied

    def _list(self, value: list) -> list:
        copied = self.memo[id(value)] = []
        copied += map(self.copy, value)
        return copied

    def _tuple(self, value: tuple) -> tuple:
        return tuple(map(self.copy, value))

    def _function(self, function: FunctionType) -> FunctionType:
        """Return ``function`` with copies of the modules and tensors of its closure, and of the globals it names."""
        # a function may name itself
        self.memo[id(function)] = function
        closure, space = function.__closure__ or (), function.__globals__
        cells = tuple(map(self._cell, closure))
        renamed = {}
        for name in global_names(function.__code__) & space.keys():
            value = space[name]
            # functions of other files are not its own
            if getattr(value, "__globals__", space) is space and (copied := self._of_function(value)) is not value:
                renamed[name] = copied
        if all(map(operator.is_, cells, closure)) and not renamed:
            return function
        copied = FunctionType(
            function.__code__, {**space, **renamed} if renamed else space, function.__name__,
            function.__defaults__, cells or None,
        )  # fmt: skip
        for name in ("__kwdefaults__", "__qualname__", "__doc__"):
            setattr(copied, name, getattr(function, name))
        vars(copied).update(vars(function))
        self.memo[id(function)] = copied
        return copied

    def _cell(self, cell: CellType) -> CellType:
        try:
            value = cell.cell_contents
        except ValueError:
            return cell
        copied = self._of_function(value)
        return cell if copied is value else CellType(copied)

    def _of_function(self, value: Any) -> Any:
        """Return what a copied function has for ``value``: a list in which it notes its calls is the caller's."""
        if isinstance(value, Tensor):
            return self.memo[id(value)] if id(value) in self.memo else self._share(value)
        owner = value.__self__ if isinstance(value, MethodType) else value
        return self.copy(value) if isinstance(owner, _OF_FUNCTIONS) else value

    def _method(self, method: MethodType) -> MethodType:
        if not isinstance(method.__self__, nn.Module):
            return self._deepcopy(method)
        return MethodType(method.__func__, self.copy(method.__self__))

    def _partial(self, value: functools.partial) -> functools.partial:
        keywords = {name: self.copy(part) for name, part in value.keywords.items()}
        copied = functools.partial(self.copy(value.func), *map(self.copy, value.args), **keywords)
        vars(copied).update(vars(value))
        return copied

    def _reference(self, value: weakref.ref) -> weakref.ref:
        copied = self.memo.get(id(value()))
        return value if copied is None else weakref.ref(copied)


def _has_plain_memory(value: Any) -> bool:
    """Return whether a value is a tensor that is all in its memory: no view in disguise, no attributes or hooks."""
    if type(value) is not Tensor or value.layout is not torch.strided or value.is_meta or value.is_nested:
        return False
    is_disguised = value.is_quantized or value.is_conj() or value.is_neg()
    return value.is_leaf and not (is_disguised or vars(value) or value._backward_hooks or value.grad is not None)


_CONTAINERS = {
    dict: Copier._dict, OrderedDict: Copier._dict, list: Copier._list, tuple: Copier._tuple,
    FunctionType: Copier._function, MethodType: Copier._method, functools.partial: Copier._partial,
    weakref.ref: Copier._reference,
}  # fmt: skip


@functools.cache
def global_names(code: CodeType) -> set[str]:
    """Return the names that a function reads from its globals; none if it writes one, which is its caller's."""
    codes = [code]
    for outer in codes:
        codes += [inner for inner in outer.co_consts if isinstance(inner, CodeType)]
    instructions = [one for part in codes for one in dis.get_instructions(part)]
    if any(one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for one in instructions):
        return set()
    return {one.argval for one in instructions if one.opname == "LOAD_GLOBAL"}


@functools.cache
def _frees(kind: type) -> bool:
    """Return whether an object of this class runs code of Python when it ends: a copy would free what both hold."""
    return isinstance(getattr(kind, "__del__", None), FunctionType)


@functools.cache
def _copies_itself(kind: type[nn.Module]) -> bool:
    return any(getattr(kind, name, None) is not getattr(nn.Module, name, None) for name in _OWN_WAYS)
