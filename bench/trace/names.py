"""Patch attributes temporarily, so that calls through them are recorded, and restore them."""

import functools
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

with warnings.catch_warnings():
    # Imported before any name is replaced: a lazy import among replaced names fails for the rest of the process.
    # torch 2.15 warns in it about torch.jit.
    warnings.simplefilter("ignore", FutureWarning)
    import torch._decomp.decompositions_for_jvp  # noqa: F401

_MISSING = object()
_PLAIN = torch._C._disabled_torch_function_impl
ORIGINAL = "_headcount_original"
"""The attribute of a replaced function that holds the function itself."""


class AttributePatches(ExitStack):
    """Attributes set on modules and classes; leaving the block restores the previous values, in reverse order."""

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` until the block ends."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        if before is _MISSING:
            self.callback(delattr, owner, name)
        else:
            self.callback(setattr, owner, name, before)


@contextmanager
def patched(*values: tuple[Any, str, Any]) -> Iterator[AttributePatches]:
    """Set ``values`` (owner, name, value) and restore them, and later patches, on leaving."""
    with AttributePatches() as out:
        for owner, name, value in values:
            out.set(owner, name, value)
        yield out


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
    ignored: list[type[Exception]] = [NotImplementedError]
    if not all(hasattr(module, "training") for module in model.modules()):
        ignored.append(AttributeError)
    with suppress(*ignored):
        model.eval()


def keep_flex_eager(replaced: AttributePatches) -> None:
    """Stop eager FlexAttention from compiling itself: modes do not see compiled code."""
    if flex := sys.modules.get("torch.nn.attention.flex_attention"):
        replaced.set(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def skip_shape_propagation(replaced: AttributePatches) -> None:
    """Stop modes from seeing DTensor run each new operation once more on fake tensors, to learn its whole shapes."""
    if sharding := sys.modules.get("torch.distributed.tensor._sharding_prop"):
        owner, name = sharding.ShardingPropagator, "_propagate_tensor_meta_non_cached"
        propagate = getattr(owner, name)

        def without_modes(*args: Any) -> Any:
            with _disable_current_modes():
                return propagate(*args)

        replaced.set(owner, name, without_modes)


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
    """Return a function that calls ``around(name, original, args, kwargs)``."""

    # A class has attributes that a function cannot take over.
    @functools.wraps(original, updated=())
    def wrapper(*args, **kwargs):
        return around(name, original, args, kwargs)

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
