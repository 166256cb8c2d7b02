"""The faults that were tried, in the report: from the record, or said to be missing."""

import json

import pytest

from headcount.bench.isolated.workers import Here
from headcount.reports import faults
from headcount.reports.facts import Facts

MACHINE = {"cpu": "a processor", "cores": 2}
FAULTS = {
    "faults": [
        {
            "fault": "kill -9",
            "then": "whole",
            "commands": ["a", "b"],
            "tries": 7,
            "held": 6,
            "failed": ["t"],
            "not_tried": [],
        },
        {
            "fault": "full | disk",
            "then": "one line",
            "commands": ["a"],
            "tries": 1,
            "held": 1,
            "failed": [],
            "not_tried": [{"command": "c", "why": "this needs root"}],
        },
    ],
    "seconds": 1234,
    "machine": MACHINE,
    "commit": "0",
}
FUZZED = {
    "macs": {"lines": 2000, "seed": 1, "tracebacks": 0, "hangs": 1, "failures": 2, "seconds": 90, "machine": MACHINE}
}


@pytest.fixture
def facts(tmp_path):
    return Facts(Here(), stored=tmp_path)


def test_without_a_record_it_says_so(facts):
    assert faults.tried(facts) == "Not tried yet: `make faults`."
    assert faults.fuzzed(facts).endswith("were not tried yet: `make fuzz`.")


def test_the_table_is_the_record(facts, tmp_path):
    (tmp_path / faults.RECORD).write_text(json.dumps(FAULTS))
    said = faults.tried(facts)
    assert "| kill -9 | whole | 2 | 7 | 6 |" in said and r"| full \| disk | one line | 1 | 1 | 1 |" in said
    assert "7 of 8 tries held, on a processor, 2 cores, in 1,234 s." in said
    assert said.endswith("Not tried: c, this needs root.")


def test_the_figures_of_fuzzed_lines_are_the_record(facts, tmp_path):
    (tmp_path / faults.FUZZED).write_text(json.dumps(FUZZED))
    assert "| macs | 2,000 | 1 | 0 | 1 | 2 | 90 |" in faults.fuzzed(facts)
