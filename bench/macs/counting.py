"""Many models counted: by this process from the first on, and by a second one from the largest."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Lock

from headcount.bench.case import Case
from headcount.bench.measure import Measurement, is_cached, measure
from headcount.bench.trace.collector import keep_freed

ENOUGH = 6
"""Models for which a second process is worth its start."""


@contextmanager
def counting(
    cases: Sequence[Case], counters: Sequence[str], device: str | None
) -> Iterator[Callable[[Case], Measurement]]:
    """A function that measures one of ``cases``, which are asked for in their order; equal models are counted once."""
    here = partial(measure, counters=counters, device=device)
    left = (case for case in cases if case.config.has_module and not is_cached(case, counters, device))
    models = {case.model: case for case in left}
    if counters:
        keep_freed()
    if not counters or len(models) < ENOUGH or device == "cuda" or (os.cpu_count() or 1) < 2:
        yield here
        return
    # closed forms run on bare Python
    from headcount.bench.isolated.workers import Workers

    with Workers(1) as other:
        shared = _Shared(models, partial(other.submit, measure, counters=counters, device=device))

        def counted(case: Case) -> Measurement:
            future = shared.taken(case.model)
            return here(case, readings=future and future.result().readings)

        yield counted


class _Shared:
    """Models that two processes count: ``submit`` hands the other one the largest that is left, one at a time, since
    what waits there could not be counted here."""

    def __init__(self, models: Mapping[tuple, Case], submit: Callable[[Case], Future]) -> None:
        self._left = dict(sorted(models.items(), key=lambda item: _calls(item[1])))
        self._submit, self._begun, self._lock = submit, {}, Lock()
        self._next()

    def taken(self, model: tuple) -> Future | None:
        """What the other process makes of ``model``; None where it is counted here, from now on or because it was."""
        with self._lock:
            self._left.pop(model, None)
            return self._begun.get(model)

    def _next(self, done: Future | None = None) -> None:
        if done and (done.cancelled() or done.exception()):
            return
        with self._lock:
            if not self._left:
                return
            model, case = self._left.popitem()
            future = self._begun[model] = self._submit(case)
        future.add_done_callback(self._next)


def _calls(case: Case) -> int:
    """What a model's counting is about proportional to: how many operations it has, whatever their sizes."""
    return sum(entry.times for entry in case.ledger)
