"""Tables of a counted module: verdicts of counters, and the plot of shares."""

import pytest

from headcount.bench.counting.result import Count
from headcount.bench.macs import module
from headcount.bench.macs.entries import counters_section
from headcount.bench.output.figure import drawing
from headcount.formulas.ledger import Entry, Ledger
from tests.bench.output.printed_cells import columns

pytestmark = pytest.mark.usefixtures("warm")


def test_unexplained_count_fails():
    cell = {"counter": "fvcore", "macs": 1_013, "difference": 12, "predicted_macs": 1_011, "failed": None}
    cell |= {"explained": False, "unverified": ["torch 2.99"], "counted_there_because": None}
    cell |= {"device": "cpu", "version": "0.1.5.post2"}
    section = counters_section("counters", "counters", (cell, cell | {"unverified": []}), check=True)
    assert columns(section)["explained"] == ["unexplained", "unexplained"]
    message, unverified = "fvcore reads 1,013, its rules predict 1,011", "its rules are unverified for torch 2.99"
    assert [row.notes for row in section.rows] == [[message, unverified], [message]]
    assert [row.failures for row in section.rows] == [[f"{message} ({unverified})"], [message]]
    assert columns(section)["device"] == ["cpu", "cpu"] and columns(section)["version"] == ["0.1.5.post2"] * 2
    unchecked = counters_section("counters", "counters", (cell,))
    assert [row.failures for row in unchecked.rows] == [[]]


def test_failed_counter_is_a_failure_and_device_is_noted():
    cell = {"counter": "fvcore", "device": "meta", "version": None, "macs": None, "difference": None, "explained": True}
    cell |= {"failed": "TypeError: no", "unverified": [], "counted_there_because": "the model has more than 200 GMACs"}
    (row,) = counters_section("counters", "counters", (cell,)).rows
    assert row.failures == ["fvcore failed: TypeError: no"]
    assert row.notes == ["failed: TypeError: no", "on meta: the model has more than 200 GMACs"]


def test_plot_has_a_bar_for_each_innermost_module(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (headcount[report] brings it)")
    sizes = {"attn.q": 200, "attn": 300, "idle": 0, "mlp": 500}
    ledger = Ledger(tuple(Entry(path, "scores", {"i": size}) for path, size in sizes.items() if size))
    found = Count("Net", ledger)
    pyplot, figures = drawing(), []
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        module.plot(str(tmp_path / "a.svg"), found, None)
    (axes,) = figures[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["attn.q", "attn", "mlp"]
    assert [bar.get_width() for bar in axes.patches] == [20, 30, 50]
    pyplot.close(figures[0])
    module.plot(str(tmp_path / "b.pdf"), found, None)
    module.plot(str(tmp_path / "c.pdf"), found, None)
    assert (tmp_path / "b.pdf").read_bytes() == (tmp_path / "c.pdf").read_bytes()
