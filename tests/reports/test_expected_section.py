"""The section of expected times: errors, constants, and the rows that are not used."""

import re
from types import SimpleNamespace

import pytest

from headcount.bench import records
from headcount.bench.latency import efficiencies
from headcount.bench.performance import model
from headcount.reports.blocks import time
from tests.reports.pipe_tables import rows_of

ROWS, UNUSED = efficiencies.listed_rows(records.shipped() / efficiencies.RECORDS)
CHANGED = [row.key for row in ROWS if row.record.implementation == "triton"]


@pytest.fixture(scope="module")
def facts():
    return SimpleNamespace(result=lambda call: CHANGED)


@pytest.fixture(scope="module")
def section(facts):
    return time.expected(facts)


def test_errors_are_of_rows_that_were_not_fitted(section):
    first, second, *others = rows_of(section, "tested on")
    tested = [row for row in ROWS if not row.is_fitted]
    assert first["rows"] == str(len(tested))
    # without the rows that have other kernels today
    assert int(second["rows"]) == len([row for row in tested if row.key not in CHANGED])
    lengths = {row.record.seq_len for row in ROWS}
    assert len(others) == len(lengths) + len({row.record.name for row in ROWS} & {*efficiencies.LAYERS})


def test_constants_are_the_stored_ones(section):
    found = {row["constant"]: float(row["value"]) for row in rows_of(section, "constant")}
    assert found == {name: round(value, 3) for name, value in model.load().values.items()}


def test_unused_rows_have_their_reason(section):
    found = rows_of(section, "because")
    assert {row["implementation"] for row in found} == {"loop", "ragged"}
    lengths = sum(word.isdigit() for row in found for word in re.sub("[,;]", "", row["T"]).split())
    assert lengths == len(UNUSED)


def test_csv_has_every_row_and_its_half(facts):
    head, *lines = time.expected_csv.text(facts).splitlines()
    assert len(lines) == len(ROWS) and head.endswith("half,kernels,measured_us,least_us,expected_us")
    halves = [line.split(",")[7] for line in lines]
    assert halves.count("fitted") == sum(row.is_fitted for row in ROWS)
    assert sum("others today" in line for line in lines) == len(CHANGED)
