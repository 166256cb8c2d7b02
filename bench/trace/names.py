"""Patch attributes temporarily, so that calls through them are recorded, and restore them."""

import functools
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import _disable_current_modes

_DYNAMO = "torch._dynamo"
_COMPILERS = {_DYNAMO, "torch._decomp.decompositions_for_jvp"}
"""Modules of torch that compile what they find, and that are slow to import."""
_MISSING = object()
_PLAIN = torch._C._disabled_torch_function_impl
ORIGINAL = "_headcount_original"
"""Attribute of a replacement that refers to the original function."""


class AttributePatches:
    """Attributes set on modules and classes, and other changes, with the calls that undo them."""

    def __init__(self) -> None:
        self._undo: list[functools.partial] = []
        self._thread = threading.get_ident()
        _active.append(self)
        self.callback(torch._C._stash_obj_in_tls, ORIGINAL, bool(IN_PATCHED_THREAD))
        torch._C._stash_obj_in_tls(ORIGINAL, True)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` until the block ends."""
        before = vars(owner).get(name, _MISSING)
        self.callback(*((_delete, owner, name) if before is _MISSING else (setattr, owner, name, before)))
        setattr(owner, name, value)

    def callback(self, call: Callable[..., Any], *args: Any) -> None:
        """Call ``call(*args)`` when the block ends. The call must be idempotent: an interrupt may follow each line."""
        self._undo.append(functools.partial(call, *args))

    def undo(self) -> None:
        """Undo all changes, the last one first. After an interrupt it can be called again."""
        while self._undo:
            self._undo[-1]()
            self._undo.pop()
        if self in _active:
            _active.remove(self)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the attributes, without the modes of this thread, for the length of the block."""
        changes = [call for call in self._undo if call.func in (setattr, _delete)]
        replaced = [(*call.args[:2], vars(call.args[0])[call.args[1]]) for call in changes]
        try:
            for call in reversed(changes):
                call()
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                yield
        finally:
            for owner, name, value in replaced:
                setattr(owner, name, value)

    def restore_in_child(self) -> None:
        """Restore the attributes in a process that another thread has forked; other changes are of this thread."""
        if self._thread != threading.get_ident():
            for call in reversed(self._undo):
                if call.func in (setattr, _delete):
                    call()


_active: list[AttributePatches] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [patches.restore_in_child() for patches in _active])


def _delete(owner: Any, name: str) -> None:
    if name in vars(owner):
        delattr(owner, name)


class PatchedThread:
    """Whether this is a thread that patched names, or one in which autograd runs its backward."""

    def __bool__(self) -> bool:
        # torch passes this storage on to the threads of autograd.
        return torch._C._is_key_in_tls(ORIGINAL) and torch._C._get_obj_in_tls(ORIGINAL)


IN_PATCHED_THREAD = PatchedThread()
"""True in threads with patches; other threads see the replaced functions."""


@contextmanager
def patched(*values: tuple[Any, str, Any]) -> Iterator[AttributePatches]:
    """Set ``values`` (owner, name, value) and restore them, and later patches, on leaving."""
    out = AttributePatches()
    try:
        for owner, name, value in values:
            out.set(owner, name, value)
        yield out
    finally:
        out.undo()


@contextmanager
def restore_training_flags(model: nn.Module) -> Iterator[None]:
    """Restore each module's training flag on leaving."""
    # A frozen script has none.
    before = {module: module.training for module in model.modules() if hasattr(module, "training")}
    try:
        yield
    finally:
        for module, flag in before.items():
            module.training = flag


def set_mode(model: nn.Module, training: bool) -> None:
    """Set a model to eval mode, or to training mode unless it is in it: parts of it may be meant to stay in eval mode.

    Errors of exported modules and frozen scripts, which have one mode only, are ignored; others of a user's ``eval`` or
    ``train`` pass through.
    """
    if training and getattr(model, "training", True):
        return
    ignored: list[type[Exception]] = [NotImplementedError]
    if not all(hasattr(module, "training") for module in model.modules()):
        ignored.append(AttributeError)
    with suppress(*ignored):
        model.train() if training else model.eval()


class CompilerImports:
    """Import Dynamo and what else compiles at its first use, with all patches suspended: it keeps what it finds."""

    def __init__(self, replaced: AttributePatches) -> None:
        self._replaced = replaced
        replaced.callback(self.remove)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Leave further imports alone."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module that compiles; None for other modules, and in other threads."""
        spec = PathFinder.find_spec(name, path, target) if name in _COMPILERS and IN_PATCHED_THREAD else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self._replaced.suspended():
                execute(module)
            if name == _DYNAMO:
                keep_eager(self._replaced)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def keep_eager(replaced: AttributePatches) -> None:
    """Run compiled functions, and FlexAttention, which compiles itself, eagerly: modes do not see compiled code."""
    replaced.set(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", IN_PATCHED_THREAD)
    if _DYNAMO in sys.modules:
        # torch.compiler.set_stance would affect every thread.
        patch_names(["torch._dynamo.eval_frame._callback_from_stance"], replaced, lambda *_: None)
        # From torch 2.12 on a function with fullgraph=True may not run uncompiled, unless its caller counts the graphs.
        patch_names(["torch._dynamo.eval_frame.set_fullgraph_compiled_frame_count"], replaced, lambda *_: 0)


def skip_shape_propagation(replaced: AttributePatches) -> None:
    """Stop modes from seeing DTensor run each new operation once more on fake tensors, to learn its whole shapes."""
    if (module := "torch.distributed.tensor._sharding_prop") not in sys.modules:
        return

    def without_modes(_: str, propagate: Callable, args: tuple, kwargs: dict) -> Any:
        with _disable_current_modes():
            return propagate(*args, **kwargs)

    patch_names([f"{module}.ShardingPropagator._propagate_tensor_meta_non_cached"], replaced, without_modes)


def patch_names(names: Sequence[str], replaced: AttributePatches, around: Callable[..., Any]) -> None:
    """Make each call through one of ``names`` ("torch.Tensor.matmul") a call of ``around``, see :func:`wrap`.

    Names that the installed torch lacks are skipped.
    """
    for name in names:
        path, _, attribute = name.rpartition(".")
        owner = pkgutil.resolve_name(path)
        if hasattr(owner, attribute):
            replaced.set(owner, attribute, wrap(name, getattr(owner, attribute), around))


def wrap(name: str, original: Callable, around: Callable[..., Any]) -> Callable:
    """Return a function that calls ``around(name, original, args, kwargs)``, in other threads the ``original``."""

    # A class has attributes that a function cannot take over.
    @functools.wraps(original, updated=())
    def wrapper(*args, **kwargs):
        return around(name, original, args, kwargs) if IN_PATCHED_THREAD else original(*args, **kwargs)

    setattr(wrapper, ORIGINAL, original)
    return wrapper


class Guards:
    """Replacements of ``has_torch_function`` and its variants, which torch's Python functions call first.

    They ignore modes of type ``modes`` and modes that were active before, so that the functions run their bodies and
    the calls in them are recorded. A mode that the model enters itself is respected.
    """

    def __init__(self, modes: type, replaced: AttributePatches) -> None:
        self._modes = modes
        self._replaced = replaced
        self._before = torch._C._len_torch_function_stack()
        self._answers = {
            "has_torch_function": self.has_torch_function,
            "has_torch_function_unary": lambda value: self.has_torch_function((value,)),
            "has_torch_function_variadic": lambda *values: self.has_torch_function(values),
        }

    def has_torch_function(self, values: Any) -> bool:
        """Return whether a tensor subclass or a mode of the model overrides the call; in other threads as torch."""
        if not IN_PATCHED_THREAD:
            return torch._C._has_torch_function(values)
        # Tensor subclasses disable this for their own calls.
        if not torch._C._is_torch_function_enabled():
            return False
        stack = range(self._before, torch._C._len_torch_function_stack())
        if any(not isinstance(torch._C._get_function_stack_at(i), self._modes) for i in stack):
            return True
        return any(
            type(value) not in (Tensor, nn.Parameter)
            and getattr(type(value), "__torch_function__", _PLAIN) is not _PLAIN
            and not isinstance(value, type)
            for value in values
        )

    def open(self, namespace: dict[str, Any]) -> None:
        """Patch these functions in a module, given by its globals."""
        module = sys.modules.get(namespace.get("__name__", ""))
        if module is None or vars(module) is not namespace:
            return
        for name, answer in self._answers.items():
            if name in namespace and namespace[name] != answer:
                self._replaced.set(module, name, answer)
