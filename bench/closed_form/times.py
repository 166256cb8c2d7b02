"""Times of a target on a card: by its closed form, else by the kernels of a run. Imports no torch."""

from collections.abc import Sequence
from dataclasses import replace

from headcount.bench import card_times
from headcount.bench.accounts import RECIPES, Assumptions
from headcount.bench.card_times import FORWARD, TRAINING, TimeRow, row_of
from headcount.bench.closed_form.case import case_of
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Hardware
from headcount.bench.output.progress import stage
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import total_macs, update
from headcount.bench.performance.kernel import Kernel
from headcount.bench.result import Table, columns_of
from headcount.bench.targets.process import run_isolated
from headcount.bench.targets.target import Target, is_configuration
from headcount.formulas.plan import Plan
from headcount.models.configs.targets import has_closed_form

RECORD = "headcount.bench.counting.kernels:record_target"
OPTIMIZER = "adamw-mixed"
"""The optimizer of a training step."""


def time_table(
    target: Target, card: Hardware, given: Assumptions, *, plan: Plan | None = None, passes: Sequence[str] = ()
) -> Table[TimeRow]:
    """Return the times of each pass of a target, or of ``passes``, on one card or on those of a plan.

    Raises UsageError for a module under a plan, and what case_of and run_isolated do.
    """
    reason, is_file = "", is_configuration(target.spec)
    if is_file or has_closed_form(target.spec):
        try:
            return card_times.table(case_of(target, plan=plan), card, given, passes=passes)
        except UsageError as error:
            # a run has no times of a preset or a plan
            if not is_file or plan is not None or "seq_len" not in target.lengths:
                raise
            reason = str(error)
    elif plan is not None:
        raise UsageError(f"{target.spec}: a plan divides presets, layers and config.json")
    return _table_of_run(target, card, passes, reason)


def _table_of_run(target: Target, card: Hardware, passes: Sequence[str], reason: str) -> Table[TimeRow]:
    """Return the time of a forward pass and of a training step, or of those of ``passes``, by the kernels of a run.

    ``reason``: why there is no closed form. Raises UsageError for passes without one of these, and what run_isolated
    does.
    """
    if passes and not {FORWARD, TRAINING} & {*passes}:
        why = f"{target.spec}: the kernels of a run are those of a {FORWARD} and a {TRAINING}"
        raise UsageError(f"{why}; {reason}" if reason else why)
    plain = replace(target, plan=None, backward=False)
    with stage(f"recording the kernels of {target.spec}"):
        found = run_isolated(RECORD, plain, code=[target.spec], label=target.spec)
    card.check(found.dtype)
    rows = [_row(FORWARD, found.forward, found.forward, card, found.dtype)]
    notes = [
        f"At least: over the kernels of a run in {found.dtype} on meta tensors, the longer of bytes over "
        f"{card.bytes_per_s / 1e12:g} TB/s and MACs over the type's rate, and {model.LEAST_LAUNCH_US:g} us for each. "
        "Each operation is a kernel as it runs without a compiler, torch's fused attention one.",
        model.load().statement(card),
    ]
    if found.training:
        step = (*found.training, update(found.trained, RECIPES[OPTIMIZER]))
        rows.append(_row(TRAINING, step, found.training, card, found.dtype))
        notes.append(f"Training step: forward, backward from every output, and the update by {OPTIMIZER}.")
    else:
        notes.append(f"No training step: {found.reason}.")
    if reason:
        notes.append(f"By a run: {reason}.")
    if passes:
        rows = [row for row in rows if row.what in passes]
        if not rows:
            raise UsageError(f"{target.spec}: no training step: {found.reason}")
    columns = [column for column in columns_of(TimeRow) if column.key not in ("tokens", "tokens_per_s")]
    return Table("time", f"Time on {card.name}, not measured", columns, rows, notes)


def _row(what: str, kernels: tuple[Kernel, ...], counted: tuple[Kernel, ...], card: Hardware, dtype: str) -> TimeRow:
    least, expected = model.least_us(kernels, card, dtype), model.load().expected_us(kernels, card, dtype)
    number = sum(kernel.times for kernel in kernels)
    return row_of(what, None, total_macs(counted), least, expected, card, kernels=number, dtype=dtype)
