"""Measured ratios of latencies with their intervals: the routing overhead, and where skipping heads pays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headcount.reports import latency
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

COLOURS = style.COLOURS[:6]
Ratio = Mapping[str, float]
"""``value``, ``low`` and ``high``: a ratio with its 95 % interval."""


def overheads(facts: Facts) -> dict[str, Any]:
    """Return the routing overhead by kind of device, device, timing case and implementation."""
    return _by_device(facts, _overheads_by_case)


def skipping(facts: Facts) -> dict[str, Any]:
    """Return the ratio by kind of device, device, shape with length and pass, and share of heads in percent."""
    return _by_device(facts, _shares)


def _by_device(facts: Facts, find: Callable[[Sequence[dict]], Any]) -> dict[str, Any]:
    return {
        kind: {device: found for device, rows in latency.of_type(facts, kind).items() if (found := find(rows))}
        for kind in ("cuda", "cpu")
    }


def _overheads_by_case(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Ratio]]:
    cases: dict[str, dict[str, Ratio]] = {}
    for row in records:
        if row["subject"] == "layer" and row["overhead"]:
            case = f"{row['name'].partition('-')[2]}, T {row['seq_len']:,}, {row['pass']}"
            cases.setdefault(case, {})[row["implementation_used"] or row["implementation"]] = row["overhead"]
    return cases


def _shares(records: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, Ratio]]]:
    return {
        f"{shape.partition('-')[2]}, T {seq_len:,}, {which}": sorted(own.items(), reverse=True)
        for (shape, seq_len, which), own in latency.ratios(records).items()
    }


def _draw(title: str, about: str, data: dict[str, Any], height: Callable[[Any], float], panel: Callable):
    """Draw a panel for each device; a kind of device without measurements is named in the lines below the title."""
    missing = [f"{kind.upper()}: not measured" for kind, devices in data.items() if not devices]
    devices = {name: own for found in data.values() for name, own in found.items()}
    lines = "\n".join([about, *missing])
    if not devices:
        figure, (axes,) = style.panels(title, lines, [0.1])
        axes.set_axis_off()
        return figure
    figure, panels = style.panels(title, lines, [height(own) for own in devices.values()])
    for axes, (device, own) in zip(panels, devices.items(), strict=True):
        axes.set_title(device, color=style.INK, fontweight="bold")
        panel(axes, own)
    return figure


def draw_overheads(data: dict[str, Any]):
    """Draw each implementation of each measured timing case."""
    return _draw(
        "Routing overhead of mixture of attention heads",
        "latency of a layer over dense multi-query attention of the same K and D, with 95 % intervals; 1: no overhead",
        data, lambda cases: sum(0.17 * len(own) + 0.1 for own in cases.values()) + 0.6, _overhead_panel,
    )  # fmt: skip


def _overhead_panel(axes, cases: dict[str, dict[str, Ratio]]) -> None:
    names = list(dict.fromkeys(name for own in cases.values() for name in own))
    middles, y = [], 0.0
    for own in cases.values():
        middles.append(y + (len(own) - 1) / 2)
        for name, one in own.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            _interval(axes, one["value"], y, colour, xerr=[[one["value"] - one["low"]], [one["high"] - one["value"]]])
            style.label(axes, (one["high"], y), f"{name} {one['value']:.2f}", colour)
            y += 1
        y += 0.6
    axes.set_ylim(-0.8, y - 0.6)
    style.rows(axes, middles, cases)
    axes.axvline(1, color=style.MUTED, linewidth=1)


def draw_skipping(data: dict[str, Any]):
    """Draw the ratio of each shape over the share of heads, with the share where it crosses 1."""
    return _draw(
        "MoH: where skipping heads pays",
        "latency of ragged, which skips, over fused attention of every head, with 95 % intervals; below 1 it pays.\n"
        "After each line's name: the share of heads where it crosses 1",
        data, lambda _: 3.6, _share_panel,
    )  # fmt: skip


def _share_panel(axes, lines: dict[str, list[tuple[int, Ratio]]]) -> None:
    shares = sorted({share for points in lines.values() for share, _ in points}, reverse=True)
    axes.axhline(1, color=style.MUTED, linewidth=1)
    ends = []
    for number, (name, points) in enumerate(lines.items()):
        # side by side: intervals at one share would hide one another
        colour, aside = COLOURS[number % len(COLOURS)], 0.4 * ((len(lines) - 1) / 2 - number)
        at, values = [share + aside for share, _ in points], [one["value"] for _, one in points]
        below, above = ([abs(one["value"] - one[end]) for _, one in points] for end in ("low", "high"))
        axes.plot(at, values, color=colour, linewidth=1.2)
        _interval(axes, at, values, colour, yerr=[below, above])
        crossing = latency.crossing({share: one["value"] for share, one in points})
        ends.append((at[-1], values[-1], f"{name}: {crossing or 'one share only'}", colour))
    axes.set_xlim(shares[0] + 2, shares[-1] - 2)
    axes.set_xticks(shares, [f"{share} %" for share in shares])
    axes.set_xlabel("heads that a token uses")
    style.label_ends(axes, ends)


def _interval(axes, x: Any, y: Any, colour: str, **errors: Any) -> None:
    axes.errorbar(x, y, fmt="o", markersize=4, color=colour, elinewidth=1.6, **errors)


ABOUT_OVERHEAD = (
    "Points with intervals, by layer, length, pass and implementation, a device below another; what was not measured "
    "is named. On a CPU the fastest implementation of each layer lies near 1, the released loop well above it."
)
ABOUT_SKIP = (
    "Lines of a ratio of latencies over the share of heads, a device below another; what was not measured is named. On "
    "a CPU they cross 1 where about three quarters of the heads are used."
)
OVERHEAD = Plot("overhead", ABOUT_OVERHEAD, overheads, draw_overheads)
SKIPPING = Plot("break_even", ABOUT_SKIP, skipping, draw_skipping)
