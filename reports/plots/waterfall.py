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
    """Return the first total in MACs, and how much each part differs. ArithmeticError where the parts do not add up."""
    first, last = (facts.ledger(name) for name in (TRANSFORMER_BIG, BIG))
    before, after = first.group(_part), last.group(_part)
    parts = {name: after.get(name, 0) - before.get(name, 0) for name in before | after}
    if first.macs + sum(parts.values()) != last.macs:
        raise ArithmeticError("the parts do not add up to the difference")
    return {"first": first.macs, "parts": sorted(parts.items(), key=lambda part: part[1])}


def draw(data: dict[str, Any]):
    """Draw bars that float from one total to the other."""
    bars, level = [("Transformer big", 0, data["first"], style.MHA)], data["first"]
    for name, change in data["parts"]:
        bars.append((name, level, change, style.AMBER if change > 0 else style.GREEN))
        level += change
    bars.append(("MoA Big", 0, level, style.MOA))
    figure, (axes,) = style.panels(
        "Where MoA Big saves against Transformer big",
        "MACs of one pass at the paper's lengths, exact, in millions",
        [0.3 * len(bars) + 0.4],
    )
    for y, (_, start, size, colour) in enumerate(bars):
        start, size = start / 1e6, size / 1e6
        axes.barh(y, size, left=start, height=0.65, color=colour)
        text = f"{size:+,.1f}".replace("-", "\N{MINUS SIGN}") if start else f"{size:,.0f}"
        style.label(axes, (max(start, start + size), y), text, style.INK)
        if y < len(bars) - 1:
            axes.plot([start + size] * 2, [y, y + 1], color=style.MUTED, linewidth=0.6, zorder=0.9)
    style.rows(axes, range(len(bars)), [name for name, *_ in bars])
    axes.set_xlim(0, 2400)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


ABOUT = (
    "A waterfall of bars from Transformer big down to MoA Big: the feed-forward blocks and the vocabulary projection "
    "of a narrower model save, MoA's attention costs more than the Transformer's."
)
PLOT = Plot("big_models", ABOUT, data, draw)
