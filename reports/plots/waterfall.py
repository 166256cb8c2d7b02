"""The MACs of Transformer big and of MoA Big, and the difference part by part."""

from itertools import accumulate, pairwise
from typing import Any

from headcount.reports.explorer.tables import part
from headcount.reports.facts import Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot


def data(facts: Facts) -> dict[str, Any]:
    """Return the first total in MACs, and how much each part differs. ArithmeticError where the parts do not add up."""
    first, last = (facts.ledger(name) for name in (TRANSFORMER_BIG, BIG))
    before, after = first.group(part), last.group(part)
    parts = {name: macs - before.get(name, 0) for name, macs in after.items() if macs}
    if first.macs + sum(parts.values()) != last.macs:
        raise ArithmeticError("the parts do not add up to the difference")
    return {"first": first.macs, "parts": sorted(parts.items(), key=lambda part: part[1])}


def draw(data: dict[str, Any]):
    """Draw bars that float from one total to the other."""
    parts = [("Transformer big", data["first"]), *data["parts"]]
    levels = [0, *accumulate(change / 1e6 for _, change in parts)]
    names = [*(name for name, _ in parts), "MoA Big"]
    figure, (axes,) = style.panels(
        "Where MoA Big saves against Transformer big",
        "MACs of one pass at the paper's lengths, exact, in millions",
        [0.3 * len(names) + 0.4],
    )
    for y, (start, end) in enumerate([*pairwise(levels), (0, levels[-1])]):
        total = {0: style.MHA, len(parts): style.MOA}.get(y)
        axes.barh(y, end - start, left=start, height=0.65, color=total or (style.AMBER if end > start else style.GREEN))
        text = f"{end:,.0f}" if total else f"{end - start:+,.1f}".replace("-", "\N{MINUS SIGN}")
        style.label(axes, (max(start, end), y), text, style.INK)
    axes.vlines(levels[1:], range(len(parts)), range(1, len(names)), color=style.MUTED, linewidth=0.6, zorder=0.9)
    style.label_rows(axes, range(len(names)), names)
    axes.set_xlim(0, 2400)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


ABOUT = "A waterfall: MoA Big saves in feed-forward and vocabulary projection, and its attention costs more."
PLOT = Plot("big_models", ABOUT, data, draw)
