"""What a search prints and draws, of two sizes whose costs are told by hand: heads, notes, result, labels of a plot."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from headcount.bench.budget import __main__ as command
from headcount.bench.budget.__main__ import _bounds, _host_model, main, parser, plan, plot
from headcount.bench.budget.bounds import Bound
from headcount.bench.budget.candidates import Candidates
from headcount.bench.case import Case
from headcount.bench.env import drawing
from headcount.bench.variants.variant import variants_with
from tests.bench.output.reading import columns, kept

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


def test_the_bounds_stand_beside_the_rows():
    section, _ = planned(*TWO, "--kv-bytes", "64Ki")
    assert section.facts == {"bounds": {"macs": {"low": 0, "high": 9 * 10**9}, "kv_bytes": {"low": 0, "high": 2**16}}}


def test_a_row_is_a_size_and_what_it_costs():
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


def test_sizes_and_macs_stay_however_narrow_the_terminal_is():
    section, _ = planned(*TWO)
    costs = ["K", "E", "D", "MACs", "params", "params active", "KV cache bytes, 2 each"]
    assert kept(section, 80) == costs and kept(section, 120) == [*costs, "as a preset"]
    assert kept(section, 10) == costs[:4]


SAID = {
    "a cache": (TWO, "less of the rest; all 2 by active parameters. Cache: keys and values of one context of every "
                "decoding attention. python -m bench.macs takes each row as printed."),
    "no cache": (["--match-model", "mlm-transformer", "--limit", "1"], "No cache: "),
    "the model to match": (["--match-model", "transformer-big", "--attention", "moa", "--limit", "1"],
                           "transformer-big: 2,092,974,080 MACs, "),
    "other sizes": (["--match-model", "transformer-big", "--attention", "moa", "--limit", "1"],
                    "Around moa-8K8E128D with the other sizes of transformer-big, input: batch_size 1, src_len 10, "),
    "no times": (TWO, "No latency record of the cpu here has one of these layers at this length: no times."),
    "more of nothing": ([*TWO, "--maximise"], "where more is better of nothing, less of the rest"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_notes_say_around_what_and_for_what_is_searched(case):
    argv, said = SAID[case]
    assert said in " ".join(planned(*argv)[0].table.notes_above)


def test_budgets_of_ones_own_stand_beside_what_is_within_a_share_of_the_model_to_match():
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


def test_a_plot_has_macs_and_parameters_on_its_axes_and_a_label_at_each_row(drawn):
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


@pytest.mark.parametrize("argv, sides", [(["--macs", "1G", "--limit", "13"], {"right"}), (TWO, {"left", "right"})])
def test_labels_stand_at_their_points_and_within_the_axes(argv, sides, drawn):
    figure = drawn(*argv)
    axes, pixels = figure.axes[0], figure.canvas.get_renderer()
    middle = np.mean(axes.get_xlim())
    assert {"left" if text.xy[0] < middle else "right" for text in axes.texts} == sides
    for text in axes.texts:
        box, (x, y) = text.get_window_extent(pixels), axes.transData.transform(text.xy)
        # towards the middle, and a little above
        near = box.x0 - x if text.xy[0] < middle else x - box.x1
        assert 0 < near < 15 and 0 < box.y0 - y < 15
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1


def test_areas_are_in_the_order_of_cache_bytes(drawn):
    listed = drawn(*TWO[:4], "E=5", "D=7,14", *TWO[6:]).axes[0].collections[1]
    # 20 points and, of the 100 for the largest, a half and all
    assert sorted(listed.get_sizes()) == [70, 120]


def test_without_a_cache_points_are_alike(drawn):
    figure = drawn("--match-model", "dit-s2", "--attention", "mha", "--limit", "3")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fits", "listed front"]
    assert set(figure.axes[0].collections[1].get_sizes()) == {80}


def test_macs_of_many_digits_are_drawn_in_g(drawn):
    axes, _ = drawn("--match-model", "llm-s", "--attention", "mha", "--limit", "1").axes
    ((macs, _),) = axes.collections[1].get_offsets()
    # within 2 % of 354,334,801,920
    assert axes.get_xlabel() == "MACs (G)" and 347 < macs < 362


@pytest.mark.parametrize("most, unit, shown", [(10**11 - 1, "M", 99_999.999999), (10**11, "G", 100)])
def test_six_digits_of_macs_are_too_many(most, unit, shown, drawn, tmp_path):
    costs = {"macs": [7, most], "params": [5 * 10**6, 3 * 10**6], "active_params": [10**6, 2 * 10**6]}
    found = Candidates({"h": np.array([3, 2])}, {name: np.array(values) for name, values in costs.items()})
    long = " ".join(["twelve chars"] * 7)
    axes, _ = drawn(lambda: plot(str(tmp_path / "a.png"), long, SimpleNamespace(found=found, listed=[1]))).axes
    assert axes.get_xlabel() == f"MACs ({unit})"
    assert axes.collections[1].get_offsets().tolist() == [[pytest.approx(shown), 3.0]]
    assert [text.get_text() for text in axes.texts] == ["2h"]
    # as many words as eighty characters hold
    assert axes.get_title().split("\n") == [long[:77], long[78:]]


def test_grey_points_are_some_of_many_at_even_steps(drawn, monkeypatch):
    monkeypatch.setattr(command, "MAX_DRAWN", 7)
    every, _ = drawn(*TWO[:3], "K=2", "E=3:25", *TWO[5:]).axes[0].collections
    # each fourth of 23: each third would be eight
    sizes = [cost(2, E, 7) for E in range(3, 26, 4)]
    assert every.get_offsets().tolist() == [[macs / 1e6, n / 1e6] for macs, n, _ in sizes]


def test_every_search_says_each_letter_in_a_column_of_its_own():
    for name, one in variants_with("search").items():
        section, _ = planned("--attention", name, "--macs", "1T", "--limit", "1")
        heads = list(columns(section))
        assert heads[: len(one.search.letters)] == list(one.search.letters)


def test_former_option_names_are_hidden_aliases():
    new = ["--match-model", "llm-s", "--match-metric", "params", "--min-distance", "0", "--all-integers"]
    old = ["--like", "llm-s", "--match", "params", "--apart", "0", "--any"]
    assert parser().parse_args(old) == parser().parse_args(new)
    assert not re.search(r"--(like|match|apart|any)\b(?!-)", parser().format_help())
