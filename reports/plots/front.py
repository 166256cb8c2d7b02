"""The models that a budget search finds, and the one that they match."""

from typing import Any

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

MATCHED = "transformer-big"
BYTES = (20_000, 50_000, 100_000, 200_000, 500_000)


def data(facts: Facts) -> dict[str, Any]:
    """Return cache bytes and parameters of the models found, and of ``MATCHED``."""
    length, ledger = facts.target_length(MATCHED), facts.ledger(MATCHED)
    (own,) = facts.model_accounts([MATCHED], length, ("kv_bytes",)).rows
    found = [row.values for row in facts.budget(papers.BUDGETS["moa"]).rows]
    return {
        "length": length,
        "macs": ledger.macs,
        "matched": ["Transformer big", own.values["kv_bytes"], ledger.params],
        "found": [[f"{one['K']}K{one['E']}E{one['D']}D", one["kv_bytes"], one["params"]] for one in found],
    }


def draw(data: dict[str, Any]):
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


ABOUT = "Points: the matched MoA models need less cache than Transformer big and hold as many parameters or more."
PLOT = Plot("front", ABOUT, data, draw)
