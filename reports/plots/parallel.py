"""What a rank sends against what it computes, for the models and plans of pages/text.toml."""

from typing import Any, NamedTuple

from headcount.bench.case import Case
from headcount.formulas.plan import Plan, parse
from headcount.formulas.rank import RankCost, rank_costs
from headcount.reports.document import texts
from headcount.reports.facts import Facts
from headcount.reports.plots import style
from headcount.reports.plots.plot import Plot


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


PLANNED = [
    Planned(one["model"], one["preset"], one.get("fields", {}), one["seq_len"], plan)
    for one in texts("parallel.planned")
    for plan in one["plans"]
]
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
