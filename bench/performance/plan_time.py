"""Expected time of a training step under a parallel plan: kernels of a rank, what it sends, and the pipeline's wait.

A pass of a microbatch takes the longer of its kernels and of what is sent during them, and then its collectives of
tensor, context and expert parallelism. During the kernels of a pass run the gathers of its weights and the sends
between stages; during those of the last backward pass, which include recomputation, also the sums of gradients; during
those of the first forward pass also the gathers of the weights that the step before updated. What a rank sends is sent
one after another, whatever the link: no step is shorter than what a link carries. Stages run one forward and one
backward pass in turn. No torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from headcount.bench.errors import UsageError
from headcount.bench.hardware import HARDWARE, Hardware
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import BFLOAT16, ClosedForm, Each, update
from headcount.bench.performance.kernel import Kernel
from headcount.formulas.ledger import Ledger
from headcount.formulas.plan import Plan
from headcount.formulas.rank import BYTES, RankCost

Sent = Mapping[tuple[str, str], tuple[int, int]]
"""Bytes that leave a rank, and the number of collectives, by axis and phase."""
PASSES = ("forward", "backward")
"""Phases of a microbatch."""
SYNC, UPDATED = "sync", "updated"
"""Phases that are once a step: the sums of gradients, and the gathers of updated weights."""
ONCE = {"forward": UPDATED, "backward": SYNC}
"""What runs during the first forward pass, and during the last backward pass."""
WAITED = ("tp", "cp", "ep")
"""Axes whose collectives in a pass no kernel hides."""
ASSUMED = (
    "collectives of tp, cp and ep are waited for; gathers of weights and sends between stages run during the kernels "
    "of their pass, sums of gradients during those of the last backward pass, gathers of updated weights during those "
    "of the first forward pass, and the longer counts; a rank sends one thing at a time"
)
BETWEEN = 50e9
"""Bytes per second of a card to other nodes by default, in one direction: an adapter of 400 Gbit/s for each card. A
card sends no more than by its own links."""
BETWEEN_HELP = "bytes per second of a rank to other nodes (default: 50G, in a slot its rate)"
NODE = 8
"""Cards of a node where the card's are not known."""
DTYPE, DTYPE_BYTES = "bfloat16", 2
"""The type of products, in which the efficiencies were measured, and the bytes of its numbers."""


def sent_by(cost: RankCost) -> Sent:
    """Return what a rank sends."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for one in cost.transfers:
        phase = UPDATED if (one.phase, one.kind) == (SYNC, "all_gather") else one.phase
        size, times = found.get((one.axis, phase), (0, 0))
        found[one.axis, phase] = size + BYTES[one.element] * one.sent, times + one.times
    return found


@dataclass(frozen=True)
class Cluster:
    """Equal cards in nodes of ``node`` cards, and what a card sends.

    ``within_bytes_per_s``, ``between_bytes_per_s``: to others of its node and of other nodes, in one direction each.
    """

    card: Hardware
    within_bytes_per_s: float
    between_bytes_per_s: float
    node: int
    dtype: str = DTYPE

    def bytes_per_s(self, span: int) -> float:
        """Return what a card sends in a group that spans so many neighbouring cards; two may have a bridge."""
        if span <= 2 and self.card.bridge_bytes_per_s is not None:
            return self.card.bridge_bytes_per_s
        return self.within_bytes_per_s if span <= self.node else self.between_bytes_per_s

    def statement(self) -> str:
        """Return the rates of the links."""
        card, bridge = self.card, ""
        if card.bridge_bytes_per_s is not None:
            bridge = f"{card.bridge_bytes_per_s / 1e9:g} GB/s each way between the two cards of an NVLink bridge, "
        assumed = " (assumed)" if card.node_cards is None else ""
        return (
            f"Links of {card.short_name}: {bridge}{self.within_bytes_per_s / 1e9:g} GB/s each way in a node of "
            f"{self.node:,} cards{assumed}, and {self.between_bytes_per_s / 1e9:g} GB/s between nodes"
        )


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: at least and as expected; of these for waiting, for what is sent and for other stages.

    The rest of the expected seconds are kernels: of all microbatches, and of the update.
    """

    least_s: float
    expected_s: float
    collectives_s: float
    stages_s: float


def in_nodes(card: Hardware, between: float | None = None, node: int | None = None) -> Hardware:
    """Return a card with the bytes per second ``between`` nodes and the cards of a ``node`` that are given."""
    rate, cards = between or card.between_bytes_per_s, node or card.node_cards
    return replace(card, between_bytes_per_s=rate, node_cards=cards)


def cluster_of(card: Hardware) -> Cluster:
    """Return the nodes and links of a card. Raises UsageError for one whose links were not read."""
    if card.link_bytes_per_s is None:
        known = [one.short_name for one in HARDWARE.values() if one.link_bytes_per_s]
        raise UsageError(f"the links of {card.name} in a node are not known; choose from {', '.join(known)}")
    card.check(DTYPE)
    within = card.link_bytes_per_s
    return Cluster(card, within, card.between_bytes_per_s or min(BETWEEN, within), card.node_cards or NODE)


def span(axis: str, plan: Plan) -> int:
    """Return how many neighbouring ranks a group of ``axis`` spans: tp is innermost, pp outermost."""
    if axis == "ep":
        return plan.ep if plan.cp * plan.tp == 1 else max(plan.ep, plan.tp)
    outwards = ("tp", "cp", "dp", "pp")
    return prod(getattr(plan, inner) for inner in outwards[: outwards.index(axis) + 1])


@dataclass
class PlanTimes:
    """Times of plans of one model on a cluster; the kernels of equal ledgers are timed once.

    Attributes:
        cluster: the cards.
        recipe: bytes of a parameter by part of the optimizer's state.
        is_causal: of the path of an attention, whether each query sees the keys up to its own position.
        each: bytes of a number by what it is.
    """

    cluster: Cluster
    recipe: Mapping[str, int]
    is_causal: Callable[[str], bool]
    each: Each = field(default_factory=lambda: BFLOAT16)
    _passes: dict[int, tuple[Ledger, "_Passes"]] = field(default_factory=dict)

    def step(self, costs: Sequence[RankCost], sent: Sequence[Sent], span: Callable[[str], int]) -> StepTime:
        """Return the time of a step of all microbatches.

        ``sent``: what a rank of each class of ``costs`` sends; ``span``: neighbouring ranks that an axis spans.
        """
        plan = costs[0].plan
        slowest, end, least = _Time(0.0, 0.0), _Time(0.0, 0.0), 0.0
        for cost, own in zip(costs, sent, strict=True):
            passes, sent_us = self._of(cost), self._sent_us(own, span)
            again = passes.again_us(self, cost) if plan.recompute == "full" else 0.0
            kernels = dict(zip(PASSES, (passes.forward_us, passes.backward_us + again), strict=True))
            waits = once_waits = 0.0
            for phase, us in kernels.items():
                waited, beside = _waited_and_beside(sent_us, phase)
                once = sum(time for (_, when), time in sent_us.items() if when == ONCE[phase])
                waits += waited + max(0.0, beside - us)
                once_waits += max(0.0, beside + once - us) - max(0.0, beside - us)
            update_us = self.expected_us([update(cost.held["optimizer"], self.recipe)])
            slowest = max(slowest, _Time(sum(kernels.values()), waits), key=_Time.total_us)
            end = max(end, _Time(update_us, once_waits), key=_Time.total_us)
            least = max(least, passes.least_us)
        stages = (plan.pp - 1) * slowest.total_us()
        return StepTime(
            least_s=plan.mb * least / model.US,
            expected_s=(plan.mb * slowest.total_us() + stages + end.total_us()) / model.US,
            collectives_s=(plan.mb * slowest.waits_us + end.waits_us) / model.US,
            stages_s=stages / model.US,
        )

    def forward_us(self, costs: Sequence[RankCost], span: Callable[[str], int]) -> tuple[float, float]:
        """Return the least and the expected microseconds of a forward pass or a decode step through all stages.

        A stage waits for what the one before sends.
        """
        least = expected = 0.0
        for cost in costs:
            stages = cost.ranks * cost.plan.pp // cost.plan.ranks
            kernels = self.closed(cost.ledger, cost).forward()
            waited, beside = _waited_and_beside(self._sent_us(sent_by(cost), span), PASSES[0], (*WAITED, "pp"))
            least += stages * model.least_us(kernels, self.cluster.card, self.cluster.dtype)
            expected += stages * (max(self.expected_us(kernels), beside) + waited)
        return least, expected

    def _sent_us(self, sent: Sent, span: Callable[[str], int]) -> dict[tuple[str, str], float]:
        """Return by axis and phase the microseconds of bytes at the link's rate, and of a launch for each."""
        launch = model.load().values[model.LAUNCH]
        found = {}
        for (axis, phase), (size, times) in sent.items():
            found[axis, phase] = model.US * size / self.cluster.bytes_per_s(span(axis)) + times * launch
        return found

    def _of(self, cost: RankCost) -> "_Passes":
        key = id(cost.ledger)
        if key not in self._passes:
            closed = self.closed(cost.ledger, cost)
            forward, backward = closed.forward(), closed.backward()
            least = model.least_us([*forward, *backward], self.cluster.card, self.cluster.dtype)
            # the ledger is kept, so that no other one has its number
            self._passes[key] = (
                cost.ledger,
                _Passes(self.expected_us(forward), self.expected_us(backward), least),
            )
        return self._passes[key][1]

    def closed(self, form: Ledger, cost: RankCost) -> ClosedForm:
        """Return the kernels of a ledger of a rank."""
        return ClosedForm(form, self.each, self.is_causal, divides_queries=cost.plan.cp != 1)

    def expected_us(self, kernels: Sequence[Kernel]) -> float:
        """Return the expected microseconds of kernels on a card of the cluster."""
        return model.load().expected_us(kernels, self.cluster.card, self.cluster.dtype)


def _waited_and_beside(
    sent_us: Mapping[tuple[str, str], float], phase: str, waited_axes: Sequence[str] = WAITED
) -> tuple[float, float]:
    """Return the microseconds of what is waited for in a phase, and of what runs during its kernels."""
    waited = beside = 0.0
    for (axis, when), time in sent_us.items():
        if when == phase and axis in waited_axes:
            waited += time
        elif when == phase:
            beside += time
    return waited, beside


class _Time(NamedTuple):
    """Microseconds of kernels, and those in which a rank waits for what is sent."""

    kernels_us: float
    waits_us: float

    def total_us(self) -> float:
        """Return the sum."""
        return self.kernels_us + self.waits_us


@dataclass
class _Passes:
    """Microseconds of the kernels of a ledger: its forward and backward pass, and of both at least."""

    forward_us: float
    backward_us: float
    least_us: float
    _again_us: float | None = None

    def again_us(self, times: PlanTimes, cost: RankCost) -> float:
        """Return the microseconds of the layers that run again in the backward pass."""
        if self._again_us is None:
            self._again_us = times.expected_us(times.closed(cost.again, cost).forward())
        return self._again_us
