"""Replacing names for the length of a block, so that calls through them are seen; all are put back."""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_MISSING = object()
_PLAIN = torch._C._disabled_torch_function_impl
ORIGINAL = "_headcount_original"
"""The attribute of a replaced function that holds the function itself."""


class Replaced:
    """Attributes set on modules and classes, and what was there before."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name``, remembering whether it had one of its own."""
        self._before.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Everything as it was, in reverse order."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def replacing() -> Iterator[Replaced]:
    """A Replaced that is restored on leaving."""
    out = Replaced()
    try:
        yield out
    finally:
        out.restore()


def watch(names: Sequence[str], replaced: Replaced, around: Callable[[str], Any]) -> None:
    """Make every call through one of ``names`` ("torch.Tensor.matmul") pass through ``around(name)(call)``.

    A name that this torch does not have is left out.
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


def overridden(values: Any) -> bool:
    """``has_torch_function`` as it answers where no mode is active: whether a tensor subclass has its own."""
    return any(
        type(value) not in (Tensor, nn.Parameter)
        and getattr(type(value), "__torch_function__", _PLAIN) is not _PLAIN
        and not isinstance(value, type)
        for value in values
    )


def overridden_or_in(modes: type) -> Callable[[Any], bool]:
    """``torch.overrides.has_torch_function`` as it answers where the function modes of type ``modes`` are not on."""

    def has_torch_function(values: Any) -> bool:
        stack = (torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack()))
        return overridden(values) or any(not isinstance(mode, modes) for mode in stack)

    return has_torch_function


GUARDS = {
    "has_torch_function": overridden,
    "has_torch_function_unary": lambda value: overridden((value,)),
    "has_torch_function_variadic": lambda *values: overridden(values),
}


def open_guards(namespace: dict[str, Any], replaced: Replaced) -> bool:
    """Let the Python functions of a module run their bodies under our mode; False where it has no guards.

    Torch's Python functions ask these guards whether to hand the whole call to a mode; under the recorder they
    are to run as they would without it, so that the calls that they make are recorded.
    """
    module = sys.modules.get(namespace.get("__name__", ""))
    found = [name for name in GUARDS if name in namespace and namespace[name] is not GUARDS[name]]
    if module is None or vars(module) is not namespace:
        return False
    for name in found:
        replaced.set(module, name, GUARDS[name])
    return bool(found)
