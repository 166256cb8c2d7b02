"""Plots of mixture of attention heads (MoA): printed against computed MACs, big models by part, cost by quality."""

from itertools import accumulate, pairwise
from typing import Any

from headcount.formulas.published.figures import Row
from headcount.formulas.published.tables import PublishedTable
from headcount.reports import papers
from headcount.reports.explorer.parts import part
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots import style
from headcount.reports.plots.figures import COLOURS
from headcount.reports.plots.plot import Plot

Entry = tuple[str, float, float, str]
"""A row's name, how far MACs by the table's rule and exact MACs are from the printed ones in percent, its verdict."""


def printed_data(facts: Facts) -> dict[str, list[Entry]]:
    """Return an entry for each row with printed MACs, by table."""
    return {
        table.place.partition(",")[0]: [_entry(facts, table, row) for row in table.rows if "macs" in row.printed]
        for table in facts.tables.values()
        if table.paper == COUNTED
    }


def _entry(facts: Facts, table: PublishedTable, row: Row) -> Entry:
    column, ledger = table.column("macs"), facts.ledger(row.target)
    fitting = column.interval(row.printed["macs"])
    # the middle of the integers that round to the printed number
    printed = int(fitting.low + fitting.high - 1) / 2
    rule, exact = (100 * (macs / printed - 1) for macs in (ledger.total_under(column.multiplicity), ledger.macs))
    return row.name, rule, exact, facts.verdicts(table.name)[row.name][0]


def draw_printed(data: dict[str, list[Entry]]):
    """Draw a dot for what the rule gives and a ring for the exact count, a panel for each table."""
    figure, panels = style.panels(
        "MACs of Tables 1-3 against what the paper prints",
        "in % of the printed number: a dot under the table's rule, coloured by its verdict; a ring for the exact count",
        [0.2 * (len(entries) + 2) for entries in data.values()],
    )
    for axes, (place, entries) in zip(panels, data.items(), strict=True):
        axes.set_title(place, color=style.INK, fontweight="bold")
        axes.axvline(0, color=style.MUTED, linewidth=1)
        axes.set_xlim(-20, 20)
        axes.set_xticks(range(-20, 21, 10), ["\N{MINUS SIGN}20 %", "\N{MINUS SIGN}10 %", "printed", "+10 %", "+20 %"])
        axes.tick_params(labelbottom=axes is panels[-1])
        for y, (_, rule, exact, status) in enumerate(entries):
            axes.plot(exact, y, "o", markersize=7, markerfacecolor="none", markeredgecolor=style.MUTED)
            axes.plot(rule, y, "o", markersize=4.5, color=COLOURS[status])
            style.label(axes, (1, y), status, COLOURS[status], xycoords=("axes fraction", "data"))
        axes.set_ylim(-0.6, len(entries) - 0.4)
        style.label_rows(axes, range(len(entries)), [name for name, *_ in entries])
    return figure


ABOUT_PRINTED = "Dots in percent off the printed MACs, a row for each model of Tables 1 to 3: reproduced rows lie at 0."
PRINTED = Plot("printed", ABOUT_PRINTED, printed_data, draw_printed)


def part_data(facts: Facts) -> dict[str, Any]:
    """Return the MACs of Transformer big and what each part of MoA Big adds. ArithmeticError if that is not the sum."""
    first, last = (facts.ledger(name) for name in (TRANSFORMER_BIG, BIG))
    before, after = first.group(part), last.group(part)
    parts = {name: macs - before.get(name, 0) for name, macs in after.items() if macs}
    if first.macs + sum(parts.values()) != last.macs:
        raise ArithmeticError("the parts do not add up to the difference")
    return {"first": first.macs, "parts": sorted(parts.items(), key=lambda part: part[1])}


def draw_parts(data: dict[str, Any]):
    """Draw a waterfall from Transformer big to MoA Big."""
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


ABOUT_PARTS = "A waterfall: MoA Big saves in feed-forward and vocabulary projection, and its attention costs more."
BIG_MODELS = Plot("big_models", ABOUT_PARTS, part_data, draw_parts)


SCALES = {"macs": "MACs, exact, millions", "params": "parameters, millions"}
MEASURES = ("BLEU En-De", "PPL")
ROUTED = {True: style.MOA, False: style.MHA}
"""Colour by whether the attention is a mixture of attention heads."""


def quality_data(facts: Facts) -> list[dict]:
    """Return the points of each measure over each cost: rows at one place are one point with all their names."""
    found = papers.rated(facts)
    panels = []
    for measure in MEASURES:
        for cost in SCALES:
            points: dict[tuple[float, float, bool], list[str]] = {}
            for one in found:
                if measure in one["quality"]:
                    at, name = (one[cost], float(one["quality"][measure]), one["routed"]), _short(one["row"])
                    names = points.setdefault(at, [])
                    names += [name] * (name not in names)
            panels.append({"measure": measure, "cost": cost, "points": [[*at, names] for at, names in points.items()]})
    return panels


def _short(row: str) -> str:
    """Return a row's name without its reference, and without the words that its colour says."""
    return row.partition(" (")[0].removeprefix("MoA ").replace(":", "")


def draw_quality(data: list[dict]):
    """Draw a panel for each measure and cost."""
    figure, panels = style.panels(
        "Cost against the papers' quality",
        "cheaper and better: up and left for BLEU, down and left for perplexity (PPL)",
        [3.1] * len(data),
    )
    for axes, panel in zip(panels, data, strict=True):
        axes.set(xmargin=0.1, ymargin=0.12, xlabel=SCALES[panel["cost"]])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(panel["measure"])
        style.label_points(axes, [(x / 1e6, y, ", ".join(names), ROUTED[moa]) for x, y, moa, names in panel["points"]])
    for name, colour in (("mixture of attention heads", style.MOA), ("others", style.MHA)):
        panels[0].plot([], [], "o", color=colour, markersize=5, label=name)
    figure.legend(loc="upper right")
    return figure


ABOUT_QUALITY = "BLEU of Tables 1 and 3 and perplexity of Table 2 over MACs and over parameters, a point for each row."
QUALITY = Plot("cost_against_quality", ABOUT_QUALITY, quality_data, draw_quality)
