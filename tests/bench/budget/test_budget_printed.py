"""What a search prints and draws, of two sizes whose costs are told by hand: heads, notes, result, labels of a plot."""

import re

import pytest

from headcount.bench.budget import __main__ as command
from headcount.bench.budget.__main__ import _bounds, _host_model, main, parser, plan
from headcount.bench.budget.bounds import Bound
from headcount.bench.case import Case
from headcount.bench.env import drawing
from tests.bench.output.reading import columns

TWO = ["--macs", "9G", "--range", "K=2", "E=3,5", "D=7", "--min-distance", "0", "--set", "vocab_size=11"]
LAYERS, T, D_MODEL, D_FF = 6, 10, 512, 2048


def cost(K, E, D):
    """MACs, parameters and active ones of the base model with two sequences of ten tokens, and 11 words."""
    attention = T * D_MODEL * E + 2 * T * K * D * D_MODEL + 2 * T * D * D_MODEL + 2 * K * T * T * D
    macs = 3 * LAYERS * attention + 2 * LAYERS * 2 * T * D_MODEL * D_FF + T * D_MODEL * 11
    norms, fed = 5 * 2 * D_MODEL * LAYERS, 2 * LAYERS * (2 * D_MODEL * D_FF + D_FF + D_MODEL)
    rest = 3 * LAYERS * (D_MODEL * E + 2 * D * D_MODEL) + fed + norms + 11 * D_MODEL
    return macs, *(rest + 3 * LAYERS * 2 * each * D * D_MODEL for each in (E, K))


def planned(*argv):
    work = plan(parser().parse_args(argv))
    (section,) = work.sections
    return section, work


def test_row_costs_match_hand_formula():
    section, work = planned(*TWO)
    macs, params, active = zip(cost(2, 5, 7), cost(2, 3, 7), strict=True)
    assert columns(section) == {
        "K": ["2", "2"],
        "E": ["5", "3"],
        "D": ["7", "7"],
        "MACs": [f"{n:,}" for n in macs],
        "params": [f"{n:,}" for n in params],
        "params active": [f"{n:,}" for n in active],
        # keys and values of 7 numbers in two attentions of six layers, ten tokens each
        "KV cache bytes, 2 each": [f"{LAYERS * 2 * 2 * T * 7 * 2:,}"] * 2,
        "as a preset": [
            f"--preset moa-8K8E128D --set vocab_size=11 top_k=2 num_experts={E} head_dim=7" for E in (5, 3)
        ],
    }
    assert section.table.title == "MACs at most 9,000,000,000"
    assert work.result([section]) == "2 rows of 2 within the budget, of 2 candidates."
    assert work.remark() == ", 2 candidates"


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


@pytest.fixture
def drawn(monkeypatch, tmp_path, capsys):
    """A function that gives the figure that a search, or a call, draws."""
    pyplot, figures = drawing(), []
    monkeypatch.setattr(pyplot, "close", figures.append)

    def figure(*argv):
        if callable(argv[0]):
            argv[0]()
        else:
            assert main([*argv, "--plot", str(tmp_path / "a.svg")]) == 0
        capsys.readouterr()
        return figures.pop()

    yield figure
    monkeypatch.undo()
    pyplot.close("all")


def test_plot_shows_costs_and_labels(drawn):
    figure = drawn(*TWO)
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("MACs (M)", "parameters (M)")
    assert bar.get_ylabel() == "active parameters (M)" and axes.get_title() == "MACs at most 9,000,000,000"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fits", "listed front (area: cache bytes)"]
    every, listed = axes.collections
    two = [cost(2, 5, 7), cost(2, 3, 7)]
    points = [(macs / 1e6, params / 1e6) for macs, params, _ in two]
    assert sorted(map(tuple, listed.get_offsets())) == sorted(map(tuple, every.get_offsets())) == sorted(points)
    assert sorted(listed.get_array()) == sorted(active / 1e6 for _, _, active in two)
    assert {text.get_text() for text in axes.texts} == {"2K 5E 7D", "2K 3E 7D"}


def test_background_points_are_thinned_evenly(drawn, monkeypatch):
    monkeypatch.setattr(command, "MAX_DRAWN", 7)
    every, _ = drawn(*TWO[:3], "K=2", "E=3:25", *TWO[5:]).axes[0].collections
    # each fourth of 23: each third would be eight
    sizes = [cost(2, E, 7) for E in range(3, 26, 4)]
    assert every.get_offsets().tolist() == [[macs / 1e6, n / 1e6] for macs, n, _ in sizes]


def test_former_option_names_are_hidden_aliases():
    new = ["--match-model", "llm-s", "--match-metric", "params", "--min-distance", "0", "--all-integers"]
    old = ["--like", "llm-s", "--match", "params", "--apart", "0", "--any"]
    assert parser().parse_args(old) == parser().parse_args(new)
    assert not re.search(r"--(like|match|apart|any)\b(?!-)", parser().format_help())
