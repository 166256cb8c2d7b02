"""MoH's ideal against the share of heads that a token uses."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots.axes import Axis, panel
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import BLUE, GREEN, MUTED, ORANGE, PURPLE, READABLE, VERMILLION, Picture, Scale, spread

COLOURS = {"LLM": BLUE, "LLaMA3": VERMILLION, "DiT": GREEN, "ViT": READABLE[ORANGE]}
"""By the first word of a model's name; PURPLE for another."""
PANELS = {
    "attention": ("ideal attention, % of the dense model's", range(50, 101, 10)),
    "whole": ("ideal model, % of the dense model", range(80, 101, 5)),
}
TOP, HIGH, BETWEEN = 84, 250, 78
Lines = Mapping[str, Sequence[Mapping[str, Any]]]


def ideal(facts: Facts) -> Picture:
    """A line for each model from all heads to the fewest printed, and the diagonal, a part as large as the heads'."""
    rows = papers.models(facts)
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        # all but the share at its end
        model = row["row"].removeprefix("MoH-").removesuffix(" %").rstrip("0123456789").strip()
        lines.setdefault(model if row["row"].endswith("%") else row["row"].removeprefix("MoH-"), []).append(row)
    out = Picture("What MoH could save, by the share of heads that a token uses", ABOUT, TOP + 2 * HIGH + BETWEEN + 46)
    out.head("ideal: nothing computed of a head for a token that does not use it, but its keys and values")
    for number, (key, (name, parts)) in enumerate(PANELS.items()):
        _panel(out, key, name, parts, lines, TOP + number * (HIGH + BETWEEN))
    return out


def _panel(out: Picture, key: str, name: str, parts: range, lines: Lines, top: float) -> None:
    x = Scale(100, 50, 56, 600)
    y = Scale(parts[0], 100, top + HIGH, top)
    shares = [(share, f"{share} %") for share in (100, 90, 80, 75, 60, 50)]
    panel(out, Axis(x, shares, "heads that a token uses"), Axis(y, [(v, str(v)) for v in parts], name))
    out.line(x(100), y(100), x(parts[0]), y(parts[0]), colour=MUTED, dash="4 3")
    out.text(x(parts[0]) - 46, y(parts[0]) - 6, "the part of the heads", colour=MUTED, anchor="end", size=11)
    ends = {}
    for model, rows in lines.items():
        colour = COLOURS.get(model.partition("-")[0], PURPLE)
        points = [(100.0, 100.0), *sorted(((float(r["activated"]), float(r[key])) for r in rows), reverse=True)]
        out.path([(x(share), y(part)) for share, part in points], colour=colour)
        for share, part in points[1:]:
            out.dot(
                x(share), y(part), colour=colour, title=f"{model}, {share:.1f} % of heads: {part:.2f} %", radius=3.5
            )
        ends[model] = (x(points[-1][0]), y(points[-1][1]), colour, points[-1][1])
    places = spread([y for _, y, _, _ in ends.values()], 14)
    for (model, (at, level, colour, part)), place in zip(ends.items(), places, strict=True):
        out.path([(at + 5, level), (604, place - 1)], colour=colour, wide=0.6, dash="1 3")
        out.text(608, place + 3, f"{model} {part:.1f}", colour=colour, size=11)


ABOUT = (
    "Two panels of lines from all heads to half of them. The ideal attention lies above the diagonal in every model, "
    "since keys, values and routers stay; the whole model saves less still."
)
PLOT = Plot("moh_share.svg", ABOUT, ideal)
