"""Times of what ``headcount fit`` holds on a card: prefill and decode step, or a training step, of a plan too."""

from dataclasses import replace
from functools import partial

from headcount.bench.accounts import RECIPES, Assumptions
from headcount.bench.budget.plans import cluster_of, span
from headcount.bench.card_times import DECODE, FORWARD, PREFILL, TRAINING, TimeRow, kernels_of, passes_of, row_of, table
from headcount.bench.case import Case
from headcount.bench.hardware import Hardware
from headcount.bench.performance.model import US
from headcount.bench.performance.plan_time import PlanTimes, sent_by
from headcount.bench.result import Table
from headcount.formulas.backward import training_macs
from headcount.formulas.ledger import Ledger
from headcount.formulas.plan import Plan
from headcount.formulas.rank import Ranks


def time_table(case: Case, given: Assumptions, plan: Plan | None, training: bool, card: Hardware) -> Table[TimeRow]:
    """Return the times of a model on one card, or of all ranks of a plan together."""
    passes = (TRAINING,) if training else (PREFILL, DECODE, FORWARD)
    found = table(case, card, given, passes=passes)
    if plan is None:
        return found
    links = (
        f"On {plan.ranks:,} cards under {plan}. {cluster_of(card).statement()}. Tokens and MFU are those of all cards."
    )
    rows = [_row(what, case, given, plan, card, *one) for what, one in passes_of(case, given, training).items()]
    return replace(found, rows=rows, above=[*found.above, links])


def _row(what: str, case: Case, given: Assumptions, plan: Plan, card: Hardware, form: Ledger, tokens: int) -> TimeRow:
    """Return the time of a pass of all ranks; ``form`` is of one rank's sequences."""
    training = what == TRAINING
    each = replace(given, weight_bytes=None, cache_bytes=None) if training else given
    closed = kernels_of(case, form, each)
    times = PlanTimes(cluster_of(card), RECIPES[given.optimizer], closed.is_causal, each.bytes_each)
    # sp does not divide the one token of a sequence
    own = plan if training else replace(plan, sp=False)
    costs = Ranks(form).costs(own)
    cards, sequences = plan.ranks, plan.dp * (plan.mb if training else 1)
    if training:
        step = times.step(costs, [sent_by(cost) for cost in costs], partial(span, plan=own))
        least, expected, macs = step.least_s * US, step.expected_s * US, training_macs(form)
    else:
        least, expected = times.forward_us(costs, partial(span, plan=own))
        macs = form.macs
    return row_of(what, tokens * sequences, macs * sequences, least, expected, card, cards)
