"""Cost over multi-head attention of the same width, against the length; and bytes of cache a token."""

from headcount.bench.macs import grid
from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots.axes import Axis, bars, panel
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Picture,
    Scale,
    spread,
    ticks,
)

LENGTHS = [2**power for power in range(4, 15)]
DENSE, *SPARSE = papers.LAYERS
COLOURS = (BLUE, SKY, VERMILLION, ORANGE, VERMILLION, GREEN, PURPLE)
WIDTH = "d_m=512"
LEFT, RIGHT = 180, 700
SWEEP = f"{papers.LAYERS['MoA 8K8E128D']} {WIDTH} T={','.join(map(str, LENGTHS))}"
COMMAND = f"python -m bench.macs --grid '{SWEEP}' --counter closed-form"


def over_mha(facts: Facts) -> Picture:
    """Two panels, since the widest experts cost several times as much as all others."""
    dense = _macs(DENSE)[""]
    lines = {}
    for colour, name in zip(COLOURS, SPARSE, strict=True):
        for form, macs in _macs(name).items():
            dash = "5 3" if form == ", ideal" else ""
            lines[name + form] = (colour, dash, [a / b for a, b in zip(macs, dense, strict=True)])
    out = Picture("Cost over multi-head attention, by the length of the input", ABOUT, 620)
    out.head("MACs of a layer over those of MHA with 8 heads, d_m = 512, S = T; the closed forms, exact")
    wide = {name: line for name, line in lines.items() if max(line[2]) > 3}
    _panel(out, wide, 84, 234)
    _panel(out, {name: line for name, line in lines.items() if name not in wide}, 276, 570)
    return out


def _macs(name: str) -> dict[str, list[int]]:
    """MACs of a layer at every length, by its form: "" for one that has one only."""
    found = grid.parse(f"{papers.LAYERS[name]} {WIDTH} T={','.join(map(str, LENGTHS))}")
    cases = [grid.case_at(found.variant, point) for point in found.points()]
    if not cases[0].ideal:
        return {"": [case.ledger.macs for case in cases]}
    return {
        ", as released": [case.ledger.macs for case in cases],
        ", ideal": [case.ideal.ledger.macs for case in cases],
    }


def _panel(out: Picture, lines: dict[str, tuple[str, str, list[float]]], top: float, bottom: float) -> None:
    values = [value for *_, ratios in lines.values() for value in ratios]
    marks = ticks([*values, 1] if min(values) < 1 else values)
    x = Scale(LENGTHS[0], LENGTHS[-1], LEFT, RIGHT, log=True)
    # room for labels below the lowest line
    y = Scale(marks[0] - 0.06 * (marks[-1] - marks[0]), marks[-1], bottom, top)
    lengths = [(T, f"{T:,}") for T in LENGTHS[::2]]
    panel(out, Axis(x, lengths, "T, tokens" if bottom > 300 else ""), Axis(y, [], ""))
    for value in marks:
        out.line(LEFT, y(value), RIGHT, y(value), colour=INK if value == 1 else "#d8dee4")
        out.text(RIGHT + 6, y(value) + 4, f"{value:g}" + (" = MHA" if value == 1 else ""), colour=MUTED, size=11)
    places = spread([y(ratios[0]) for *_, ratios in lines.values()], 14)
    for (name, (colour, dash, ratios)), place in zip(lines.items(), places, strict=True):
        points = [(x(T), y(ratio)) for T, ratio in zip(LENGTHS, ratios, strict=True)]
        out.path(points, colour=colour, dash=dash)
        out.line(points[0][0] - 4, place, *points[0], colour=colour, wide=0.6)
        out.text(LEFT - 8, place + 4, name.replace(" key/value", " kv"), colour=colour, anchor="end", size=11)


def cache(facts: Facts) -> Picture:
    """Bars of the bytes that one more token adds, of layers and of models."""
    layers = {
        name: facts.layer_accounts(f"{sizes} {WIDTH} T=128", ("kv_token_bytes",))[0]["kv_token_bytes"]
        for name, sizes in papers.LAYERS.items()
    }
    models = {}
    for names, length in ((papers.TRANSLATION, 128), (papers.LANGUAGE, 2048)):
        for row in facts.model_accounts(names, length, ("kv_token_bytes",)).rows:
            models[row.values["row"]] = row.values["kv_token_bytes"]
    models = {name: size for name, size in models.items() if not name.endswith(", ideal")}
    out = Picture("Bytes that one more token adds to the cache", ABOUT_CACHE, 150 + 22 * (len(layers) + len(models)))
    out.head(f"keys and values of one sequence, {facts.element_bytes} bytes a number; MoH's ideal stores as much")
    top = 76.0
    for said, found, colour in (
        ("a layer of d_m = 512", layers, BLUE),
        ("a whole model, one target token", models, GREEN),
    ):
        x = Scale(0, max(found.values()), 210, 640)
        out.text(16, top, said, bold=True)
        top = bars(out, [(n, size, f"{size:,}", colour) for n, size in found.items()], x, top + 10, 22) + 30
    return out


ABOUT = (
    "Lines of the ratio to multi-head attention over the length from 16 to 16,384 tokens. Layers whose inner width is "
    "the model's come near 1 as the scores take over; those with twice or eight times that width cost as much more."
)
ABOUT_CACHE = (
    "Bars of cache bytes a token: least in layers with one key/value head, as MoA's, most in multi-head attention and "
    "in MoH, which stores every head."
)
OVER_MHA, CACHE = Plot("cost_over_mha.svg", ABOUT, over_mha), Plot("cache.svg", ABOUT_CACHE, cache)
PLOTS = (OVER_MHA, CACHE)
