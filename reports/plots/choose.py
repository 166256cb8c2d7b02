"""Plots of the page about choosing: cost by length, models of a budget search, and rooflines of named hardware."""

from typing import Any

from headcount.bench.hardware import HARDWARE
from headcount.bench.macs import grid
from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

LENGTHS = [2**power for power in range(4, 15)]
DENSE, *SPARSE = papers.LAYERS
LAYER_COLOURS = dict(zip(SPARSE, (
    style.BLUE, style.GREY, style.VERMILLION, style.AMBER, style.INK, style.GREEN, style.PURPLE,
), strict=True))  # fmt: skip
OVER = f"d_m=512 T={','.join(map(str, LENGTHS))}"
RELEASED, IDEAL = ", as released", ", ideal"


def cost_data(facts: Facts) -> dict[str, list[float]]:
    """Return the ratio to multi-head attention at each of LENGTHS, by layer and form."""
    dense = layer_macs(DENSE)[""]
    return {
        name + form: [a / b for a, b in zip(own, dense, strict=True)]
        for name in SPARSE
        for form, own in layer_macs(name).items()
    }


def layer_macs(name: str) -> dict[str, list[int]]:
    """Return the MACs of a layer at each of LENGTHS, by its form: "" for a layer with one form."""
    found = grid.parse(f"{papers.LAYERS[name]} {OVER}")
    cases = [grid.case_at(found.variant, point) for point in found.points()]
    if not cases[0].ideal:
        return {"": [case.ledger.macs for case in cases]}
    return {RELEASED: [case.ledger.macs for case in cases], IDEAL: [case.ideal.ledger.macs for case in cases]}


def draw_cost(data: dict[str, list[float]]):
    """Draw a line for each layer and form; both axes are logarithmic."""
    figure, (axes,) = style.panels(
        "Cost over multi-head attention, by the length of the input",
        "MACs of a layer over those of MHA with 8 heads, d_m = 512, S = T; closed forms, exact",
        [4.8],
    )
    axes.set(xscale="log", yscale="log", xlim=(LENGTHS[0], LENGTHS[-1]), ylim=(0.45, 9), xlabel="T, tokens")
    axes.set_xticks(LENGTHS[::2], [f"{T:,}" for T in LENGTHS[::2]])
    axes.yaxis.tick_right()
    axes.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1 = MHA", "2", "4", "8"])
    axes.minorticks_off()
    axes.axhline(1, color=style.MUTED, linewidth=1)
    ends = []
    for name, ratios in data.items():
        colour = LAYER_COLOURS[name.removesuffix(RELEASED).removesuffix(IDEAL)]
        axes.plot(LENGTHS, ratios, "--" if name.endswith(IDEAL) else "-", color=colour)
        ends.append((LENGTHS[0], ratios[0], name.replace(" key/value", " kv"), colour))
    style.label_ends(axes, ends, is_right=False, gap=0.038)
    return figure


ABOUT_COST = "Lines of the ratio to multi-head attention over the length: layers of its inner width come near 1."
OVER_MHA = Plot("cost_over_mha", ABOUT_COST, cost_data, draw_cost)


MATCHED = "transformer-big"
BYTES = (20_000, 50_000, 100_000, 200_000, 500_000)


def front_data(facts: Facts) -> dict[str, Any]:
    """Return cache bytes and parameters of the models found, and of ``MATCHED``."""
    length, ledger = facts.target_length(MATCHED), facts.ledger(MATCHED)
    (own,) = facts.model_accounts([MATCHED], length, ("kv_bytes",)).rows
    found = [row.numbers for row in facts.budget(papers.BUDGETS["moa"]).rows]
    return {
        "length": length,
        "macs": ledger.macs,
        "matched": ["Transformer big", own.accounts.values["kv_bytes"], ledger.params],
        "found": [[f"{one['K']}K{one['E']}E{one['D']}D", one["kv_bytes"], one["params"]] for one in found],
    }


def draw_front(data: dict[str, Any]):
    """Draw parameters against cache bytes; the matched model has another colour."""
    figure, (axes,) = style.panels(
        "As many MACs as Transformer big: parameters against cache",
        f"MoA models within 2 % of its {data['macs'] / 1e6:,.0f} M MACs; labels are K, E and D of the attention",
        [3.8],
    )
    points = [(*one, style.MOA) for one in data["found"]] + [(*data["matched"], style.MHA)]
    points = [(size, params / 1e6, name, colour) for name, size, params, colour in points]
    xlabel = f"cache bytes at the paper's {data['length']} tokens"
    axes.set(xscale="log", xlim=(BYTES[0], 700_000), ymargin=0.12, xlabel=xlabel)
    axes.set_xticks(BYTES, [f"{size:,}" for size in BYTES])
    axes.minorticks_off()
    axes.set_title("parameters, millions")
    style.label_points(axes, points)
    return figure


ABOUT_FRONT = "Points: the matched MoA models need less cache than Transformer big and hold as many parameters or more."
FRONT = Plot("front", ABOUT_FRONT, front_data, draw_front)


DTYPE, TOKENS = "bfloat16", 2048
CARDS = ("h200", "h100", "a100")
ON = "h200"
STEPS = {"decode_intensity": "decode step", "forward_intensity": "prefill"}
LINES = ("-", "--", ":")
"""Lines of GPUs of the same peak."""
GPU_COLOURS = (style.BLUE, style.GREEN, style.AMBER)
"""Colours by peak."""
STEP_COLOURS = {"decode step": style.VERMILLION, "prefill": style.PURPLE}


def roofline_data(facts: Facts) -> dict[str, Any]:
    """Return each GPU's name, MACs/s and bytes/s, and the models' intensities in MACs per byte."""
    rows = facts.model_accounts(papers.LANGUAGE, TOKENS, tuple(STEPS)).rows
    return {
        "hardware": {
            key: [HARDWARE[key].name, HARDWARE[key].macs_per_s[DTYPE], HARDWARE[key].bytes_per_s] for key in CARDS
        },
        "intensities": {
            step: {row.row: float(row.accounts.values[key]) for row in rows} for key, step in STEPS.items()
        },
    }


def draw_roofline(data: dict[str, Any]):
    """Draw the roofline of each GPU, and on one of them the decode step and the prefill of each model."""
    name, peak, bandwidth = data["hardware"][ON]
    figure, (axes,) = style.panels(
        f"Rooflines in {DTYPE}, from data sheets",
        f"MACs a second that {TOKENS:,} tokens of one sequence could reach at most;\nnothing measured. Points: "
        f"{len(next(iter(data['intensities'].values())))} language models on the {name}",
        [3.5],
        width=style.NARROW,
    )
    low, high, top = 0.1, 10_000, peak / 1e12
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(0.2, 6 * top))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_xlabel("arithmetic intensity, MACs per byte moved")
    axes.set_title("attainable TMAC/s")
    colours = dict(zip(dict.fromkeys(rate for _, rate, _ in data["hardware"].values()), GPU_COLOURS, strict=False))
    gpus: dict[float, list[str]] = {rate: [] for rate in colours}
    for gpu, rate, width in data["hardware"].values():
        line = LINES[len(gpus[rate])]
        gpus[rate].append(f"{gpu.removeprefix('NVIDIA ').removesuffix(' SXM')}, {width / 1e12:.3g} TB/s")
        bound = [low * width / 1e12, rate / 1e12, rate / 1e12]
        axes.plot([low, rate / width, high], bound, line, color=colours[rate], linewidth=1.6)
    for rate, names in gpus.items():
        if rate == peak:
            text, at, offset = "\ndashed: ".join(names), (peak / bandwidth, peak / 1e12), (-20, 2)
        else:
            text, at, offset = ", ".join(names), (high, rate / 1e12), (-3, -17)
        text = f"{rate / 1e12:,.0f} TMAC/s: {text}" if rate == peak else f"{rate / 1e12:,.0f} TMAC/s:\n{text}"
        style.label(axes, at, text, colours[rate], offset, ha="right", linespacing=1.3)
    for step, found in data["intensities"].items():
        values = sorted(found.values())
        reached = [min(peak, value * bandwidth) / 1e12 for value in values]
        axes.plot(values, reached, "o", color=STEP_COLOURS[step], markersize=5, zorder=3)
        is_memory = values[-1] < peak / bandwidth
        digits, share = (2 if is_memory else 0), 100 * reached[-1] * 1e12 / peak
        text = (
            f"{step}: {values[0]:,.{digits}f} to {values[-1]:,.{digits}f},\n"
            f"{'memory bound' if is_memory else 'arithmetic bound'}, {share:.{0 if share >= 10 else 1}f} % of peak"
        )
        colour, at = STEP_COLOURS[step], (values[0], reached[0])
        if is_memory:
            style.label_with_line(axes, at, text, colour, (-38, 84), is_right=True, linespacing=1.3)
        else:
            style.label(axes, (high, top), text, colour, (-3, 24), ha="right", linespacing=1.3)
    return figure


ABOUT_ROOFLINE = "Log-log rooflines of three GPUs: decode steps are bound by memory, the prefill by multiplications."
ROOFLINE = Plot("roofline", ABOUT_ROOFLINE, roofline_data, draw_roofline)
