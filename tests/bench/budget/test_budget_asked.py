"""Budgets as text, nearest candidates, the order of the front and recorded times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.bench import records
from headcount.bench.accounts import Assumptions
from headcount.bench.budget import candidates as module
from headcount.bench.budget import search
from headcount.bench.budget.__main__ import parser, plan
from headcount.bench.budget.bounds import Bound, feasible, parse
from headcount.bench.budget.candidates import Candidates, candidates
from headcount.bench.budget.search import pareto_front
from headcount.bench.case import Case
from headcount.bench.env import device_name
from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import variant
from tests.bench.budget.test_budget import record

ONE = ["--macs", "9G", "--range", "K=2", "E=3", "D=7"]


def section(*argv):
    (found,) = plan(parser().parse_args(argv)).sections
    return found


AMOUNTS = {
    "7": 7, "1.5k": 1_500, "0.02M": 20_000, "3G": 3 * 10**9, "5T": 5 * 10**12, "11Ki": 11 * 1024, "13MiB": 13 * 2**20,
    "2.5Gi": 5 * 2**29, "17GB": 17 * 10**9, "19B": 19,
}  # fmt: skip


@pytest.mark.parametrize("text", AMOUNTS)
def test_budget_units(text):
    assert parse(text) == Bound(0, AMOUNTS[text])
    assert parse(f"{text}:{text}") == Bound(AMOUNTS[text], AMOUNTS[text])


@pytest.mark.parametrize(
    "text", ["", ":", "7:", ":7", "1.", ".5", "7KB", "7K", "-7", "7 G", "1e9", "7:8:9", "7GG", "\u0663G", "9" * 5001]
)
def test_malformed_budget_raises(text):
    with pytest.raises(UsageError, match="^malformed budget "):
        parse(text)


FOUND = Candidates({}, {"macs": np.array([1_000, 2_000, 5_000]), "params": np.array([90, 80, 30])})
NEAREST = {
    "below": ({"macs": Bound(0, 999)}, "no candidate has at most 999 MACs; the nearest is 1,000"),
    "between": ({"macs": Bound(2_001, 3_400)}, "no candidate has 2,001 to 3,400 MACs; the nearest is 2,000"),
    "nearer above": ({"macs": Bound(2_001, 3_600)}, "no candidate has 2,001 to 3,600 MACs; the nearest is 2,000"),
    "above": ({"params": Bound(82, 87)}, "no candidate has 82 to 87 parameters; the nearest is 80"),
    "one at fault": (
        {"params": Bound(0, 85), "macs": Bound(0, 1_999)},
        "no candidate has at most 85 parameters within the other budgets; the nearest is 90",
    ),
}


@pytest.mark.parametrize("case", NEAREST)
def test_impossible_budget_names_nearest(case):
    bounds, message = NEAREST[case]
    with pytest.raises(UsageError) as error:
        feasible(FOUND, bounds)
    assert str(error.value) == message


def test_budget_ends_are_inclusive():
    assert feasible(FOUND, {"macs": Bound(1_000, 2_000), "params": Bound(80, 90)}).tolist() == [True, True, False]


POINTS = st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, max_size=15)


@settings(deadline=None, max_examples=60)
@given(POINTS, st.sampled_from([0, 0.25, 0.5]), st.data())
def test_front_is_sorted_and_distant(points, apart, data):
    timed = data.draw(st.sets(st.sampled_from(range(len(points)))))
    times = np.array([1.0 if i in timed else np.nan for i in range(len(points))])

    def beaten(i, others):
        pairs = [(points[j], points[i]) for j in others]
        return any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for a, b in pairs)

    # all times are alike, so that none decides
    front = [i for i in range(len(points)) if not beaten(i, range(len(points)))]
    expected = [i for i in front if i in timed]
    near = []
    for i in sorted(set(front) - timed, key=lambda i: (points[i], i)):
        kept = (points[j] for j in near)
        if not apart or not any(
            all(abs(x - y) <= apart * y for x, y in zip(points[i], one, strict=True)) for one in kept
        ):
            near.append(i)
    columns = list(np.array(points).T)
    assert list(pareto_front(columns, times, columns, apart)) == expected + near


@pytest.mark.parametrize(
    "ranges, most, message",
    [
        # four pairs with K <= E, times three widths
        ({"K": (1, 2), "E": (2, 3), "D": (2, 4, 6)}, 12, "12 candidates are more than 11; give smaller ranges"),
        ({"K": (1, 2, 3), "E": (3, 4), "D": (2,)}, 6, "6 points of K, E are more than 5; give smaller ranges"),
    ],
)
def test_limit_of_candidates(ranges, most, message, monkeypatch):
    one = variant("moa")
    around = Case.of(one.search.preset, one.fields(one.search.example))
    monkeypatch.setattr(module, "MOST", most)
    assert len(candidates(one, ranges, around, Assumptions())) == most
    monkeypatch.setattr(module, "MOST", most - 1)
    with pytest.raises(UsageError, match=f"^{message}$"):
        candidates(one, ranges, around, Assumptions())


def test_matched_model_takes_fields():
    found = section("--match-model", "transformer-base,d_ff=1000", "--attention", "moa", "--limit", "1")
    matched = Case.of("transformer-base", {"d_ff": 1000}).ledger.macs
    assert found.table.notes_above[0].startswith(f"transformer-base,d_ff=1000: {matched:,} MACs, ")
    assert "d_ff=1000" in found.rows[0].records[0]["set"]


def test_times_come_from_records(monkeypatch, tmp_path):
    layer = ["--macs", "9G", "--range", "K=8", "E=32", "D=128"]
    for name, ms in (("stored", 3.5), ("own", 2.5)):
        path = tmp_path / name / records.slug(device_name("cpu")) / "one.jsonl"
        records.append(path, record("moa-8K32E128D", "grouped", ms))
    monkeypatch.setattr(records, "folders", lambda: (tmp_path / "stored",))
    times = [section(*layer).rows[0], section(*layer, "--records", str(tmp_path / "own")).rows[0]]
    assert [row.values["ms"] for row in times] == [3.5, 2.5]
    # a layer of translation attends to its own side and to another of that length
    assert section(*layer, "--src-len", "10", "--tgt-len", "11").rows[0].values["ms"] is None


def test_unequal_costs_raise(monkeypatch):
    exact = search.costs
    monkeypatch.setattr(search, "costs", lambda *of: {**exact(*of), "macs": 7})
    message = r"^\{'K': 2, 'E': 3, 'D': 7\}: arrays and integers give different costs$"
    with pytest.raises(ArithmeticError, match=message):
        section(*ONE)
