"""Where decoding and reading a prompt lie under the roofs of named hardware: an estimate by arithmetic."""

from headcount.bench.hardware import HARDWARE
from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots.axes import Axis, panel
from headcount.reports.plots.plot import Plot
from headcount.reports.svg import BLUE, GREEN, ORANGE, VERMILLION, Picture, Scale

DTYPE, TOKENS = "bfloat16", 2048
ROOFS = dict(zip(HARDWARE, (BLUE, ORANGE, GREEN), strict=False))
ON = "h200"
COMMAND = (
    f"python -m bench.macs --preset {' '.join(papers.LANGUAGE)} --seq-len {TOKENS} "
    "--counter closed-form --columns decode_intensity forward_intensity"
)


def roofline(facts: Facts) -> Picture:
    """The roof of each hardware; on one of them a decode step and the prefill of each model."""
    rows = facts.model_accounts(papers.LANGUAGE, TOKENS, ("decode_intensity", "forward_intensity")).rows
    out = Picture(f"Rooflines in {DTYPE}: an estimate from data sheets, nothing measured", ABOUT, 470)
    out.head(
        f"MACs a second that {TOKENS:,} tokens could reach on the {HARDWARE[ON].name}, one sequence, if nothing but",
        "the data sheet's rate and bandwidth held them back: a decode step, and the prefill",
    )
    x, y = Scale(0.1, 10_000, 70, 730, log=True), Scale(1e11, 1e15, 410, 104, log=True)
    intensities = [(10.0**p, f"{10.0**p:,g}") for p in range(-1, 5)]
    rates = [(10.0**p, text) for p, text in zip(range(11, 16), ("0.1", "1", "10", "100", "1,000"), strict=True)]
    panel(out, Axis(x, intensities, "MACs for each byte that must move"), Axis(y, rates, "TMAC/s"))
    for number, (name, colour) in enumerate(ROOFS.items()):
        peak, bandwidth = HARDWARE[name].macs_per_s[DTYPE], HARDWARE[name].bytes_per_s
        out.path([(x(0.1), y(0.1 * bandwidth)), (x(peak / bandwidth), y(peak)), (x(10_000), y(peak))], colour=colour)
        said = f"{HARDWARE[name].name}: {peak / 1e12:,.0f} TMAC/s, {bandwidth / 1e12:g} TB/s"
        out.text(726, 300 + 18 * number, said, colour=colour, anchor="end")
    for key, what, above in (("decode_intensity", "decode step", 84), ("forward_intensity", "prefill", 14)):
        found = {row.values["row"]: float(row.values[key]) for row in rows}
        places = {name: (x(value), y(_reached(value))) for name, value in found.items()}
        for name, (across, down) in places.items():
            out.dot(across, down, colour=VERMILLION, title=f"{name}, {what}: {found[name]:.3f} MACs per byte")
        low, high = min(found.values()), max(found.values())
        span = f"{low:,.2f} to {high:,.2f}" if high < 10 else f"{low:,.0f} to {high:,.0f}"
        across, down = places[min(found, key=found.get)]
        out.line(across, down, across - 20, down - above + 4, colour=VERMILLION, wide=0.6)
        said = f"{what}, {len(found)} models: {span}"
        left = max(across - 20 - len(said) * 5, x.start + 6)
        out.text(left, down - above, said, colour=VERMILLION)
    return out


def _reached(intensity: float) -> float:
    return min(HARDWARE[ON].macs_per_s[DTYPE], intensity * HARDWARE[ON].bytes_per_s)


ABOUT = (
    "Log-log roofs of three GPUs. Decode steps of every model lie far down on the slope, at about half a MAC per byte: "
    "bound by memory; the prefill of a long prompt lies under the flat part: bound by the multiplications."
)
PLOT = Plot("roofline.svg", ABOUT, roofline)
