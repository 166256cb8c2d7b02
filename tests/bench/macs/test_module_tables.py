"""Rows of headcount macs --module: a counter that is not explained fails."""

import pytest

from headcount.bench.isolated.module_count import ModuleCount
from headcount.bench.macs.module import _counters_section
from headcount.formulas.ledger import Ledger
from tests.bench.output.reading import columns

pytestmark = pytest.mark.usefixtures("warm")

COST = 7 * 13 * 11


def count(**fields):
    """A count of 1,001 MACs, but for ``fields``."""
    usual = {"device": "cpu", "why_not_meta": None, "headline": "exact", "inputs": ()}
    usual |= dict.fromkeys(("macs", "dispatched", "with_elementwise"), COST) | {"ledger": Ledger(())}
    usual |= dict.fromkeys(("elementwise", "parameters", "counters", "audit"), ()) | {"libraries": {}}
    usual |= {"bytes_moved": 0, "causal_macs": None, "other_flops": {}}
    return ModuleCount(**usual | fields)


def test_unexplained_count_fails():
    cell = {"counter": "fvcore", "macs": 1_013, "difference": 12, "predicted_macs": 1_011, "failed": None}
    cell |= {"explained": False, "unverified": ["torch 2.99"], "counted_there_because": None}
    cell |= {"device": "cpu", "version": "0.1.5.post2"}
    section = _counters_section(count(counters=(cell, cell | {"unverified": []})), check=True)
    assert columns(section)["explained by trace"] == ["unexplained", "unexplained"]
    message, unverified = "fvcore reads 1,013, its rules predict 1,011", "its rules are unverified for torch 2.99"
    assert [row.notes for row in section.rows] == [[message, unverified], [message]]
    assert [row.failures for row in section.rows] == [[f"{message} ({unverified})"], [message]]
    assert columns(section)["device"] == ["cpu", "cpu"] and columns(section)["version"] == ["0.1.5.post2"] * 2
    unchecked = _counters_section(count(counters=(cell,)), check=False)
    assert [row.failures for row in unchecked.rows] == [[]]


def test_failed_counter_is_a_failure_and_device_is_noted():
    cell = {"counter": "fvcore", "device": "meta", "version": None, "macs": None, "difference": None, "explained": True}
    cell |= {"failed": "TypeError: no", "unverified": [], "counted_there_because": "the model has more than 200 GMACs"}
    (row,) = _counters_section(count(counters=(cell,)), check=False).rows
    assert row.failures == ["fvcore failed: TypeError: no"]
    assert row.notes == ["failed: TypeError: no", "on meta: the model has more than 200 GMACs"]
