"""What a rank sends against what it computes, for models under plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from headcount.bench.case import Case
from headcount.formulas.plan import parse
from headcount.formulas.rank import rank_costs
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot


@dataclass(frozen=True)
class Planned:
    """A model under a parallel plan.

    Attributes:
        model: Its name in the page.
        preset: The preset of its sizes.
        seq_len: Tokens of a sequence.
        plan: The plan.
        fields: Sizes other than the preset's.
    """

    model: str
    preset: str
    seq_len: int
    plan: str
    fields: Mapping[str, Any] = field(default_factory=dict)


SIZES_OF_70B = {"num_layers": 80, "d_model": 8192, "d_ff": 28672, "num_heads": 64}
PLANNED = (
    Planned("LLaMA-3 8B", "llama3-8b", 8192, "dp=8,fsdp"),
    Planned("LLaMA-3 8B", "llama3-8b", 8192, "tp=2,sp,dp=4,fsdp"),
    Planned("LLaMA-3 8B", "llama3-8b", 8192, "tp=8,sp"),
    Planned("LLaMA-3 70B", "llama3-8b", 8192, "dp=64,fsdp", SIZES_OF_70B),
    Planned("LLaMA-3 70B", "llama3-8b", 8192, "tp=8,sp,dp=8,fsdp", SIZES_OF_70B),
    Planned("LLaMA-3 70B", "llama3-8b", 8192, "tp=8,sp,pp=4,dp=2", SIZES_OF_70B),
    Planned("LLaMA-3 405B", "llama3-405b", 8192, "tp=8,sp,pp=16,dp=128,fsdp"),
    Planned("LLaMA-3 405B", "llama3-405b", 131072, "tp=8,sp,pp=16,cp=16,dp=8,fsdp"),
    Planned("MoA 8K32E128D", "moa-8K32E128D", 2048, "dp=8"),
    Planned("MoA 8K32E128D", "moa-8K32E128D", 2048, "cp=8,ep=8"),
    Planned("MoA 8K32E128D", "moa-8K32E128D", 2048, "tp=8,ep=8:replicated"),
    Planned("MoH-LLaMA3-8B", "moh-llama3-8b", 8192, "tp=8,sp"),
    Planned("MoH-LLaMA3-8B, ideal", "moh-llama3-8b", 8192, "tp=8,sp", {"form": "ideal"}),
    Planned("MoH-LLaMA3-8B, ideal", "moh-llama3-8b", 8192, "tp=8,sp,heads=dealt", {"form": "ideal"}),
)
COLOURS = dict(
    zip(
        dict.fromkeys(one.model for one in PLANNED),
        (style.BLUE, style.PURPLE, style.VERMILLION, style.AMBER, style.GREY, style.GREEN),
        strict=True,
    )
)


@cache
def ranks() -> list[dict[str, Any]]:
    """Return what the rank that computes most under each of PLANNED computes, holds and sends in a step."""
    rows = []
    for one in PLANNED:
        case = Case.of(one.preset, one.fields, {"seq_len": one.seq_len})
        plan = parse(one.plan)
        cost = max(rank_costs(case.ledger, plan), key=lambda cost: cost.step_macs)
        rows.append(
            {
                "model": one.model,
                "T": one.seq_len,
                "plan": one.plan,
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
