"""Measured ratios of latencies with their intervals: the routing overhead, and where skipping heads pays."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headcount.bench.records import Interval, LatencyRecord
from headcount.reports import latency
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

COLOURS = style.COLOURS[:6]
LINES = ("-", "--", ":", "-.")
"""Lines that are told apart without colour."""


def overheads(records: Sequence[LatencyRecord]) -> dict[str, dict[str, Interval]]:
    """Return the routing overhead of forward passes by timing case and implementation."""
    cases: dict[str, dict[str, Interval]] = {}
    shown = {row.cell for row in latency.headline_rows(records) if row.which == "forward"}
    for row in sorted(records, key=lambda row: (row.name, row.seq_len or 0)):
        if row.subject == "layer" and row.overhead and row.cell in shown:
            case = f"{row.name.partition('-')[2]}, T {row.seq_len:,}"
            cases.setdefault(case, {})[row.implementation_used or row.implementation] = row.overhead
    return cases


def _draw(
    title: str,
    about: str,
    data: dict[str, Any],
    height: Callable[[Any], float],
    draw_panel: Callable,
    width: float = style.WIDTH,
):
    """Draw a panel for each device; the lines below the title name each kind of device without measurements."""
    missing = [f"{kind.upper()}: not measured" for kind, devices in data.items() if not devices]
    devices = [device for found in data.values() for device in found.items()]
    figure, panels = style.panels(
        title, "\n".join([about, *missing]), [height(own) for _, own in devices] or [1], width
    )
    for axes, (device, own) in zip(panels, devices, strict=False):
        axes.set_title(device, color=style.INK, fontweight="bold")
        draw_panel(axes, own)
    return figure


def draw_overheads(data: dict[str, Any]):
    """Draw each implementation of each measured timing case."""
    about = "time of a forward pass over that of dense multi-query attention of the same K and D, with 95 % intervals"
    return _draw(
        "Routing overhead of mixture of attention heads",
        about,
        data,
        lambda cases: 0.16 * sum(len(own) + 1 for own in cases.values()) + 0.6,
        _overhead_panel,
    )


def _overhead_panel(axes, cases: dict[str, dict[str, Interval]]) -> None:
    implementations = list(dict.fromkeys(name for own in cases.values() for name in own))
    line, middles = 0, []
    for own in cases.values():
        for y, (name, ratio) in enumerate(own.items(), line):
            colour = COLOURS[implementations.index(name) % len(COLOURS)]
            axes.errorbar(ratio["value"], y, xerr=_errors([ratio]), **_marks(colour))
            style.label(axes, (ratio["high"], y), f"{name} {ratio['value']:.2f}", colour)
        middles.append(line + (len(own) - 1) / 2)
        line += len(own) + 1
    axes.set_xscale("log")
    most = max(ratio["high"] for own in cases.values() for ratio in own.values())
    ticks = [tick for tick in (1, 1.5, 2, 3, 5, 10, 20) if tick <= most]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.margins(y=0.03)
    style.label_rows(axes, middles, cases)
    axes.axvline(1, color=style.MUTED, linewidth=1)


def draw_break_even(data: dict[str, Any]):
    """Draw time over that of dense attention as lines over the share of heads."""
    about = (
        "time of what skips heads over fused attention of every head,\n"
        "with 95 % intervals: skipping is faster where it is below 1.\n"
        "32x64: 32 heads of width 64. A diamond: where both are even"
    )
    return _draw(
        "MoH: where skipping heads pays",
        about,
        data,
        lambda _: 3.1,
        _break_even_panel,
        width=style.NARROW,
    )


def _break_even_panel(axes, lines: dict[str, dict[int, Interval]]) -> None:
    """Draw a line for each shape, named at its end, with its crossing."""
    ends = []
    shares = sorted({share for points in lines.values() for share in points})
    for number, (name, points) in enumerate(lines.items()):
        # side by side: intervals at one share would hide one another
        colour, aside = COLOURS[number % len(COLOURS)], 0.5 * ((len(lines) - 1) / 2 - number)
        own, ratios = zip(*sorted(points.items(), reverse=True), strict=True)
        at, values = [share + aside for share in own], [ratio["value"] for ratio in ratios]
        line = LINES[number % len(LINES)]
        axes.errorbar(at, values, yerr=_errors(ratios), linestyle=line, linewidth=1.4, **_marks(colour))
        crossing = latency.crossing_share(dict(zip(own, values, strict=True)))
        text = name.removesuffix(", forward")
        if crossing is not None:
            axes.plot(
                crossing + aside, 1, "D", color=colour, markersize=6, markeredgecolor=axes.get_facecolor(), zorder=3
            )
            text += f"\neven at {crossing:.0f} %"
        ends.append((at[-1], values[-1], text, colour))
    axes.set_xlim(min(shares) - 2, max(*shares, 100) + 3)
    axes.axhline(1, color=style.MUTED, linewidth=1)
    axes.set_xticks(shares, [f"{share} %" for share in shares])
    axes.set_xlabel("heads that a token uses")
    axes.set_ylabel("time over dense attention")
    axes.invert_xaxis()
    style.label_ends(axes, ends, gap=0.14)


def _errors(ratios: Sequence[Interval]) -> list[list[float]]:
    """Return the distances from each value down to its interval's low end and up to its high end."""
    return [[abs(ratio["value"] - ratio[end]) for ratio in ratios] for end in ("low", "high")]


def _marks(colour: str) -> dict[str, Any]:
    return {"marker": "o", "markersize": 4, "color": colour, "elinewidth": 1.6}


ABOUT_OVERHEAD = (
    "Points with intervals: the fastest implementation of each layer is near 1, the released loop well above."
)
ABOUT_BREAK_EVEN = (
    "Lines of a ratio of latencies over the share of heads: they cross 1 where skipping heads starts to pay."
)
OVERHEAD = Plot("overhead", ABOUT_OVERHEAD, partial(latency.results, find=overheads), draw_overheads)
BREAK_EVEN = Plot("break_even", ABOUT_BREAK_EVEN, partial(latency.results, find=latency.ratios), draw_break_even)
