"""Tables counted by two processes have the same numbers in the same order, each model counted once."""

import os
from concurrent.futures import Future
from dataclasses import replace

import pytest

from headcount.bench.case import Case
from headcount.bench.counting import count as counting
from headcount.bench.macs import published
from headcount.bench.targets import workers
from headcount.bench.targets.workers import Here

SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": 7, "d_ff": 5}
TOOLS = ("torch", "ptflops-aten")


@pytest.fixture(autouse=True)
def empty_cache():
    counting._COUNTS.clear()
    yield
    counting._COUNTS.clear()


WIDTHS = (1, 2, 3, 5)


def cases():
    """Return four models, and the first once more under another name."""
    small = [Case.of("transformer-base", {**SIZES, "d_model": 8 * width}) for width in WIDTHS]
    return [*small, replace(small[0], name="again")]


class Other(Here):
    """Executor that replaces the second process: it counts the first ``limit`` models and never starts the others."""

    def __init__(self, limit):
        self.limit, self.submitted = limit, []

    def submit(self, call, case, *args, **named):
        self.submitted.append(case)
        if len(self.submitted) <= self.limit:
            return super().submit(call, case, *args, **named)
        return Future()


def run(monkeypatch, other, cases):
    """Return the counts with ``other`` as the second process, and the widths that this process counted."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(published, "MIN_MODELS", len(WIDTHS))
    own = []

    def measured(case, counters, device):
        if all(model != case.model for model, *_ in counting._COUNTS):
            own.append(case.config.d_model // 8)
        return counting.count(case, counters, device=device)

    monkeypatch.setattr(workers, "Workers", lambda number: other)
    monkeypatch.setattr(published, "count", measured)
    with published.counting(cases, TOOLS, None) as counted:
        others = len(own)
        # another process has results of its own
        counting._COUNTS.clear()
        found = [counted(case) for case in cases]
    return found, own[others:]


@pytest.mark.parametrize("limit", [0, 2])
def test_counts_do_not_depend_on_the_process(limit, monkeypatch):
    wanted = [counting.count(case, TOOLS) for case in cases()]
    counting._COUNTS.clear()
    other = Other(limit)
    found, own = run(monkeypatch, other, cases())
    assert [one.name for one in found] == ["transformer-base"] * 4 + ["again"]
    assert [[c.macs for c in one.tools] for one in found] == [[c.macs for c in one.tools] for one in wanted]
    assert [one.params for one in found] == [one.params for one in wanted]
    # the other process starts with the largest model, this one counts the models that it has not started
    assert [case.config.d_model // 8 for case in other.submitted] == [5, 3, 2, 1]
    assert own == [*WIDTHS[: 4 - limit]]
