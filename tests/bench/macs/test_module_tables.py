"""What headcount macs --module says of a module in its tables and in its last line."""

import pytest

from headcount.bench.isolated.module_count import ModuleCount
from headcount.bench.macs.module import _counters_section, _ledger_section
from headcount.formulas.ledger import Entry, Ledger
from tests.bench.output.reading import columns

pytestmark = pytest.mark.usefixtures("warm")

COST = 7 * 13 * 11


def count(**fields):
    """A count of 1,001 MACs, but for ``fields``."""
    usual = {"device": "cpu", "why_not_meta": None, "headline": "exact", "trainable_params": 0, "inputs": ()}
    usual |= dict.fromkeys(("macs", "dispatched", "with_elementwise"), COST) | {"ledger": Ledger(())}
    usual |= dict.fromkeys(("elementwise", "parameters", "counters", "audit"), ())
    return ModuleCount(**usual | fields)


def test_unexplained_count_fails():
    cell = {"counter": "fvcore", "macs": 1_013, "difference": 12, "predicted_macs": 1_011, "failed": None}
    cell |= {"explained": False, "unverified": ["torch 2.99"]}
    section = _counters_section(count(counters=(cell, cell | {"unverified": []})))
    assert columns(section)["explained by trace"] == ["unexplained", "unexplained"]
    said, unverified = "fvcore reads 1,013, its rules predict 1,011", "its rules are unverified for torch 2.99"
    assert [row.notes for row in section.rows] == [[said, unverified], [said]]
    assert [row.failures for row in section.rows] == [[f"{said} ({unverified})"], [said]]


def test_parameters_without_products_have_rows():
    ledger = Ledger((Entry("layers.0.up", "linear", {"m": 7, "i": 11, "j": 13}),))
    sizes = {"layers.0.up": 143, "": 5, "layers.1.norm": 13, "layers.0.norm": 17}
    params = [{"path": path, "params": number} for path, number in sizes.items()]
    found = count(ledger=ledger, parameters=tuple(params), why_not_meta="it is odd.", trainable_params=173)
    section = _ledger_section("m.py:make", found, None)
    assert columns(section) == {
        "module": ["layers.*.up", "(model)", "layers.*.norm", "total"],
        "kind": ["linear", "", "", ""],
        "sizes": ["m=7 i=11 j=13", "", "", ""],
        "MACs": ["1,001", "–", "–", "1,001"],
        "share %": ["100.00", "–", "–", "100.00"],
        "params": ["143", "5", "30", "178"],
    }
    assert section.table.notes_above[:2] == [
        "Counted on cpu, one forward pass over the whole batch.", "Not on meta: it is odd."
    ]  # fmt: skip
    assert section.below == ["173 of 178 parameters are trainable."]
    # programs read rows without what sums them
    assert [row.total for row in section.rows] == [False, False, False, True]
