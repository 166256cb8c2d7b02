"""python -m bench.macs --compare: which counters confirm a turning point, and on which device."""

import json
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


def test_a_turning_point_names_every_counter_that_confirms_it(monkeypatch, capsys):
    monkeypatch.setattr(cases, "counted", lambda case, counters, _: dict.fromkeys(counters, case.ledger.macs))
    assert main([*BIG, "--counter", "torch", "fvcore", "--format", "json"]) == 0
    *_, turning = json.loads(capsys.readouterr().out)["tables"]
    (row,) = (row for row in turning["rows"] if (row["account"], row["letter"]) == ("exact", "T"))
    assert row["counted"] == "fvcore, torch"


def test_a_side_is_counted_where_it_is_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(cases, "measure", lambda case, counters, **how: seen.append(how) or SimpleNamespace(counts=[]))
    cases.counted(Case.of("llm-s"), ["torch"], "cpu")
    assert seen == [{"device": "cpu"}]
