"""What headcount macs --module says of a module in its tables and in its last line."""

from math import prod

import pytest

from headcount.bench.isolated.module_count import ModuleCount
from headcount.bench.macs.module import _counters_section, _elementwise_section, _ledger_section
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


def test_repeated_elementwise_products_are_merged():
    written = "elementwise_contraction"

    def line(path, kind=written, times=1, call="mul, summed by sum", **dims):
        dims = dims or {"m": 7, "i": 11}
        return dict(path=path, call=call, kind=kind, dims=dims, times=times, size=times * prod(dims.values()))

    square = line("", kind="square_sum", times=2, call="pow, summed by mean", m=5)
    found = [line("layers.0.gate"), square, line("layers.1.gate", times=3), line("head")]
    found += [line("layers.2.gate", m=13), line("layers.3.gate", kind="gate"), line("layers.4.gate", call="dot")]
    section = _elementwise_section(count(elementwise=tuple(found)))
    assert columns(section) == {
        "module": ["layers.*.gate", "(model)", "head", *["layers.*.gate"] * 3],
        "call": ["mul, summed by sum", "pow, summed by mean", *["mul, summed by sum"] * 3, "dot"],
        "kind": [written, "square_sum", written, written, "gate", written],
        "sizes": ["4 x m=7 i=11", "2 x m=5", "m=7 i=11", "m=13", "m=7 i=11", "m=7 i=11"],
        "multiplications": ["308", "10", "77", "13", "77", "77"],
    }
    assert section.table.notes_above == [
        "A tensor with itself (norms, variances) and a product beside another term (gates) are named, never counted."
    ]
    leaves = sorted(section.table.columns, key=lambda column: -column.priority)
    assert [column.key for column in leaves][:2] == ["sizes", "call"] and leaves[1].priority > leaves[2].priority
    first, second, *_ = (row.records for row in section.rows)
    assert first == [line("layers.*.gate", times=4)] and second == [square]


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
