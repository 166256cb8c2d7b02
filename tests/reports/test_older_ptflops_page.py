"""The page on other versions of ptflops: what changed stands there, and a stored run is of today's modules."""

from importlib.metadata import version

import pytest

from headcount.bench.case import Case
from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.reports.facts import Facts
from headcount.reports.pages import counters
from tests import older_ptflops as command

STORED = Facts().stored_json(counters.RECORD)


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


def test_the_old_version_reads_linear_layers_with_their_biases_and_nothing_else():
    """By hand, of the spelling with four nn.Linear of 48 features: B T or B S rows, 48 + 1 a feature."""
    rows = 2 * (7 + 11 + 11 + 7)
    assert STORED["readings"][0]["macs"]["mha-matmul"] == rows * 48 * 48 + 4 * 48
