"""Cells of the heat map, from an audit of one formulation."""

from fractions import Fraction

from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.bench.macs import audit
from headcount.reports import counting


def test_error_is_percent_of_exact_count(monkeypatch):
    monkeypatch.setattr(audit, "FORMULATIONS", [one for one in FORMULATIONS if one.name == "mha-operator"])
    found = {(cell.counter, cell.device): cell for cell in counting.audit()}
    assert found["headcount", "meta"].difference == 0
    cell = found["ptflops-pytorch", "meta"]
    assert (cell.written, cell.device, cell.exact, cell.difference) == ("@", "meta", 180_672, 154_560)
    assert cell.error == Fraction(15_456_000, 180_672)
    assert sum(cause["macs"] for cause in cell.causes) == 154_560
