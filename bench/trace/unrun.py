"""Find code in the result of a module that has not run: its products would be missing from the count."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from gc import get_referents
from types import CoroutineType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from headcount.bench.trace.copies import global_names
from headcount.bench.trace.modes import parts_of

_FUTURES = (concurrent.futures.Future, asyncio.Future)
_UNFOLLOWED = (type, ModuleType, Tensor, nn.Module, FunctionType)
"""Objects behind which no search for a module goes on; of a function only its closure and defaults."""


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
