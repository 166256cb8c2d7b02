"""Cost over multi-head attention of the same width, against the length."""

from headcount.bench.macs import grid
from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

LENGTHS = [2**power for power in range(4, 15)]
DENSE, *SPARSE = papers.LAYERS
COLOURS = dict(zip(SPARSE, (
    style.BLUE, style.GREY, style.VERMILLION, style.AMBER, style.INK, style.GREEN, style.PURPLE,
), strict=True))  # fmt: skip
OVER = f"d_m=512 T={','.join(map(str, LENGTHS))}"
COMMAND = f"python -m bench.macs --grid '{papers.LAYERS['MoA 8K8E128D']} {OVER}' --counter closed-form"
RELEASED, IDEAL = ", as released", ", ideal"


def data(facts: Facts) -> dict[str, list[float]]:
    """Return the ratio to multi-head attention at each of LENGTHS, by layer and form."""
    dense = macs(DENSE)[""]
    return {
        name + form: [a / b for a, b in zip(own, dense, strict=True)]
        for name in SPARSE
        for form, own in macs(name).items()
    }


def macs(name: str) -> dict[str, list[int]]:
    """Return the MACs of a layer at each of LENGTHS, by its form: "" for a layer with one form."""
    found = grid.parse(f"{papers.LAYERS[name]} {OVER}")
    cases = [grid.case_at(found.variant, point) for point in found.points()]
    if not cases[0].ideal:
        return {"": [case.ledger.macs for case in cases]}
    return {RELEASED: [case.ledger.macs for case in cases], IDEAL: [case.ideal.ledger.macs for case in cases]}


def draw(data: dict[str, list[float]]):
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
        colour = COLOURS[name.removesuffix(RELEASED).removesuffix(IDEAL)]
        axes.plot(LENGTHS, ratios, "--" if name.endswith(IDEAL) else "-", color=colour)
        ends.append((LENGTHS[0], ratios[0], name.replace(" key/value", " kv"), colour))
    style.label_ends(axes, ends, is_right=False, gap=0.038)
    return figure


ABOUT = "Lines of the ratio to multi-head attention over the length: layers of its inner width come near 1."
OVER_MHA = Plot("cost_over_mha", ABOUT, data, draw)
