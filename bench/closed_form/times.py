"""Times of a target on a card: by its closed form, else by the kernels of a run. Imports no torch."""

from collections.abc import Sequence

from headcount.bench import card_times
from headcount.bench.accounts import Assumptions
from headcount.bench.card_times import TimeRow
from headcount.bench.closed_form.case import case_of
from headcount.bench.counting import target_times
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Hardware
from headcount.bench.result import Table
from headcount.bench.targets.target import Target, is_configuration
from headcount.formulas.plan import Plan
from headcount.models.configs.targets import has_closed_form


def time_table(
    target: Target, card: Hardware, given: Assumptions, *, plan: Plan | None = None, passes: Sequence[str] = ()
) -> Table[TimeRow]:
    """Return the times of each pass of a target, or of ``passes``, on one card or on those of a plan.

    Raises UsageError for a module under a plan, and what case_of and run_isolated do.
    """
    if has_closed_form(target.spec):
        return card_times.table(case_of(target, plan=plan), card, given, passes=passes)
    reason = ""
    if is_configuration(target.spec):
        try:
            return card_times.table(case_of(target, plan=plan), card, given, passes=passes)
        except UsageError as error:
            # of a plan there are no other times
            if plan is not None or "seq_len" not in target.lengths:
                raise
            reason = str(error)
    elif plan is not None:
        raise UsageError(f"{target.spec}: a plan divides presets, layers and config.json")
    return target_times.time_table(target, card, passes=passes, reason=reason)
