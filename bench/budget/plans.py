"""Parallel plans of a model on a number of ranks, on the Pareto front of what a rank sends, holds and computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import prod

import numpy as np
from sympy import divisors

from headcount.bench.budget.search import pareto_front
from headcount.bench.case import Case, describe_input
from headcount.bench.column import Column, bytes_column, macs_column, plural
from headcount.bench.errors import UsageError
from headcount.bench.result import Result, Row, Table, columns_of, shown
from headcount.formulas.plan import ORDER as AXES
from headcount.formulas.plan import Plan, PlanError
from headcount.formulas.rank import BYTES, PARAMETER, RankCost, Ranks

OBJECTIVES = ("between_bytes", "within_bytes", "held_bytes", "macs")
"""Costs of a plan, the most important first; lower is better."""
_bytes = partial(bytes_column, priority=0)


@dataclass(frozen=True)
class PlanRow(Row):
    """A plan without its microbatches, their number, and the costs of a step, the largest over ranks."""

    plan: str = shown(Column, "plan", wraps=20)
    mb: int = shown(Column, "micro-\nbatches", kind="int", priority=2)
    macs: int = shown(macs_column, "slowest rank,\nMACs", priority=0)
    held_bytes: int = shown(_bytes, "held")
    within_bytes: int = shown(_bytes, "sent in\na node")
    between_bytes: int = shown(_bytes, "sent\nbetween")


def text(plan: Plan) -> str:
    """Return the plan as it is written, without the microbatches, which have a column."""
    return str(replace(plan, mb=1))


def plans(ranks: int, batch: int, node: int, experts: bool) -> Iterator[Plan]:
    """Yield the plans of ``ranks`` ranks: tp within a node of ``node`` ranks, microbatches of one sequence."""
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


def search(case: Case, ranks: int, batch: int, node: int, most_bytes: int) -> tuple[dict[Plan, dict[str, int]], int]:
    """Return the costs of the plans that hold at most ``most_bytes``, and the number of all plans that fit the sizes.

    Raises UsageError where none does, with the plan that holds least.
    """
    experts = any("E" in entry.selects for entry in case.ledger)
    model, every = Ranks(case.ledger), plans(ranks, batch, node, experts)
    fitting = {plan: costs for plan in every if (costs := plan_costs(model, plan, node))}
    if not fitting:
        raise UsageError(f"no plan of {ranks:,} ranks fits the sizes of {case.name} and a batch of {batch:,}")
    within = {plan: costs for plan, costs in fitting.items() if costs["held_bytes"] <= most_bytes}
    if not within:
        least, costs = min(fitting.items(), key=lambda found: found[1]["held_bytes"])
        raise UsageError(f"no plan holds at most {most_bytes:,} bytes; {text(least)} holds {costs['held_bytes']:,}")
    return within, len(fitting)


def plan_costs(model: Ranks, plan: Plan, node: int) -> dict[str, int] | None:
    """Return the costs of a step over the whole batch, the largest over ranks; None where a plan does not fit."""
    try:
        costs = model.costs(plan)
    except PlanError:
        return None
    within = [axis for axis in AXES if _span(axis, plan) <= node]
    between = [axis for axis in AXES if axis not in within]
    return {
        "between_bytes": max(_step_bytes(cost, between) for cost in costs),
        "within_bytes": max(_step_bytes(cost, within) for cost in costs),
        "held_bytes": max(cost.state_bytes() + _kept_bytes(cost) for cost in costs),
        "macs": max(cost.step_macs for cost in costs) * plan.mb,
    }


def _span(axis: str, plan: Plan) -> int:
    """Return how many neighbouring ranks a group of ``axis`` spans: tp is innermost, pp outermost."""
    if axis == "ep":
        return plan.ep if plan.cp * plan.tp == 1 else max(plan.ep, plan.tp)
    outwards = ("tp", "cp", "dp", "pp")
    return prod(getattr(plan, inner) for inner in outwards[: outwards.index(axis) + 1])


def _step_bytes(cost: RankCost, axes: Sequence[str]) -> int:
    """Return the bytes that a rank sends over ``axes`` in a step of all microbatches."""
    moved = replace(cost, transfers=tuple(one for one in cost.transfers if one.axis in axes))
    return moved.sent_bytes("forward", "backward") * cost.plan.mb + moved.sent_bytes("sync")


def _kept_bytes(cost: RankCost) -> int:
    """Return a bound of the bytes of activations: as many microbatches as stages are under way in the first."""
    return min(cost.plan.pp, cost.plan.mb) * cost.activation_elements() * BYTES[PARAMETER]


def result(case: Case, ranks: int, batch: int, node: int, most_bytes: int, limit: int, min_distance: float) -> Result:
    """Return a row for each listed plan of the front."""
    within, fitting = search(case, ranks, batch, node, most_bytes)
    objectives = [np.array([costs[name] for costs in within.values()]) for name in OBJECTIVES]
    unknown = np.full(len(within), np.nan)
    listed = list(islice(pareto_front(objectives, unknown, objectives, min_distance), limit or None))
    notes = [
        f"Of a microbatch: {describe_input(case.lengths)}; {batch:,} sequences a step, {node} ranks a node. Costs are "
        "those of a step, the largest over ranks. tp stays in a node; ranks of tp are neighbours, then those of cp, "
        "dp and pp.",
        "Held: weights, gradients and AdamW's states in mixed precision, 16 bytes a parameter where nothing is "
        "divided, and a bound of the activations: the result of each operation once, 2 bytes an element, for as many "
        "microbatches as there are stages; with recompute=full the inputs of layers, and the results of one.",
        f"On the front of less of every cost, rows at least {min_distance:.0%} apart in one cost (--min-distance 0 for "
        "all). headcount count takes each plan as printed.",
    ]
    every = list(within.items())
    rows = []
    for plan, costs in (every[index] for index in listed):
        rows.append(PlanRow(text(plan), plan.mb, **costs))
    title = f"{case.name} on {ranks:,} ranks, at most {most_bytes:,} bytes each"
    found = f"{plural(len(rows), 'row')} of {len(within):,} plans within the bytes, of {fitting:,} that fit the sizes."
    return Result([Table("plans", title, columns_of(PlanRow), rows, notes)], lambda: found)
