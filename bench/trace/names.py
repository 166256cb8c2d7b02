"""Patch attributes temporarily, so that calls through them are recorded, and restore them."""

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    # Imported before any name is replaced: a lazy import among replaced names fails for the rest of the process.
    # torch 2.15 warns in it about torch.jit.
    warnings.simplefilter("ignore", FutureWarning)
    import torch._decomp.decompositions_for_jvp  # noqa: F401

_MISSING = object()
_PLAIN = torch._C._disabled_torch_function_impl
ORIGINAL = "_headcount_original"
"""The attribute of a replaced function that holds the function itself."""


class AttributePatches:
    """Attributes set on modules and classes, with their previous values."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` and remember the previous value, if any."""
        self._before.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Restore all previous values, in reverse order."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def patched(*values: tuple[Any, str, Any]) -> Iterator[AttributePatches]:
    """Set ``values`` (owner, name, value) and restore them, and later patches, on leaving."""
    out = AttributePatches()
    try:
        for owner, name, value in values:
            out.set(owner, name, value)
        yield out
    finally:
        out.restore()


@contextmanager
def restore_names(names: Sequence[str]) -> Iterator[None]:
    """Restore the functions of these names on leaving, whatever is set in the block."""
    owners = [_owner(name) for name in names]
    with patched(*((owner, name, getattr(owner, name)) for owner, name in owners if hasattr(owner, name))):
        yield


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


def set_eval_mode(model: nn.Module) -> None:
    """Call ``model.eval()``, ignoring the errors of exported modules and frozen scripts, which have one mode only.

    Other errors of a user's ``eval`` pass through.
    """
    frozen = not all(hasattr(module, "training") for module in model.modules())
    with suppress(NotImplementedError, *[AttributeError] * frozen):
        model.eval()


def keep_flex_eager(replaced: AttributePatches) -> None:
    """Stop eager FlexAttention from compiling itself: modes do not see compiled code."""
    if flex := sys.modules.get("torch.nn.attention.flex_attention"):
        replaced.set(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def watch(names: Sequence[str], replaced: AttributePatches, around: Callable[[str], Any]) -> None:
    """Make every call through one of ``names`` ("torch.Tensor.matmul") pass through ``around(name)(call)``.

    Names that the installed torch lacks are skipped.
    """
    for name in names:
        owner, attribute = _owner(name)
        original = getattr(owner, attribute, None)
        if original is not None:
            replaced.set(owner, attribute, _wrapped(original, around(name)))


def _owner(name: str) -> tuple[Any, str]:
    path, attribute = name.rsplit(".", 1)
    owner = Tensor if path == "torch.Tensor" else importlib.import_module(path)
    return owner, attribute


def _wrapped(original: Callable, around: Callable) -> Callable:
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        return around(original, args, kwargs)

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
        """Return whether a tensor subclass or a mode of the model overrides the call."""
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
