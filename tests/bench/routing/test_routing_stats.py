"""Shares, pointwise mutual information and tables of a routing, counted by hand."""

from collections import Counter
from fractions import Fraction

from headcount.bench.output.figure import drawing
from headcount.bench.routing import tables
from headcount.bench.routing.__main__ import plot
from headcount.bench.routing.stats import LayerRouting, group_tokens, percent, top_tokens
from headcount.bench.variants.variant import variant
from tests.bench.output.printed_cells import columns

CHOSEN = [Counter(a=3, b=1), Counter(b=4), Counter()]


def layer_of(name, chosen, number=3, shared=0):
    """Return a layer of ``number`` experts or heads with the (token, chosen) pairs, each of 1,009 MACs."""
    found = LayerRouting("decoder.layers.17.cross_attn", variant(name).routed, number, 2, num_shared=shared)
    found.add(*zip(*chosen, strict=True), Fraction(1009))
    return found


def test_percent_and_groups():
    assert percent([3, 5, 0]) == [Fraction(75, 2), Fraction(125, 2), 0] and percent([0, 0]) == [0, 0]
    assert group_tokens(CHOSEN, {"a": "A", "b": "A"}.get) == [Counter(A=4), Counter(A=4), Counter()]


def test_top_tokens_by_pmi_then_frequency():
    # p(a, 0) = 3/8, p(a) = 3/8, p(0) = 4/8
    first = [("a", Fraction(2)), ("b", Fraction(1 * 8, 5 * 4))]
    assert top_tokens(CHOSEN, 5) == [first, [("b", Fraction(4 * 8, 5 * 4))], []]
    assert top_tokens(CHOSEN, 1) == [first[:1], [("b", Fraction(8, 5))], []]
    assert top_tokens(CHOSEN, 5, min_count=4) == [[("b", Fraction(2, 5))], [("b", Fraction(8, 5))], []]
    equal = [Counter(x=1, y=2), Counter(z=3)]
    assert [token for token, _ in top_tokens(equal, 5)[0]] == ["y", "x"]


# Number 0 is chosen 8 times, 1 is chosen 10 times, 2 is chosen 4 times.
CHOICES = [(1, (0, 1))] * 4 + [(1, (0, 2))] + [(2, (0, 1))] * 2 + [(11, (2, 1))] * 3 + [(12, (0, 1))]


def test_head_has_macs_of_both_forms():
    heads = layer_of("moh", CHOICES, shared=2)
    found = columns(tables.expert_table([heads], top=1, min_count=1))
    assert found["head"] == ["0", "1", "3", "2", "4"]
    assert found["tokens"] == ["11", "11", "10", "8", "4"]
    assert found["share %"] == ["–", "–", "45.45", "36.36", "18.18"]
    assert found["MACs ideal"] == ["11,099", "11,099", "10,090", "8,072", "4,036"]
    assert found["MACs as released"] == ["11,099"] * 5
    with_classes = columns(tables.expert_table([heads], 1, 1, class_of=lambda token: "AB"[token // 10]))
    assert with_classes["class of highest PMI"] == ["–", "–", "B", "A", "B"]
    assert with_classes["PMI of the class"] == ["–", "–", "1.10", "1.38", "2.06"]


def test_plot_shows_sorted_shares(monkeypatch, tmp_path):
    first = layer_of("moh", [(0, [0] * 2 + [1] * 5 + [2] * 3)])
    second = layer_of("moh", [(0, [0] + [1] * 3)], number=2)
    pyplot, figures = drawing(), []
    own = dict(pyplot.rcParams)
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        for name in ("a.svg", "b.svg"):
            plot({"first": first, "second": second}, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    # the caller's settings of matplotlib stay
    assert dict(pyplot.rcParams) == own
    (axes,) = figures[0].axes
    pyplot.close("all")
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert lines == {"first": ([1, 2, 3], [50, 30, 20]), "second": ([1, 2], [75, 25])}
    assert axes.get_xlabel() == "routed heads, the most used first"
