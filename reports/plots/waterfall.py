"""From Transformer big to MoA Big, part by part."""

from headcount.formulas import conventions
from headcount.formulas.ledger import Entry
from headcount.reports.facts import Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import BLUE, GREEN, MUTED, VERMILLION, Picture, Scale, ticks

HIGH, TOP = 32, 72


def _part(entry: Entry) -> str:
    if conventions.router(entry):
        return "router"
    if entry.kind in ("scores", "values"):
        return f"attention's {entry.kind}"
    if conventions.attention(entry):
        return "attention's projections"
    return "feed-forward" if conventions.feed_forward(entry) else "vocabulary projection"


def big_models(facts: Facts) -> Picture:
    """Bars that float from one total to the other. ArithmeticError where the parts are not the whole difference."""
    first, last = (facts.ledger(name) for name in (TRANSFORMER_BIG, BIG))
    before, after = first.group(_part), last.group(_part)
    parts = {name: after.get(name, 0) - before.get(name, 0) for name in (*before, *(after.keys() - before.keys()))}
    if first.macs + sum(parts.values()) != last.macs:
        raise ArithmeticError("the parts do not add up to the difference")
    out = Picture("Where MoA Big saves against Transformer big", ABOUT, TOP + HIGH * (len(parts) + 2) + 40)
    out.head("MACs of one pass at the paper's lengths, exact, in M")
    marks = ticks([0, first.macs / 1e6])
    x = Scale(marks[0], marks[-1], 190, 690)
    bottom = TOP + HIGH * (len(parts) + 2)
    for value in marks:
        out.line(x(value), TOP - 4, x(value), bottom)
        out.text(x(value), bottom + 18, f"{value:,g}", anchor="middle", colour=MUTED, size=11)
    _bar(out, x, 0, "Transformer big", 0, first.macs / 1e6, BLUE, f"{first.macs / 1e6:,.0f}")
    level = first.macs / 1e6
    for number, (name, change) in enumerate(sorted(parts.items(), key=lambda pair: pair[1]), 1):
        y = TOP + HIGH * number
        out.line(x(level), y - 6, x(level), y + 6, colour=MUTED, dash="2 2")
        after_it = level + change / 1e6
        said = f"{'+' if change > 0 else chr(0x2212)}{abs(change) / 1e6:,.1f}"
        _bar(out, x, number, name, level, after_it, VERMILLION if change > 0 else GREEN, said)
        level = after_it
    _bar(out, x, len(parts) + 1, "MoA Big", 0, last.macs / 1e6, BLUE, f"{last.macs / 1e6:,.0f}")
    return out


def _bar(out: Picture, x: Scale, number: int, name: str, start: float, end: float, colour: str, said: str) -> None:
    y, (low, high) = TOP + HIGH * number, sorted((start, end))
    out.text(x.start - 8, y + HIGH / 2 + 4, name, anchor="end")
    out.rect(x(low), y + 6, max(x(high) - x(low), 1), HIGH - 12, colour=colour, title=f"{name}: {said} M")
    out.text(x(high) + 6, y + HIGH / 2 + 4, said)


ABOUT = (
    "A waterfall of bars from Transformer big down to MoA Big: the feed-forward blocks and the vocabulary projection "
    "of a narrower model save, MoA's attention costs more than the Transformer's."
)
PLOT = Plot("big_models.svg", ABOUT, big_models)
