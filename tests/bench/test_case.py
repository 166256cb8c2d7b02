"""A case is made once: nobody asks for a preset by name again, or for a ledger that a row has already."""

import inspect
import json
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from headcount.bench import case as module
from headcount.bench.case import Case
from headcount.bench.macs.__main__ import main
from headcount.models.configs.base import ConfigError
from headcount.models.configs.presets import preset


@contextmanager
def calls():
    """How often preset() and ledger_of() are called inside, whoever imported them."""
    codes = {inspect.unwrap(f).__code__: f.__name__ for f in (preset, module.ledger_of)}
    counted = Counter()

    def watch(frame, event, _):
        if event == "call" and frame.f_code in codes:
            counted[codes[frame.f_code]] += 1

    sys.setprofile(watch)
    try:
        yield counted
    finally:
        sys.setprofile(None)


COLUMNS = ["--columns", "training_macs", "forward_intensity"]


@pytest.mark.parametrize("columns", [[], COLUMNS], ids=["alone", "with columns"])
@pytest.mark.parametrize(
    "table, rows, ideals, baselines",
    [("moa-table3", 8, 0, 0), ("moh-llm", 6, 4, 4), ("moh-dit", 12, 8, 8)],
)
def test_a_row_has_one_preset_one_ledger_and_one_of_its_ideal_form(table, rows, ideals, baselines, columns, capsys):
    with calls() as counted:
        assert main(["--table", table, "--counter", "closed-form", "--format", "json", *columns]) == 0
    found = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert len(found) == rows and sum(row.get("ideal_macs") is not None for row in found) == ideals
    assert counted == {"preset": rows + baselines, "ledger_of": rows + ideals + baselines}


@pytest.mark.parametrize("points", [1, 6])
def test_a_point_of_a_grid_has_one_ledger_of_each_form(points, capsys):
    lengths = ",".join(str(5 + i) for i in range(points))
    with calls() as counted:
        argv = ["--grid", f"h=7 s=2 r=3 d_h=5 d_m=11 T={lengths}", "--counter", "closed-form", *COLUMNS]
        assert main([*argv, "--format", "json"]) == 0
    assert counted == {"ledger_of": 2 * points}
    assert len(json.loads(capsys.readouterr().out)["tables"][0]["rows"]) == 2 * points


def test_a_model_is_its_configuration_at_its_lengths_whatever_it_is_called():
    one = Case.of("transformer-base", {}, {"src_len": 7, "tgt_len": 5})
    swapped = Case("x", one.config, dict(reversed(one.lengths.items())))
    assert {one.model, swapped.model} == {one.model}
    longer = Case.of("transformer-base", {}, {"src_len": 7, "tgt_len": 11})
    exchanged = Case.of("transformer-base", {}, {"src_len": 5, "tgt_len": 7})
    wider = Case.of("transformer-base", {"d_ff": 13}, {"src_len": 7, "tgt_len": 5})
    assert len({case.model for case in (one, longer, exchanged, wider)}) == 4


def test_the_ideal_of_an_ideal_case_is_itself_and_what_has_no_such_form_has_none():
    ideal = Case.of("moh-llm-s-75", {"form": "ideal"})
    assert ideal.ideal is ideal and ideal.ideal_ledger is ideal.ledger
    released = Case.of("moh-llm-s-75")
    assert released.ideal_ledger == ideal.ledger != released.ledger
    assert Case.of("llm-s").ideal is None and Case.of("llm-s").ideal_ledger is None


def test_a_case_at_another_size_is_the_ledger_in_that_letter():
    case = Case.of("moa-8K8E128D", {"num_experts": 16}, {"src_len": 7, "tgt_len": 5})
    for letter, size in (("K", 3), ("E", 11), ("T", 13)):
        assert case.at(letter, size).ledger == case.ledger_in(letter, size) != case.ledger
    with pytest.raises(ConfigError, match="top_k must lie in"):
        case.at("K", 17)
