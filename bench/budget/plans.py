"""Parallel plans of a model on a number of ranks, on the Pareto front of what a rank sends, holds and computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from headcount.bench.accounts import RECIPES, Assumptions
from headcount.bench.budget.search import pareto_front
from headcount.bench.card_times import kernels_of
from headcount.bench.case import Case, describe_input
from headcount.bench.column import Column, bytes_column, macs_column, plural
from headcount.bench.errors import UsageError
from headcount.bench.performance.model import load
from headcount.bench.performance.plan_time import ASSUMED, PASSES, Cluster, PlanTimes, Sent, sent_by, span
from headcount.bench.result import Result, Row, Table, columns_of, shown
from headcount.formulas.backward import training_macs
from headcount.formulas.ledger import Ledger
from headcount.formulas.plan import ORDER as AXES
from headcount.formulas.plan import Plan, PlanError, divisors
from headcount.formulas.rank import BYTES, PARAMETER, RankCost, Ranks

OBJECTIVES = ("step_s", "between_bytes", "within_bytes", "held_bytes", "macs")
"""Costs of a plan, the most important first; lower is better."""


@dataclass(frozen=True)
class PlanRow(Row):
    """A plan and the costs of a step, the largest over ranks.

    ``step_s``: the expected seconds of a step; ``least_s``: at least. ``collectives_share``, ``stages_share``: the
    waiting for what is sent and for other stages, of the expected time, in percent; the rest are kernels. ``mfu``:
    model FLOPs over what all cards could do in that time, in percent.
    """

    plan: str = shown(Column, "plan", priority=0)
    step_s: float = shown(Column, "step\nexpected", "s", kind="fixed", digits=3, priority=0)
    least_s: float = shown(Column, "at\nleast", "s", kind="fixed", digits=3, priority=2)
    mfu: float = shown(Column, "MFU", "%", kind="fixed", digits=1, priority=0)
    collectives_share: float = shown(Column, "waits for\ncollectives", "%", kind="fixed", digits=1, priority=3)
    stages_share: float = shown(Column, "waits for\nstages", "%", kind="fixed", digits=1, priority=3)
    held_bytes: int = shown(partial(bytes_column, priority=1), "held")
    macs: int = shown(macs_column, "slowest rank,\nMACs", priority=6)
    within_bytes: int = shown(partial(bytes_column, priority=4), "sent in\na node")
    between_bytes: int = shown(partial(bytes_column, priority=4), "sent\nbetween")


def plans(ranks: int, batch: int, node: int, experts: bool) -> Iterator[Plan]:
    """Yield the plans of ``ranks`` ranks for ``batch`` microbatches of all: tp within a node of ``node`` ranks."""
    for tp in (n for n in divisors(ranks) if n <= node):
        for pp in divisors(ranks // tp):
            for cp in divisors(ranks // tp // pp):
                dp = ranks // (tp * pp * cp)
                if batch % dp:
                    continue
                own = Plan(tp=tp, sp=tp > 1, pp=pp, cp=cp, dp=dp, mb=batch // dp)
                for ep in divisors(dp * cp * tp) if experts else (1,):
                    for zero in (0, 1, 3) if dp * cp > 1 else (0,):
                        for recompute in ("none", "full"):
                            yield replace(own, ep=ep, zero=zero, recompute=recompute)


def times_of(case: Case, cluster: Cluster) -> PlanTimes:
    """Return the times of plans of ``case`` on a cluster, with AdamW in mixed precision."""
    given = Assumptions()
    return PlanTimes(cluster, RECIPES[given.optimizer], kernels_of(case, case.ledger, given).is_causal)


Costs = dict[str, float]


def search(case: Case, ranks: int, batch: int, most_bytes: int, cluster: Cluster) -> tuple[dict[Plan, Costs], int]:
    """Return the costs of the plans that hold at most ``most_bytes``, and the number of all plans that fit the sizes.

    Raises UsageError where none does, with the plan that holds least.
    """
    experts = any("E" in entry.selects for entry in case.ledger)
    if batch % case.samples:
        raise UsageError(f"a batch of {batch:,} is not divided by microbatches of {case.samples:,} sequences")
    model, every = Ranks(case.ledger), plans(ranks, batch // case.samples, cluster.node, experts)
    times = times_of(case, cluster)
    fitting: dict[Plan, Costs] = {}
    macs, sums = training_macs(case.ledger), RankSums()
    for plan in every:
        try:
            costs = model.costs(plan)
        except PlanError:
            continue
        sent = [sent_by(cost) for cost in costs]
        fitting[plan] = plan_costs(costs, sent, plan, cluster.node, sums)
        if fitting[plan]["held_bytes"] <= most_bytes:
            fitting[plan] |= step_costs(macs, costs, sent, plan, times)
    if not fitting:
        raise UsageError(f"no plan of {ranks:,} ranks fits the sizes of {case.name} and a batch of {batch:,}")
    within = {plan: costs for plan, costs in fitting.items() if costs["held_bytes"] <= most_bytes}
    if not within:
        least, found = min(fitting.items(), key=lambda one: one[1]["held_bytes"])
        raise UsageError(f"no plan holds at most {most_bytes:,} bytes; {least} holds {found['held_bytes']:,}")
    return within, len(fitting)


class RankSums:
    """Sums over the ledgers of ranks, each made once: plans of equal degrees share their ledgers."""

    def __init__(self) -> None:
        self._macs: dict[int, int] = {}
        self._elements: dict[tuple[int, str], int] = {}
        self._gathered: dict[int, int] = {}
        # a ledger that lives keeps its number
        self._ledgers: list[Ledger] = []

    def step_macs(self, cost: RankCost) -> int:
        """Return the multiply-accumulates of a microbatch, recomputation included."""
        key = id(cost.ledger)
        if key not in self._macs:
            self._ledgers.append(cost.ledger)
            self._macs[key] = training_macs(cost.ledger)
        return self._macs[key] + cost.again.macs

    def kept_bytes(self, cost: RankCost) -> int:
        """Return a bound of the bytes of activations, of all microbatches under way, and those of gathered weights."""
        key = id(cost.ledger), cost.plan.recompute
        if key not in self._elements:
            self._ledgers.append(cost.ledger)
            self._elements[key] = cost.activation_elements()
        kept = cost.under_way * self._elements[key]
        if cost.plan.zero == 3:
            if id(cost.ledger) not in self._gathered:
                self._gathered[id(cost.ledger)] = cost.gathered_params()
            kept += self._gathered[id(cost.ledger)]
        return kept * BYTES[PARAMETER]


def plan_costs(
    costs: Sequence[RankCost], sent: Sequence[Sent], plan: Plan, node: int, sums: RankSums | None = None
) -> Costs:
    """Return what a rank sends, holds and computes in a step over the whole batch, the largest over ranks."""
    sums = sums or RankSums()
    within = [axis for axis in AXES if span(axis, plan) <= node]
    between = [axis for axis in AXES if axis not in within]
    return {
        "between_bytes": max(_step_bytes(one, plan, between) for one in sent),
        "within_bytes": max(_step_bytes(one, plan, within) for one in sent),
        "held_bytes": max(cost.state_bytes() + sums.kept_bytes(cost) for cost in costs),
        "macs": max(map(sums.step_macs, costs)) * plan.mb,
    }


def step_costs(macs: int, costs: Sequence[RankCost], sent: Sequence[Sent], plan: Plan, times: PlanTimes) -> Costs:
    """Return the time of a step over the whole batch, and the shares of waiting; ``macs``: of a trained microbatch."""
    found = times.step(costs, sent, partial(span, plan=plan))
    peak = times.cluster.card.macs_per_s[times.cluster.dtype] * plan.ranks
    return {
        "step_s": found.expected_s,
        "least_s": found.least_s,
        "mfu": 100 * macs * plan.mb * plan.dp / (found.expected_s * peak),
        "collectives_share": 100 * found.collectives_s / found.expected_s,
        "stages_share": 100 * found.stages_s / found.expected_s,
    }


def _step_bytes(sent: Sent, plan: Plan, axes: Sequence[str]) -> int:
    """Return the bytes that a rank sends over ``axes`` in a step of all microbatches."""
    own = ((phase, size) for (axis, phase), (size, _) in sent.items() if axis in axes)
    return sum(size * (plan.mb if phase in PASSES else 1) for phase, size in own)


def result(
    case: Case,
    ranks: int,
    batch: int,
    most_bytes: int,
    limit: int,
    min_distance: float,
    cluster: Cluster,
) -> Result:
    """Return a row for each listed plan of the front, by expected time."""
    within, fitting = search(case, ranks, batch, most_bytes, cluster)
    objectives = [np.array([costs[name] for costs in within.values()]) for name in OBJECTIVES]
    unknown = np.full(len(within), np.nan)
    listed = list(islice(pareto_front(objectives, unknown, objectives, min_distance), limit or None))
    card = cluster.card
    kept = "a bound of the activations: the result of each operation once, 2 bytes an element"
    if getattr(case.config, "results", ()):
        kept = "the activations that a run keeps, in its types"
    notes = [
        f"Of a microbatch: {describe_input(case.lengths)}; {batch:,} sequences a step, {cluster.node:,} ranks a node. "
        "Costs are those of a step, the largest over ranks. tp stays in a node; ranks of tp are neighbours, then those "
        "of cp, dp and pp.",
        f"{cluster.statement()} (--between-nodes). Assumed: {ASSUMED}; one forward and one backward pass in turn on "
        "each stage.",
        load().statement(card),
        "Held: weights, gradients and AdamW's states in mixed precision, 16 bytes a parameter where nothing is "
        f"divided, the weights that fsdp gathers at once, and {kept}, for as many microbatches as there are stages "
        "from the rank's own to the last; with recompute=full the inputs of layers, and the results of one.",
        "No other plan is better than a row in one cost or in time without being worse in another. Rows whose costs "
        f"are all within {min_distance:.0%} of one another are printed once (--min-distance 0 for all). headcount fit "
        "--train takes each plan as printed, with --between-nodes and --ranks-per-node as here; count and latency "
        "--estimate take it too, without these two options.",
        *case.kernel_notes,
    ]
    every = list(within.items())
    rows = [PlanRow(str(plan), **costs) for plan, costs in (every[index] for index in listed)]
    title = f"{case.name} on {ranks:,} {card.short_name}, at most {most_bytes:,} bytes each"
    found = f"{plural(len(rows), 'row')} of {len(within):,} plans within the bytes, of {fitting:,} that fit the sizes."
    plan, costs = every[listed[0]]
    fastest = f" {plan} is expected to be the fastest, {costs['step_s']:.3g} s a step."
    return Result([Table("plans", title, columns_of(PlanRow), rows, notes)], lambda: found + fastest)
