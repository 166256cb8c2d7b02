"""Where a decode step and the prefill lie under the rooflines of named hardware: an estimate by arithmetic."""

from typing import Any

from headcount.bench.hardware import HARDWARE
from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

DTYPE, TOKENS = "bfloat16", 2048
CARDS = ("h200", "h100", "a100")
ON = "h200"
STEPS = {"decode_intensity": "decode step", "forward_intensity": "prefill"}
COLOURS = {"decode step": style.VERMILLION, "prefill": style.PURPLE}
COMMAND = (
    f"python -m bench.macs --preset {' '.join(papers.LANGUAGE)} --seq-len {TOKENS} "
    "--counter closed-form --columns decode_intensity forward_intensity"
)


def data(facts: Facts) -> dict[str, Any]:
    """Return each GPU's name, MACs/s and bytes/s, and the models' intensities in MACs per byte."""
    rows = facts.model_accounts(papers.LANGUAGE, TOKENS, tuple(STEPS)).rows
    return {
        "hardware": {
            key: [HARDWARE[key].name, HARDWARE[key].macs_per_s[DTYPE], HARDWARE[key].bytes_per_s] for key in CARDS
        },
        "intensities": {
            step: {row.values["row"]: float(row.values[key]) for row in rows} for key, step in STEPS.items()
        },
    }


def draw(data: dict[str, Any]):
    """Draw the roofline of each GPU, and on one of them the decode step and the prefill of each model."""
    name, peak, bandwidth = data["hardware"][ON]
    figure, (axes,) = style.panels(
        f"Rooflines in {DTYPE}: an estimate from data sheets, nothing measured",
        f"MAC/s that {TOKENS:,} tokens of one sequence could reach on the {name} if nothing but the data sheet's\n"
        "rate and bandwidth limited them: a decode step, and the prefill",
        [4.2],
    )
    axes.set(xscale="log", yscale="log", xlim=(0.1, 10_000), ylim=(0.1, 3_000))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel("MACs per byte that must move")
    axes.set_title("TMAC/s")
    colours = (style.BLUE, style.AMBER, style.GREEN)
    for (gpu, rate, width), colour in zip(data["hardware"].values(), colours, strict=False):
        text = f"{gpu}: {rate / 1e12:,.0f} TMAC/s, {width / 1e12:g} TB/s"
        bound = [0.1 * width / 1e12, rate / 1e12, rate / 1e12]
        axes.plot([0.1, rate / width, 10_000], bound, color=colour, label=text)
    for step, found in data["intensities"].items():
        values = sorted(found.values())
        reached = [min(peak, value * bandwidth) / 1e12 for value in values]
        span = f"{values[0]:,.2f} to {values[-1]:,.2f}" if values[-1] < 10 else f"{values[0]:,.0f} to {values[-1]:,.0f}"
        text = f"{step}, {len(values)} models: {span}"
        axes.plot(values, reached, "o", color=COLOURS[step], markersize=5, label=text)
    axes.legend(loc="lower right", labelcolor="linecolor")
    return figure


ABOUT = "Log-log rooflines of three GPUs: decode steps are bound by memory, the prefill by multiplications."
PLOT = Plot("roofline", ABOUT, data, draw)
