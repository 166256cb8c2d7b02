"""Stored counts of two versions of ptflops."""

from headcount.bench.case import Case
from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.reports.blocks import counters
from headcount.reports.facts import Facts

STORED = Facts().stored_json(counters.RECORD)


def test_stored_run_matches_modules():
    exact = {spelling.name: spelling.exact.macs for spelling in FORMULATIONS}
    assert exact.items() <= STORED["exact"].items()
    models = STORED["models"]
    assert STORED["exact"].keys() == {*exact, *models}
    assert {name: Case.of(name).ledger.macs for name in models} == {name: STORED["exact"][name] for name in models}


def test_old_ptflops_counts_only_linear():
    """Four nn.Linear of 48 features with biases, on B T or B S rows."""
    rows = 2 * (7 + 11 + 11 + 7)
    assert STORED["readings"][0]["macs"]["mha-matmul"] == rows * 48 * 48 + 4 * 48
