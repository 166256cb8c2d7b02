"""The page on other versions of ptflops: what changed stands there, and a stored run is of today's modules."""

import json
from importlib.metadata import version

import pytest

from headcount.bench import measure
from headcount.bench.case import Case
from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.reports.facts import Facts
from headcount.reports.pages import counters
from tests import older_ptflops as command

STORED = Facts().stored_json(counters.RECORD)


def test_models_stand_in_the_table_and_everything_in_the_data(tmp_path):
    readings = [
        {"version": "0.1", "macs": {"a": 7, "b": 11, "c": None}},
        {"version": "0.2", "macs": {"a": 7, "b": 13, "c": 17}},
    ]
    record = {"torch": "2.0", "models": ["b", "c"], "exact": {"a": 7, "b": 11, "c": 17}, "readings": readings}
    (tmp_path / counters.RECORD).write_text(json.dumps(record))
    page = counters.older_ptflops(Facts(stored=tmp_path))
    assert "3 modules" in page and "0.1 reads 2 exactly, 0.2 reads 2 exactly; 1 are counted alike" in page
    assert page.splitlines()[-2:] == ["| b | 11 | 11 | 13 |", "| c | 17 | – | 17 |"]
    assert counters.ptflops_data(Facts(stored=tmp_path)).splitlines() == [
        "module,exact,0.1,0.2",
        "a,7,7,7",
        "b,11,11,13",
        "c,17,,17",
    ]
    assert counters.older_ptflops(Facts(stored=tmp_path / "none")) == counters.NOT_RUN


def test_the_stored_run_is_of_the_modules_of_today():
    exact = {spelling.name: spelling.exact.macs for spelling in FORMULATIONS}
    assert exact.items() <= STORED["exact"].items()
    models = STORED["models"]
    assert STORED["exact"].keys() == {*exact, *models}
    assert {name: Case.of(name).ledger.macs for name in models} == {name: STORED["exact"][name] for name in models}
    assert [one["version"] for one in STORED["readings"]] == [command.OF_THE_PAPERS, version("ptflops")]


@pytest.mark.parametrize("name", ["mha-matmul", "moa-grouped", "mha-torch", "mha-conv", "vocabulary-tied"])
def test_a_reading_of_the_installed_version_is_what_was_stored(name):
    (spelling,) = (one for one in FORMULATIONS if one.name == name)
    assert command.reading(*spelling.build("cpu")) == STORED["readings"][-1]["macs"][name]


def test_of_a_whole_model_it_is_what_the_counter_reads():
    case = Case.of("moa-8K8E128D")
    (count,) = measure.measure(case, ["ptflops-pytorch"]).counts
    assert count.macs == STORED["readings"][-1]["macs"]["moa-8K8E128D"]


def test_the_old_version_reads_linear_layers_with_their_biases_and_nothing_else():
    """By hand, of the spelling with four nn.Linear of 48 features: B T or B S rows, 48 + 1 a feature."""
    rows = 2 * (7 + 11 + 11 + 7)
    assert STORED["readings"][0]["macs"]["mha-matmul"] == rows * 48 * 48 + 4 * 48


@pytest.mark.parametrize("text", ["latest", "0.6.9; rm", "7", ""])
def test_a_version_is_numbers(text, capsys):
    assert command.main([text]) == 2
    assert "a version is numbers with points between" in capsys.readouterr().err
