"""python -m bench.macs --compare: which counters confirm a turning point, and on which device."""

from types import SimpleNamespace

import pytest

from headcount.bench.case import Case
from headcount.bench.macs import cases
from headcount.bench.macs.__main__ import main

BIG = ["--compare", "moa-16K32E256D", "transformer-big"]


@pytest.mark.parametrize(
    "more, asked",
    [
        ([], (["torch"], None)),
        (["--device", "meta"], (["torch"], "meta")),
        (["--counter", "fvcore", "--device", "cpu"], (["fvcore"], "cpu")),
    ],
)
def test_turning_points_are_counted_by_torch_unless_others_are_asked_for_and_where_it_says(more, asked, monkeypatch):
    seen = []
    monkeypatch.setattr(cases, "counted", lambda case, *how: seen.append(how) or {})
    assert main([*BIG, *more]) == 0
    assert seen and all((list(counters), device) == asked for counters, device in seen)


def test_a_side_is_counted_where_it_is_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(cases, "measure", lambda case, counters, **how: seen.append(how) or SimpleNamespace(counts=[]))
    cases.counted(Case.of("llm-s"), ["torch"], "cpu")
    assert seen == [{"device": "cpu"}]
