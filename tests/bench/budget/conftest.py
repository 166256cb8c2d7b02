"""The front of a search against every point, for each attention that is searched."""

import pytest

from headcount.bench.budget import bounds
from headcount.bench.budget.search import search
from headcount.bench.errors import UsageError


def dominates(p, q):
    """More parameters and active parameters, fewer MACs and cache bytes."""
    signs = {"macs": 1, "params": -1, "active_params": -1, "kv_bytes": 1}
    pairs = [(sign * p[m], sign * q[m]) for m, sign in signs.items()]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


@pytest.fixture(scope="session")
def brute_force():
    """A function that asserts what a search over ``ranges`` finds, given the costs of all ``points`` by hand.

    ``budgets``: the share of the sorted costs that is within the budget, by metric.
    """
    return _assert_front


def _assert_front(around, ranges, points, budgets):
    limits = {}
    for metric, share in budgets.items():
        values = sorted(costs[metric] for costs in points.values()) or [0]
        limits[metric] = bounds.Bound(0, values[int(share * (len(values) - 1))])
    fitting = {p: c for p, c in points.items() if all(c[m] <= b.high for m, b in limits.items())}
    expected = {p for p, c in fitting.items() if not any(dominates(other, c) for other in fitting.values())}
    ask = {"maximise": ["params", "active_params"], "first": None, "limit": 0, "device": "cpu", "records": ()}
    if not fitting:
        with pytest.raises(UsageError, match="no point|no candidate"):
            search(around, ranges, limits, min_distance=0, **ask)
        return
    answer = search(around, ranges, limits, min_distance=0, **ask)
    found = [tuple(answer.found.at(i).values()) for i in answer.listed]
    assert len(found) == len(set(found)) and set(found) == expected
    for i in answer.listed:
        assert {m: int(v[i]) for m, v in answer.found.costs.items()} == points[tuple(answer.found.at(i).values())]
    apart = search(around, ranges, limits, min_distance=0.05, **ask)
    assert {tuple(apart.found.at(i).values()) for i in apart.listed} <= expected
    assert found[0] == tuple(apart.found.at(apart.listed[0]).values())
