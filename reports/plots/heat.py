"""The heat map of counters: spelling by spelling, on cpu and on meta, the error in percent."""

from headcount.reports import audit
from headcount.reports.facts import Facts
from headcount.reports.heat_map import Cell
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import GRID, INK, MUTED, Picture

LEFT, TOP, WIDE, HIGH, GAP = 324, 96, 40, 16, 4
FAMILIES = {"mha": "multi-head attention", "moa": "mixture of attention heads", "vocabulary": "vocabulary projection"}
FAILED = "#b4bcc5"
TOO_MANY = ((0.0, "#fbe3d6"), (1.0, "#f5c4a8"), (3.0, "#f0a37a"), (10.0, "#e47f45"), (30.0, "#d55e00"))
TOO_FEW = ((0.0, "#dcebf7"), (1.0, "#b9d7ee"), (3.0, "#8fbfe3"), (10.0, "#4a9ad1"), (30.0, "#0072b2"))
"""From an error of so many percent on, this colour."""


def heat(facts: Facts) -> Picture:
    """The map. A cell of an exact reading is empty."""
    found = audit.found(facts)
    rows = {cell.spelling: cell.written for cell in found}
    counters, devices = (list(dict.fromkeys(getattr(cell, key) for cell in found)) for key in ("counter", "device"))
    places = {
        (counter, device): LEFT + (i * len(devices) + j) * WIDE + i * GAP
        for i, counter in enumerate(counters)
        for j, device in enumerate(devices)
    }
    right = max(places.values()) + WIDE
    families = list(dict.fromkeys(name.partition("-")[0] for name in rows))
    height = TOP + HIGH * (len(rows) + len(families)) + 54
    out = Picture("What counters make of the same layer", f"{ABOUT} {audit.in_words(facts)}", height)
    out.head("error in % of the exact count, by how the layer is written (rows), counter and device (columns)")
    for counter in counters:
        middle = (places[counter, devices[0]] + places[counter, devices[-1]] + WIDE) / 2
        out.text(middle, TOP - 24, _short(counter), anchor="middle", bold=True, size=11)
        for device in devices:
            out.text(places[counter, device] + WIDE / 2, TOP - 8, device, anchor="middle", colour=MUTED, size=11)
    own = {(cell.spelling, cell.counter, cell.device): cell for cell in found}
    y, family = TOP, None
    for spelling, written in rows.items():
        if spelling.partition("-")[0] != family:
            family = spelling.partition("-")[0]
            out.line(16, y + 1, right, y + 1)
            out.text(16, y + HIGH - 4, FAMILIES.get(family, family), bold=True, size=11)
            y += HIGH
        out.text(LEFT - 8, y + HIGH - 4, written, anchor="end", size=11)
        for (counter, device), x in places.items():
            _cell(out, own[spelling, counter, device], x, y)
        y += HIGH
    _legend(out, y + 18)
    return out


def _short(counter: str) -> str:
    return {"right": "headcount", "ptflops-pytorch": "ptflops", "ptflops-aten": "ptflops aten"}.get(counter, counter)


def _cell(out: Picture, cell: Cell, x: float, y: float) -> None:
    said = f"{cell.counter} of {cell.spelling} on {cell.device}: "
    said += f"{cell.reason[:60]}..." if cell.error is None else f"{cell.difference:+,} of {cell.exact:,}"
    out.rect(x + 0.5, y + 0.5, WIDE - 1, HIGH - 1, colour=_colour(cell), title=said, edge=GRID)
    if cell.error is None or cell.difference:
        pale = cell.error is not None and abs(cell.error) >= 30
        out.text(x + WIDE / 2, y + 12, error(cell), anchor="middle", size=10, colour="#ffffff" if pale else INK)


def error(cell: Cell) -> str:
    """The error as a cell has it, in percent; ``x`` where the call ends with an error."""
    if cell.error is None:
        return "x"
    size = abs(float(cell.error))
    sign = "+" if cell.error > 0 else "\N{MINUS SIGN}"
    if size < 0.05:
        return f"{sign}{size:.3f}"
    return f"{sign}{size:.0f}" if size >= 9.95 else f"{sign}{size:.1f}"


def _colour(cell: Cell) -> str:
    if cell.error is None:
        return FAILED
    if cell.difference == 0:
        return "#ffffff"
    steps = TOO_MANY if cell.error > 0 else TOO_FEW
    return [colour for least, colour in steps if abs(cell.error) >= least][-1]


def _legend(out: Picture, y: float) -> None:
    x = LEFT
    for steps, said in ((TOO_FEW, "too few"), (TOO_MANY, "too many")):
        for _, colour in steps:
            out.rect(x, y, 14, 12, colour=colour)
            x += 14
        out.text(x + 6, y + 10, said, size=11)
        x += 78
    out.rect(x, y, 14, 12, colour="#ffffff", edge=GRID)
    out.text(x + 20, y + 10, "exact", size=11)
    out.rect(x + 70, y, 14, 12, colour=FAILED)
    out.text(x + 90, y + 10, "error", size=11)
    out.text(16, y + 10, "headcount's own count is exact wherever it runs", size=11, colour=MUTED)


ABOUT = (
    "A table of colours: ways of writing an attention layer, by counter and device. ptflops' default backend is off in "
    "most rows, most of all on meta; fused attention and grouped products are missed by several counters; headcount's "
    "column is empty, which means exact."
)
PLOT = Plot("counters.svg", ABOUT, heat)
