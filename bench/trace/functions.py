"""Calls of ``torch.autograd.Function``.

From torch 2.14 on an ``apply`` that somebody keeps by reference is C's own, and calls nothing of Python's that could be
seen from outside without changing the function: what it runs is recorded, as operations of whatever is around it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd.function import Function, _SingleLevelFunction

from headcount.bench.trace.events import AUTOGRAD
from headcount.bench.trace.modes import Recorder
from headcount.bench.trace.names import patched

_APPLIED = [cls for cls in (Function, _SingleLevelFunction) if not isinstance(vars(cls).get("apply"), classmethod)]
"""The classes at which C's apply may be found: below Function's own, which is Python's, and from torch 2.14 on at
Function too."""


_recorders: list[Recorder] = []


@contextmanager
def patch_autograd_functions(recorder: Recorder) -> Iterator[None]:
    """Make every call of a Function an event of ``recorder``, at which its nodes in autograd's graph are marked."""
    with patched(*((owner, "apply", classmethod(_apply)) for owner in _APPLIED)):
        _recorders.append(recorder)
        try:
            yield
        finally:
            _recorders.pop()


def _apply(cls, *args, **kwargs):
    original = super(_SingleLevelFunction, cls).apply
    # Somebody may keep this for longer than a recording. A transform calls a Function that it makes of this one.
    if not _recorders or issubclass(cls, Function) and torch._C._are_functorch_transforms_active():
        return original(*args, **kwargs)
    recorder = _recorders[-1]
    event = recorder.begin(AUTOGRAD, cls.__name__, args, kwargs)
    return recorder.call(event, original, args, kwargs)
