"""Tables of a counted module: verdicts of counters, and the plot of shares."""

import pytest

from headcount.bench.counters.base import Cause, CounterResult, Explanation, ToolCount
from headcount.bench.counting.result import Count
from headcount.bench.macs import module
from headcount.bench.macs.module import counters_table, sentence
from headcount.bench.output.figure import drawing
from headcount.formulas.ledger import Entry, Ledger
from tests.bench.output.printed_cells import columns


def tool(macs, **values):
    """Return fvcore's count of a module of 1,001 MACs."""
    result = macs and CounterResult("fvcore", "fvcore", "0.1.5.post2", "cpu", macs)
    return ToolCount("fvcore", 1_001, result, device="cpu", **values)


def test_unexplained_count_fails():
    causes = (Cause("added", "norm", "jit_handles.py:230", 1, 10),)
    tools = [tool(1_013, explanation=Explanation(1_011, causes, unverified)) for unverified in (("torch 2.99",), ())]
    table = counters_table(tools, check=True)
    assert columns(table)["explained"] == ["unexplained", "unexplained"]
    message, unverified = "fvcore reads 1,013, its rules predict 1,011", "its rules are unverified for torch 2.99"
    assert [row.notes for row in table.rows] == [[message, unverified], [message]]
    assert [row.failures for row in table.rows] == [[f"{message} ({unverified})"], [message]]
    assert columns(table)["device"] == ["cpu", "cpu"] and columns(table)["version"] == ["0.1.5.post2"] * 2
    assert columns(table)["error"] == ["+12", "+12"]
    assert [row.failures for row in counters_table(tools[:1]).rows] == [[]]
    count = Count("Net", Ledger(()), tools=tuple(tools))
    assert sentence(count, False).endswith("; 0 of 2 reported counts explained by the trace.")


def test_failed_counter_is_a_failure_and_device_is_noted():
    failed = tool(None, reason="TypeError: no", why_there="the model has more than 200 GMACs")
    (row,) = counters_table([failed]).rows
    assert (row.macs, row.version) == (None, None)
    assert row.failures == ["fvcore failed: TypeError: no"]
    assert row.notes == ["failed: TypeError: no", "on cpu: the model has more than 200 GMACs"]


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
