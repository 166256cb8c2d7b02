"""The plan of some ranks that is proposed: the fastest of those that fit, and of equals that which holds least.

Where times are not known, it is the one that holds least. Imports no torch.
"""

from dataclasses import replace
from functools import cache, cached_property
from math import ceil

from headcount.bench.accounts import Assumptions, NoAccount, step
from headcount.bench.budget.demand import ACTIVATIONS, Demand
from headcount.bench.budget.plans import plans
from headcount.bench.card_times import DECODE, FORWARD, TRAINING, PlanPass, TimeRow, time_rows
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Hardware
from headcount.formulas.plan import Plan, PlanError

NODE = 8
"""Ranks of a node: tp of a proposed plan is at most that."""
MOST_RANKS = 64
"""Ranks of the largest plan that is proposed where no number is given."""
IDLE = (
    "A plan with stages (pp) trains on one microbatch a step here, for which all stages but one wait; headcount budget "
    "--ranks N --global-batch N has plans of several."
)
"""What a proposed plan with stages leaves out."""


class Choice:
    """The plans of a demand; what each holds is computed once.

    Attributes:
        demand: what is to fit, under the plan of one rank.
        given: the types of the times.
    """

    def __init__(self, demand: Demand, given: Assumptions) -> None:
        self.demand, self.given = demand, given
        self._has_experts = any("E" in entry.selects for entry in demand.case.ledger)
        self.needed_by_plan = cache(self._needed_by_plan)

    def of_ranks(self, ranks: int, room: int | None, sheet: Hardware | None) -> Demand | None:
        """Return the demand under the plan of ``ranks`` ranks for cards of ``room`` bytes each.

        Where none fits, or ``room`` is None, the plan holds least; None where no plan divides the sizes. ``sheet``: the
        card whose times are known.
        """
        needed = self.needed_by_plan(ranks)
        if not needed:
            return None
        fitting = [plan for plan, size in needed.items() if room is not None and size <= room]
        rows = {plan: self._row(plan, sheet) for plan in fitting} if sheet else {}
        timed = {plan: row for plan, row in rows.items() if row is not None}
        found = f"{len(needed):,} plans of {ranks:,} ranks"
        if timed:
            best = min(timed, key=lambda plan: (self._time(timed[plan]), needed[plan]))
            chosen = f"Of {found} {len(fitting):,} fit, and it has the {self.what}."
        else:
            best = min(fitting or needed, key=needed.__getitem__)
            why = "" if room is None else "none fits, and " if not fitting else "times are not known, and "
            chosen = f"Of {found} {why}it holds least."
        return replace(self.demand, plan=best, chosen=f"{chosen} {IDLE}" if self.is_idle(best) else chosen)

    def is_idle(self, plan: Plan | None) -> bool:
        """Return whether stages of a training step wait for its one microbatch."""
        return self.demand.training and plan is not None and plan.pp > 1

    def of_fewest(self, room: int, sheet: Hardware | None) -> Demand | None:
        """Return the demand under the plan of the fewest ranks with which it fits, up to MOST_RANKS; None without."""
        # all ranks together hold each weight and each key at least once
        undivided = sum(size for name, size in self.demand.parts().items() if name != ACTIVATIONS)
        for ranks in range(max(1, ceil(undivided / room)), MOST_RANKS + 1):
            if min(self.needed_by_plan(ranks).values(), default=room + 1) <= room:
                return self.of_ranks(ranks, room, sheet)
        return None

    def tokens_per_s(self, plan: Plan | None, sheet: Hardware | None) -> float | None:
        """Return the expected tokens per second of a decode step, a training step or a forward pass.

        Those of all cards of ``plan``, or of one card without a plan; None where they are not known.
        """
        row = self._row(plan, sheet) if sheet else None
        return row.tokens_per_s if row else None

    def _needed_by_plan(self, ranks: int) -> dict[Plan, int]:
        """Return the bytes that a rank needs by plan of ``ranks`` ranks."""
        found: dict[Plan, int] = {}
        for plan in plans(ranks, ranks, NODE, self._has_experts):
            # what trains only
            if not self.demand.training and (plan.zero or plan.recompute != "none"):
                continue
            try:
                plan = replace(plan if self.demand.training else plan.generating, mb=1)
                if plan not in found:
                    found[plan] = sum(self.demand.parts(plan).values())
            except PlanError:
                continue
        return found

    @cached_property
    def timed_pass(self) -> str:
        """The pass by whose time a plan is chosen."""
        if self.demand.training:
            return TRAINING
        try:
            step(self.demand.case, 1)
        except NoAccount:
            return FORWARD
        return DECODE

    @property
    def what(self) -> str:
        """By what a plan is chosen."""
        return f"shortest expected {self.timed_pass}{' for each token' if self.demand.training else ''}"

    @cached_property
    def _timed(self) -> PlanPass:
        return PlanPass(self.timed_pass, self.demand.case, self.given)

    def _row(self, plan: Plan | None, sheet: Hardware) -> TimeRow | None:
        """Return the time of a plan's pass, or of one card's; None where it is not known."""
        try:
            if plan is not None:
                return self._timed.row(plan, sheet)
            # one card needs no links, and its configuration may have another closed form than under a plan
            rows = time_rows(self._undivided.case, sheet, self.given, passes=[self.timed_pass])
            return rows[0] if rows else None
        except (PlanError, UsageError):
            return None

    @cached_property
    def _undivided(self) -> Demand:
        return replace(self.demand, plan=None)

    def _time(self, row: TimeRow) -> float:
        """Return the expected milliseconds of a pass, of a training step those for each of its tokens."""
        # plans with more data parallelism train on more sequences in a step
        return row.expected_ms / row.tokens if self.demand.training and row.tokens else row.expected_ms
