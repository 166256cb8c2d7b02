"""Keywords of a call: those that a function's signature names, and those that only its ``**kwargs`` takes."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headcount.bench.counting.other_tools import ARGUMENTS, argument_error

NEAR = 0.75
"""Similarity from which a keyword of a function, which may pass on any, is taken for an option that is misspelt."""
DOCUMENTED = re.compile(r"^\s*(\w+)(?: \(.*\))?:", re.MULTILINE)
"""An argument in a docstring: ``name (type):`` or ``name:`` at the start of a line."""


class UnknownKeywords(TypeError):
    """Keywords ``names`` that ``taker`` does not take; it takes ``known`` ones."""

    def __init__(self, taker: str, names: Collection[str], known: Collection[str], reason: str = "") -> None:
        self.taker, self.names, self.known, self.reason = taker, names, known, reason
        super().__init__(f"{argument_error(taker, names, known)}{reason}")

    def also_of(self, function: Callable[..., Any]) -> "UnknownKeywords":
        """Return the error where ``function`` passed on the keywords that it does not take itself."""
        return UnknownKeywords(self.taker, self.names, [*self.known, *parameters_of(function)], self.reason)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function; of one in C++, which has no signature, those of any."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return inspect.signature(lambda *args, **kwargs: None).parameters


def takes_all(function: Callable[..., Any]) -> bool:
    """Return whether a function has ``**kwargs``."""
    return any(one.kind is one.VAR_KEYWORD for one in parameters_of(function).values())


def unknown_keywords(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the keywords that a call of ``function`` does not take; none where it has ``**kwargs``."""
    return [] if takes_all(function) else [name for name in kwargs if name not in parameters_of(function)]


def ignored_keywords(model: Any, kwargs: Mapping[str, Any], options: Collection[str]) -> list[str]:
    """Return the keywords that no signature of ``model`` names and that its ``**kwargs`` would take in silence.

    A module's forward names those of its signature, its typed ``**kwargs`` and its docstring; modules inside it and its
    configuration name others, but none that another tool has as an option. A tensor is an input by any name. A function
    may pass on any keyword but those that look like ``options`` or those of other tools.
    """
    is_module = isinstance(model, nn.Module)
    function = model.forward if is_module else model
    if not takes_all(function):
        return unknown_keywords(function, kwargs)
    named = _named(function)
    others = [name for name, value in kwargs.items() if name not in named and not _is_input(name, value)]
    if not is_module:
        return [name for name in others if is_like_option(name, options)]
    if others:
        inside = {name for function in {type(one).forward for one in model.modules()} for name in _named(function)}
        named = {*inside, *dir(getattr(model, "config", None))} - {*ARGUMENTS}
    return [name for name in others if name not in named]


def is_like_option(name: str, options: Collection[str]) -> bool:
    """Return whether a name is nearly that of one of ``options`` or of another tool's."""
    return bool(get_close_matches(name, (*options, *ARGUMENTS), n=1, cutoff=NEAR))


def _is_input(name: str, value: Any) -> bool:
    """Return whether a value is a tensor or an array, holds one, or is an object that no tool has as an option."""
    leaves = tree_leaves(value)
    if any(isinstance(leaf, Tensor) or hasattr(leaf, "__array_interface__") for leaf in leaves):
        return True
    # torch's own are dtypes and devices
    return name not in ARGUMENTS and any(type(leaf).__module__ not in ("builtins", "torch") for leaf in leaves)


def _named(function: Callable[..., Any]) -> set[str]:
    """Return the keywords that a function's signature, its typed ``**kwargs`` and its docstring name."""
    return {*_of_signature(function), *DOCUMENTED.findall(inspect.getdoc(function) or "")}


def _of_signature(function: Callable[..., Any]) -> Iterator[str]:
    for name, one in parameters_of(function).items():
        if one.kind is one.VAR_KEYWORD:
            # Unpack of a TypedDict
            for typed in get_args(one.annotation):
                yield from getattr(typed, "__annotations__", {})
        else:
            yield name
