"""The plot of shares: a line for each layer, the most used expert first, labelled in the words of the layer."""

from fractions import Fraction

import pytest

from headcount.bench.env import drawing
from headcount.bench.routing.__main__ import plot
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.variants.variant import variant


def layer(name, *counts):
    """Experts chosen so many times each, or heads."""
    found = LayerRouting("x", variant(name).routed, len(counts), 1)
    chosen = [(expert,) for expert, count in enumerate(counts) for _ in range(count)]
    found.add(range(len(chosen)), chosen, Fraction(1))
    return found


@pytest.mark.parametrize("name, units", [("moa", "experts"), ("moh", "routed heads")])
def test_shares_are_drawn_sorted_in_percent(name, units, monkeypatch, tmp_path):
    pyplot, figures = drawing(), []
    own = dict(pyplot.rcParams)
    with monkeypatch.context() as kept:
        kept.setattr(pyplot, "close", figures.append)
        plot({"first": layer(name, 2, 5, 3), "second": layer(name, 1, 3)}, tmp_path / "shares.svg")
    # the plots that a caller draws afterwards are as before
    assert dict(pyplot.rcParams) == own
    (axes,) = figures[0].axes
    pyplot.close(figures[0])
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert lines == {"first": ([1, 2, 3], [50, 30, 20]), "second": ([1, 2], [75, 25])}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]
    assert axes.get_xlabel() == f"{units}, the most used first" and axes.get_ylabel() == "share of all choices in %"
    # each expert is a mark, and shares are seen from 0 on
    assert {line.get_marker() for line in axes.lines} == {"."} and axes.get_ylim()[0] == 0
