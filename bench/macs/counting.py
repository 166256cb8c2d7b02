"""Many models counted: by this process from the first on, and by a second one from the last."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from headcount.bench.case import Case
from headcount.bench.isolated.heap import keep_freed
from headcount.bench.measure import Measurement, measure

ENOUGH = 6
"""Models for which a second process is worth its start."""


@contextmanager
def counting(
    cases: Sequence[Case], counters: Sequence[str], device: str | None
) -> Iterator[Callable[[Case], Measurement]]:
    """A function that measures one of ``cases``, which are asked for in their order; equal models are counted once."""
    here = partial(measure, counters=counters, device=device)
    models = {_model(case): case for case in cases if case.config.has_module}
    if counters:
        keep_freed()
    if not counters or len(models) < ENOUGH or device == "cuda" or (os.cpu_count() or 1) < 2:
        yield here
        return
    # closed forms run on bare Python
    from headcount.bench.isolated.workers import Workers

    with Workers(1) as other:
        begun = {
            model: other.submit(measure, case, counters, device=device) for model, case in reversed(models.items())
        }

        def counted(case: Case) -> Measurement:
            future = begun.get(_model(case))
            # one that has not begun is counted here
            if future is None or future.cancel():
                return here(case)
            return replace(future.result(), case=case)

        yield counted


def _model(case: Case) -> tuple:
    return case.config, tuple(sorted(case.lengths.items()))
