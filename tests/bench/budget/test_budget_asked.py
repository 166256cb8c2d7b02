"""``headcount budget``: parsed limits, the nearest candidate to an impossible limit, and the plot."""

import numpy as np
import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.budget import candidates as module
from headcount.bench.budget.__main__ import _bounds, _host_model, command, main, parser
from headcount.bench.budget.bounds import Bound, feasible_mask, parse
from headcount.bench.budget.candidates import candidates
from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.output.figure import drawing
from headcount.bench.variants.variant import variant
from tests.bench.budget.test_budget import moa_costs


@pytest.mark.parametrize(
    ("name", "holds"), [("gqa", lambda h, g: g < h), ("mqa", lambda h, g: g == 1), ("mha", lambda h, g: True)]
)
def test_gqa_and_mqa_have_fewer_kv_heads(name, holds):
    small = ["--range", "h=1:12", "g=1:12", "d_h=16", "--limit", "0", "--min-distance", "0", "--all-integers"]
    found = command(parser().parse_args(["--macs", "9G", "--attention", name, *small]))
    pairs = [(h, g) for h in range(1, 13) for g in range(1, 13) if h % g == 0 and holds(h, g)]
    assert found.sentence().partition(";")[0].endswith(f"of {len(pairs)} candidates")
    (table,) = found.tables
    assert all((row.numbers["h"], row.numbers["g"]) in pairs for row in table.rows)


AMOUNTS = {
    "7": 7, "1.5k": 1_500, "0.02M": 20_000, "3G": 3 * 10**9, "5T": 5 * 10**12, "11Ki": 11 * 1024, "13MiB": 13 * 2**20,
    "2.5Gi": 5 * 2**29, "17GB": 17 * 10**9, "19B": 19,
}  # fmt: skip


@pytest.mark.parametrize("text", AMOUNTS)
def test_budget_units(text):
    assert parse(text) == Bound(0, AMOUNTS[text])
    assert parse(f"{text}:{text}") == Bound(AMOUNTS[text], AMOUNTS[text])


@pytest.mark.parametrize("text", ["", "7:", "1.", "7mB", "-7", "7 G", "1e9", "7:8:9", "\u0663G", "9" * 5001])
def test_malformed_budget_raises(text):
    with pytest.raises(UsageError, match="^malformed budget "):
        parse(text)


COSTS = {"macs": [1_000, 2_000, 5_000], "params": [90, 80, 30], "active_params": [20, 25, 30]}
FOUND = {metric: np.array(values) for metric, values in COSTS.items()}
NEAREST = {
    "below": ({"macs": Bound(0, 999)}, "no candidate has at most 999 MACs; the nearest has 1,000 MACs"),
    "between": ({"macs": Bound(2_001, 3_400)}, "no candidate has 2,001 to 3,400 MACs; the nearest has 2,000 MACs"),
    "huge": ({"macs": Bound(10**40, 10**41)}, f"has {10**40:,} to {10**41:,} MACs; the nearest has 5,000 MACs"),
    "no two met together": (
        {"params": Bound(90, 90), "macs": Bound(2_000, 2_000), "active_params": Bound(30, 30)},
        "the nearest has 80 parameters, 2,000 MACs, 25 active parameters",
    ),
}


@pytest.mark.parametrize("case", NEAREST)
def test_impossible_budget_names_nearest_candidate(case):
    bounds, message = NEAREST[case]
    with pytest.raises(UsageError) as error:
        feasible_mask(FOUND, bounds)
    assert str(error.value).endswith(message)


def test_budget_ends_are_inclusive():
    assert feasible_mask(FOUND, {"macs": Bound(1_000, 2_000), "params": Bound(80, 90)}).tolist() == [True, True, False]


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


def test_bounds_of_given_and_matched_metrics():
    words = ["--match-model", "transformer-big", "--attention", "moa"]
    own = ["--macs", "1G:9G", "--kv-bytes", "7M", "--match-metric", "params", "--tolerance", "0.1"]
    args = parser().parse_args([*words, *own])
    host, target = _host_model(args)
    params = Case.of("transformer-big").ledger.params
    assert _bounds(args, host, target) == {
        "macs": Bound(10**9, 9 * 10**9),
        "kv_bytes": Bound(0, 7 * 10**6),
        "params": Bound(-(-9 * params // 10), 11 * params // 10),
    }
    # default: MACs within 0.02
    args, macs = parser().parse_args(words), target.ledger.macs
    assert _bounds(args, host, target) == {"macs": Bound(-(-49 * macs // 50), 51 * macs // 50)}


def test_plot_shows_costs_and_labels(monkeypatch, tmp_path):
    pyplot, figures = drawing(), []
    two = ["--macs", "9G", "--range", "K=2", "E=3,5", "D=7", "--min-distance", "0", "--set", "vocab_size=11"]
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        assert main([*two, "--plot", str(tmp_path / "a.svg")]) == 0
    pyplot.close(figures[0])
    axes, _ = figures[0].axes
    every, listed = axes.collections
    costs = [moa_costs(2, E, 7, T=10, N=6, V=11) for E in (5, 3)]
    points = [(one["macs"] / 1e6, one["params"] / 1e6) for one in costs]
    assert sorted(map(tuple, listed.get_offsets())) == sorted(map(tuple, every.get_offsets())) == sorted(points)
    assert sorted(listed.get_array()) == sorted(one["active_params"] / 1e6 for one in costs)
    assert {text.get_text() for text in axes.texts} == {"2K 5E 7D", "2K 3E 7D"}
