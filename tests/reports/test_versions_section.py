"""The versions that were tried, in the report: from the record, or said to be missing."""

import json

from headcount.bench.isolated.workers import Here
from headcount.reports import versions
from headcount.reports.facts import Facts

CELL = {"python": "3.12.1", "torch": "2.12.1", "passed": 1234, "skipped": 5, "failed": 1, "seconds": 678, "commit": "a"}


def test_each_environment_is_a_row_of_the_record(tmp_path):
    facts = Facts(Here(), stored=tmp_path)
    assert versions.tried(facts) == "Not tried yet: `make matrix`."
    (tmp_path / versions.RECORD).write_text(json.dumps({"torch-2.12": CELL}))
    assert "| torch-2.12 | 3.12.1 | 2.12.1 | 1,234 | 5 | 1 | 678 |" in versions.tried(facts)
