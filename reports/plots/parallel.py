"""What a rank sends against what it computes, for the models and plans of pages/text.toml."""

from functools import cache
from typing import Any

from headcount.bench.case import Case
from headcount.formulas.plan import parse
from headcount.formulas.rank import rank_costs
from headcount.reports.document import texts
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

PLANNED = [one | {"plan": plan} for one in texts("parallel.planned") for plan in one["plans"]]
"""Models under plans: a name in the page, a preset with some ``fields``, the tokens of a sequence, a plan."""
COLOURS = dict(
    zip(
        dict.fromkeys(one["model"] for one in PLANNED),
        (style.BLUE, style.PURPLE, style.VERMILLION, style.AMBER, style.GREY, style.GREEN),
        strict=True,
    )
)


@cache
def ranks() -> list[dict[str, Any]]:
    """Return what the rank that computes most under each of PLANNED computes, holds and sends in a step."""
    rows = []
    for one in PLANNED:
        case = Case.of(one["preset"], one.get("fields", {}), {"seq_len": one["seq_len"]})
        plan = parse(one["plan"])
        cost = max(rank_costs(case.ledger, plan), key=lambda cost: cost.step_macs)
        rows.append(
            {
                "model": one["model"],
                "T": one["seq_len"],
                "plan": one["plan"],
                "ranks": plan.ranks,
                "macs": cost.step_macs,
                "state_bytes": cost.state_bytes(),
                "sent_bytes": cost.sent_bytes("forward", "backward"),
                "gradient_sum_bytes": cost.sent_bytes("sync"),
            }
        )
    return rows


def data(facts: Facts) -> list[list[Any]]:
    """Return model, plan, MACs and all bytes that are sent in a step, for each point."""
    return [[one["model"], one["plan"], one["macs"], one["sent_bytes"] + one["gradient_sum_bytes"]] for one in ranks()]


def draw(data: list[list[Any]]):
    """Draw bytes against MACs; on a diagonal a rank sends as many bytes for each product."""
    figure, (axes,) = style.panels(
        "What a rank sends against what it computes, a step",
        "forward and backward of one sequence in bfloat16, with the sum of gradients; the slowest rank of each plan\n"
        "dotted: bytes for each 1,000 multiply-accumulates",
        [4.6],
    )
    axes.set(xscale="log", yscale="log", xlim=(6e10, 8e15), ylim=(6e7, 6e11), xlabel="multiply-accumulates of a rank")
    axes.set_title("bytes that leave a rank")
    for rate in (0.01, 0.1, 1):
        axes.plot([6e10, 8e15], [6e10 * rate / 1000, 8e15 * rate / 1000], ":", color=style.MUTED, linewidth=0.8)
        style.label(axes, (2.5e12 / rate, 2.5e9), f"{rate:g}", style.MUTED, (4, -4))
    points = [(macs, sent, f"{model}, {plan}", COLOURS[model]) for model, plan, macs, sent in data]
    style.label_points(axes, points)
    return figure


ABOUT = "Points: by tensor parallelism a rank of LLaMA-3 8B sends fewer bytes than by FSDP, and more for each product."
PLOT = Plot("parallel", ABOUT, data, draw)
