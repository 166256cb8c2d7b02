"""The plot of sorted shares."""

from fractions import Fraction

from headcount.bench.env import drawing
from headcount.bench.routing.__main__ import plot
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.variants.variant import variant


def layer(name, *counts):
    """Return a layer whose experts or heads were selected ``counts`` times."""
    found = LayerRouting("x", variant(name).routed, len(counts), 1)
    chosen = [(expert,) for expert, count in enumerate(counts) for _ in range(count)]
    found.add(range(len(chosen)), chosen, Fraction(1))
    return found


def test_shares_are_drawn_sorted_in_percent(monkeypatch, tmp_path):
    pyplot, figures = drawing(), []
    own = dict(pyplot.rcParams)
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        plot({"first": layer("moh", 2, 5, 3), "second": layer("moh", 1, 3)}, tmp_path / "shares.svg")
    # the plots that a caller draws afterwards are as before
    assert dict(pyplot.rcParams) == own
    (axes,) = figures[0].axes
    pyplot.close(figures[0])
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert lines == {"first": ([1, 2, 3], [50, 30, 20]), "second": ([1, 2], [75, 25])}
    assert axes.get_xlabel() == "routed heads, the most used first"
