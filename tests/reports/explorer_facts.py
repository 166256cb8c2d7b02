"""The explorer's page with a small audit, which needs no torch."""

from dataclasses import replace
from functools import cache

from headcount.reports.counting import Cell
from headcount.reports.explorer import page
from headcount.reports.facts import Facts

REASON = "NotImplementedError: no rule for <b>flex</b> & </script> attention, whatever else it is called in this tool"


class SmallAudit(Facts):
    """Facts with three counts: exact, too large and failed."""

    def audit(self):
        exact = Cell("mha-operator", "x @ W + b", "cpu", "torch", 100, 0, causes=())
        cause = {"what": "added", "name": "matmul", "calls": 2, "macs": 7, "place": "x.py:1"}
        larger = replace(exact, spelling="moa-bmm", difference=7, causes=(cause,))
        return [exact, larger, replace(exact, spelling="mha-flex", difference=None, reason=REASON)]


@cache
def data():
    """Return what the page evaluates."""
    return page.data(SmallAudit())


@cache
def text():
    """Return the page."""
    return page.render(data())
