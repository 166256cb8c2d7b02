"""Record calls of ``torch.autograd.Function``.

From torch 2.14 on a stored reference to ``apply`` is implemented in C and cannot be patched: the operations that it
runs are recorded as part of the event around it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd.function import Function, _SingleLevelFunction

from headcount.bench.trace.events import AUTOGRAD
from headcount.bench.trace.modes import Recorder
from headcount.bench.trace.names import patched

_APPLIED = [cls for cls in (Function, _SingleLevelFunction) if not isinstance(vars(cls).get("apply"), classmethod)]
"""The classes whose apply is implemented in C: the base of Function, and from torch 2.14 on Function too."""


_recorders: list[Recorder] = []


@contextmanager
def patch_autograd_functions(recorder: Recorder) -> Iterator[None]:
    """Record every call of a Function as an event of ``recorder`` and mark its nodes in the autograd graph."""
    with patched(*((owner, "apply", classmethod(_apply)) for owner in _APPLIED)):
        _recorders.append(recorder)
        try:
            yield
        finally:
            _recorders.pop()


def _apply(cls, *args, **kwargs):
    original = super(_SingleLevelFunction, cls).apply
    # A stored reference may outlive the recording. A transform calls a Function that it derives from this one.
    if not _recorders or issubclass(cls, Function) and torch._C._are_functorch_transforms_active():
        return original(*args, **kwargs)
    recorder = _recorders[-1]
    event = recorder.begin(AUTOGRAD, cls.__name__, args, kwargs)
    return recorder.call(event, original, args, kwargs)
