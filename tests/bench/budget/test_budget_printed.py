"""Bounds, the plot and former option names of headcount budget."""

import re

from headcount.bench.budget.__main__ import _bounds, _host_model, main, parser
from headcount.bench.budget.bounds import Bound
from headcount.bench.case import Case
from headcount.bench.env import drawing
from tests.bench.budget.test_budget import moa_costs

TWO = ["--macs", "9G", "--range", "K=2", "E=3,5", "D=7", "--min-distance", "0", "--set", "vocab_size=11"]


def test_bounds_of_own_and_matched_metrics():
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
    # two hundredths, and MACs, where neither is given
    args, macs = parser().parse_args(words), target.costs["macs"]
    assert _bounds(args, host, target) == {"macs": Bound(-(-49 * macs // 50), 51 * macs // 50)}


def test_plot_shows_costs_and_labels(monkeypatch, tmp_path):
    pyplot, figures = drawing(), []
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        assert main([*TWO, "--plot", str(tmp_path / "a.svg")]) == 0
    (figure,) = figures
    pyplot.close(figure)
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("MACs (M)", "parameters (M)")
    assert bar.get_ylabel() == "active parameters (M)" and axes.get_title() == "MACs at most 9,000,000,000"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fits", "listed front (area: cache bytes)"]
    every, listed = axes.collections
    two = [moa_costs(2, E, 7, T=10, N=6, V=11) for E in (5, 3)]
    points = [(one["macs"] / 1e6, one["params"] / 1e6) for one in two]
    assert sorted(map(tuple, listed.get_offsets())) == sorted(map(tuple, every.get_offsets())) == sorted(points)
    assert sorted(listed.get_array()) == sorted(one["active_params"] / 1e6 for one in two)
    assert {text.get_text() for text in axes.texts} == {"2K 5E 7D", "2K 3E 7D"}


def test_former_option_names_are_hidden_aliases():
    new = ["--match-model", "llm-s", "--match-metric", "params", "--min-distance", "0", "--all-integers"]
    old = ["--like", "llm-s", "--match", "params", "--apart", "0", "--any"]
    assert parser().parse_args(old) == parser().parse_args(new)
    assert not re.search(r"--(like|match|apart|any)\b(?!-)", parser().format_help())
