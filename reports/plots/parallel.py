"""What a rank sends against what it computes, for models under parallel plans."""

from typing import Any, NamedTuple

from headcount.bench.case import Case
from headcount.formulas.plan import Plan, parse
from headcount.formulas.rank import RankCost, rank_costs
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot

LLAMA_70B = {"num_layers": 80, "d_model": 8192, "d_ff": 28672, "num_heads": 64}


class Planned(NamedTuple):
    """A model under a plan: its name in the page, its preset with some fields, the tokens of a sequence, the plan."""

    model: str
    preset: str
    fields: dict[str, Any]
    seq_len: int
    text: str

    @property
    def plan(self) -> Plan:
        """The plan."""
        return parse(self.text)

    @property
    def slowest(self) -> RankCost:
        """The cost of the ranks that compute most."""
        case = Case.of(self.preset, self.fields, {"seq_len": self.seq_len})
        return max(rank_costs(case.ledger, self.plan), key=lambda cost: cost.step_macs)

    @property
    def sent_bytes(self) -> int:
        """The bytes that such a rank sends in a step, sums of gradients included."""
        return self.slowest.sent_bytes(training=True) + self.slowest.sync_bytes()


PLANNED = (
    *(Planned("LLaMA-3 8B", "llama3-8b", {}, 8192, plan) for plan in ("dp=8,fsdp", "tp=2,sp,dp=4,fsdp", "tp=8,sp")),
    *(
        Planned("LLaMA-3 70B", "llama3-8b", LLAMA_70B, 8192, plan)
        for plan in ("dp=64,fsdp", "tp=8,sp,dp=8,fsdp", "tp=8,sp,pp=4,dp=2")
    ),
    Planned("LLaMA-3 405B", "llama3-405b", {}, 8192, "tp=8,sp,pp=16,dp=128,fsdp"),
    Planned("LLaMA-3 405B", "llama3-405b", {}, 131072, "tp=8,sp,pp=16,cp=16,dp=8,fsdp"),
    *(
        Planned("MoA 8K32E128D", "moa-8K32E128D", {}, 2048, plan)
        for plan in ("dp=8", "cp=8,ep=8", "tp=8,ep=8:replicated")
    ),
    Planned("MoH-LLaMA3-8B", "moh-llama3-8b", {}, 8192, "tp=8,sp"),
    Planned("MoH-LLaMA3-8B, ideal", "moh-llama3-8b", {"form": "ideal"}, 8192, "tp=8,sp"),
    Planned("MoH-LLaMA3-8B, ideal", "moh-llama3-8b", {"form": "ideal"}, 8192, "tp=8,sp,heads=dealt"),
)
COLOURS = dict(
    zip(
        dict.fromkeys(one.model for one in PLANNED),
        (style.BLUE, style.PURPLE, style.VERMILLION, style.AMBER, style.GREY, style.GREEN),
        strict=True,
    )
)


def data(facts: Facts) -> list[list[Any]]:
    """Return model, plan, MACs and bytes of a step of its slowest rank, for each point."""
    return [[one.model, one.text, one.slowest.step_macs, one.sent_bytes] for one in PLANNED]


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
