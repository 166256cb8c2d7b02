"""Calls of ``torch.autograd.Function``, however its ``apply`` is reached."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.autograd.function import Function, _SingleLevelFunction

from headcount.bench.trace.events import AUTOGRAD, Event
from headcount.bench.trace.modes import mark_node, mark_nodes
from headcount.bench.trace.names import Replaced

_APPLIED = [cls for cls in (Function, _SingleLevelFunction) if not isinstance(vars(cls).get("apply"), classmethod)]
"""Where C's apply is found first: on Function itself from torch 2.14 on, below Function's own, in Python, before."""


class Recorder(Protocol):
    """What is needed of bench.trace.recorder.Recorder."""

    def begin(self, what: str, name: str, args: tuple, kwargs: dict) -> Event: ...

    def call(self, event: Event, function: Any, args: tuple, kwargs: dict) -> Any: ...

    def innermost(self) -> Event | None: ...


def watch_functions(recorder: Recorder, replaced: Replaced) -> None:
    """Make every call of a Function an event, at which its node in autograd's graph is marked."""
    for owner in _APPLIED:
        replaced.set(owner, "apply", classmethod(_apply(recorder)))
    if Function not in _APPLIED:
        return
    # An apply that somebody keeps is C's own there, and is seen by what it runs.
    for cls in _below(Function):
        if "forward" in vars(cls):
            _Kept(recorder, cls).watch(replaced)


def _apply(recorder: Recorder) -> Callable:
    def apply(cls, *args, **kwargs):
        event = recorder.begin(AUTOGRAD, cls.__name__, args, kwargs)
        out = recorder.call(event, super(_SingleLevelFunction, cls).apply, args, kwargs)
        mark_nodes(out, event.index)
        return out

    return apply


class _Kept:
    """One Function whose ``apply`` may be called where it cannot be replaced."""

    def __init__(self, recorder: Recorder, cls: type) -> None:
        self._recorder = recorder
        self._cls = cls
        self._event: Event | None = None

    def watch(self, replaced: Replaced) -> None:
        replaced.set(self._cls, "forward", staticmethod(self._forward(self._cls.forward)))
        if "setup_context" in vars(self._cls):
            replaced.set(self._cls, "setup_context", staticmethod(self._setup_context(self._cls.setup_context)))

    def _forward(self, original: Callable) -> Callable:
        takes_context = "setup_context" not in vars(self._cls)

        def forward(*args, **kwargs):
            around = self._recorder.innermost()
            if around is not None and (around.what, around.name) == (AUTOGRAD, self._cls.__name__):
                self._event = None
                return original(*args, **kwargs)
            event = self._event = self._recorder.begin(AUTOGRAD, self._cls.__name__, args[takes_context:], kwargs)
            if takes_context:
                mark_node(args[0], event.index)
            return self._recorder.call(event, original, args, kwargs)

        return forward

    def _setup_context(self, original: Callable) -> Callable:
        def setup_context(context, *args, **kwargs):
            if self._event is not None:
                mark_node(context, self._event.index)
            return original(context, *args, **kwargs)

        return setup_context


def _below(cls: type) -> Iterator[type]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)
