"""The MACs of Transformer big and of MoA Big, and the difference part by part."""

from typing import Any

from headcount.formulas import conventions
from headcount.formulas.ledger import Entry
from headcount.reports.facts import Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot


def _part(entry: Entry) -> str:
    if conventions.router(entry):
        return "router"
    if entry.kind in ("scores", "values"):
        return f"attention {entry.kind}"
    if conventions.attention(entry):
        return "attention projections"
    return "feed-forward" if conventions.feed_forward(entry) else "vocabulary projection"


def data(facts: Facts) -> dict[str, Any]:
    """Return both totals in MACs, and the difference of each part. ArithmeticError where the parts do not add up."""
    first, last = (facts.ledger(name) for name in (TRANSFORMER_BIG, BIG))
    before, after = first.group(_part), last.group(_part)
    parts = {name: after.get(name, 0) - before.get(name, 0) for name in before | after}
    if first.macs + sum(parts.values()) != last.macs:
        raise ArithmeticError("the parts do not add up to the difference")
    return {"first": first.macs, "last": last.macs, "parts": sorted(parts.items(), key=lambda part: part[1])}


def draw(data: dict[str, Any]):
    """Draw bars that float from one total to the other."""
    names, changes = zip(*data["parts"], strict=True)
    starts = [data["first"] + sum(changes[:i]) for i in range(len(changes))]
    widths = [value / 1e6 for value in (data["first"], *changes, data["last"])]
    texts = [f"{widths[0]:,.0f}", *(f"{w:+,.1f}".replace("-", "\N{MINUS SIGN}") for w in widths[1:-1])]
    figure, (axes,) = style.panels(
        "Where MoA Big saves against Transformer big",
        "MACs of one pass at the paper's lengths, exact, in millions",
        [0.3 * len(widths)],
        left=1.75,
    )
    colours = [style.MHA, *(style.AMBER if change > 0 else style.GREEN for change in changes), style.MOA]
    ends = [0, *(start / 1e6 for start in starts), 0]
    axes.barh(range(len(widths)), widths, left=ends, height=0.65, color=colours)
    for row, (start, width, text) in enumerate(zip(ends, widths, [*texts, f"{widths[-1]:,.0f}"], strict=True)):
        style.label(axes, (max(start, start + width), row), text, style.INK)
    for row, start in enumerate([*ends[1:-1], widths[-1]]):
        axes.plot([start, start], [row, row + 1], color=style.MUTED, linewidth=0.6, zorder=0.9)
    style.rows(axes, range(len(widths)), ["Transformer big", *names, "MoA Big"])
    axes.set_xlim(0, 2400)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


ABOUT = (
    "A waterfall of bars from Transformer big down to MoA Big: the feed-forward blocks and the vocabulary projection "
    "of a narrower model save, MoA's attention costs more than the Transformer's."
)
PLOT = Plot("big_models", ABOUT, data, draw)
