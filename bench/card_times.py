"""Times of a model on a card by its closed form: prefill, decode step, forward pass and training step. No torch.

Under a plan they are those of all its ranks together.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from headcount.bench.accounts import (
    RECIPES,
    Account,
    Assumptions,
    NoAccount,
    context,
    encoder_macs,
    step,
    with_last_logits,
)
from headcount.bench.case import Case
from headcount.bench.column import Column, plural
from headcount.bench.hardware import Hardware
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import ClosedForm, total_macs, update
from headcount.bench.performance.plan_time import ASSUMED, DTYPE, PlanTimes, cluster_of, sent_by, span
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.formulas.backward import training_macs
from headcount.formulas.ledger import Ledger, MaskedEntry
from headcount.formulas.plan import Plan, PlanError
from headcount.formulas.rank import Ranks

ALL_PAIRS = (
    "Kernels skip the pairs that masks hide: At least may be below the MACs of MFU over the rate, and MFU above 100 %."
)
PREFILL, DECODE, FORWARD, TRAINING = "prefill", "decode step", "forward pass", "training step"


@dataclass(frozen=True)
class TimeRow(Row):
    """The time of a pass.

    Attributes:
        what: the pass.
        tokens: tokens that it reads, or adds to the sequences; None where they are not known.
        least_ms, expected_ms: milliseconds.
        tokens_per_s: tokens over the expected time.
        mfu: the exact multiply-accumulates, of all pairs of tokens, over those of the card's peak in the expected time,
            in percent.
    """

    what: str = shown(Column, "pass", priority=0)
    tokens: int | None = shown(Column, "tokens", kind="int", of="tokens", priority=1)
    least_ms: float = shown(Column, "at least", "ms", kind="fixed", digits=3, priority=0)
    expected_ms: float = shown(Column, "expected", "ms", kind="fixed", digits=3, priority=0)
    tokens_per_s: float | None = shown(Column, "tokens per\nsecond", kind="fixed", digits=0, priority=0)
    mfu: float = shown(Column, "MFU", "%", kind="fixed", digits=1, priority=1)
    kernels: int | None = shown(Column, "kernels", kind="int", priority=2)


def time_rows(case: Case, card: Hardware, given: Assumptions, *, passes: Sequence[str] = ()) -> list[TimeRow]:
    """Return the times of each pass that the model has, or of ``passes``, on one card or on those of its plan.

    Raises PlanError where the plan divides none of them.
    """
    return _rows(case, card, given, passes)[0]


def _rows(
    case: Case, card: Hardware, given: Assumptions, passes: Sequence[str]
) -> tuple[list[TimeRow], dict[str, PlanError]]:
    """Return the times, and of the passes that the plan does not divide the reasons."""
    rows: list[TimeRow] = []
    refused: dict[str, PlanError] = {}
    for what, find_form in FORMS.items():
        if passes and what not in passes:
            continue
        try:
            form, tokens = find_form(case, given)
            # what decodes has its forward pass as prefill
            if what != FORWARD or not any(row.what == PREFILL for row in rows) or case.is_layer:
                rows.append(_row(what, case, given, card, form, tokens))
        except NoAccount:
            continue
        except PlanError as error:
            refused[what] = error
    if refused and not rows:
        raise next(iter(refused.values()))
    return rows, refused


def table(case: Case, card: Hardware, given: Assumptions, *, passes: Sequence[str] = ()) -> Table[TimeRow]:
    """Return the times of each pass as a table, with how they come about."""
    stored = context(case, given)
    sequences = plural(case.lengths["batch_size"], "sequence")
    rows, refused = _rows(case, card, given, passes)
    where = "" if stored is None else f" Prefill and decode step: {sequences} of {stored:,} tokens in the end."
    return Table(
        "time",
        f"Time on {card.name}, not measured",
        columns_of(TimeRow),
        rows,
        [
            f"At least: over the kernels, the longer of bytes over {card.bytes_per_s / 1e12:g} TB/s and MACs over the "
            f"bfloat16 rate, and {model.LEAST_LAUNCH_US:g} us for each. Kernels by the closed form: an operation each, "
            "attention fused, in a CUDA graph.",
            model.load().statement(card),
            f"Training step: forward, backward and the update by {given.optimizer}.{where}",
            "MFU: the exact MACs of the pass, of every pair of tokens, over the peak; no rule of --rules.",
            *_mask_notes(case),
            *case.kernel_notes,
            *_plan_notes(case.plan, card),
            *(f"No {what}: {error}." for what, error in refused.items()),
            *([ALL_PAIRS] if any(_skips_pairs(row.what, case, given) for row in rows) else []),
        ],
    )


def kernels_of(case: Case, form: Ledger, given: Assumptions) -> ClosedForm:
    """Return the kernels of a ledger of ``case``."""
    paths = getattr(case.form, "CAUSAL_PATHS", None)
    # a layer alone may be that of an encoder
    causal = None if case.is_layer else paths

    def is_causal(path: str) -> bool:
        return causal is not None and re.fullmatch(causal, path) is not None

    return ClosedForm(form, given.bytes_each, is_causal)


def _skips_pairs(what: str, case: Case, given: Assumptions) -> bool:
    """Return whether the kernels of a pass have fewer multiply-accumulates than its ledger."""
    form, _ = FORMS[what](case, given)
    return total_macs(kernels_of(case, form, given).forward()) < form.macs


def _mask_notes(case: Case) -> list[str]:
    """Return why every pair of tokens counts, where masks of a configuration are not known."""
    reason = getattr(case.config, "no_mask", "")
    scores = [entry for entry in case.ledger if entry.kind == "scores"]
    has_masks = any(isinstance(entry, MaskedEntry) for entry in scores)
    return [f"Attention counts every pair of tokens: {reason}."] if reason and scores and not has_masks else []


def _plan_notes(plan: Plan | None, card: Hardware) -> list[str]:
    """Return the links between the cards of a plan, and what runs during what."""
    if plan is None:
        return []
    links = cluster_of(card).statement()
    return [
        f"On {plan.ranks:,} cards under {plan}. {links}. Tokens and MFU are those of all cards.",
        f"Assumed: {ASSUMED}. Prefill, decode step and forward pass go through the stages in turn, and wait for sends.",
    ]


def _prefill_form(case: Case, given: Assumptions) -> tuple[Ledger, int]:
    prompt = context(case, given)
    if case.is_layer or prompt is None:
        raise NoAccount("a layer has a forward pass")
    if encoder_macs(case):
        form = replace(case, sizes={**case.sizes, "T": 0}).ledger.select(lambda entry: entry.size)
    else:
        form = with_last_logits(step(case, prompt, prompt))
    return form, prompt * case.samples


def _decode_form(case: Case, given: Assumptions) -> tuple[Ledger, int]:
    return step(case, context(case, given)), case.samples


def _form(case: Case, _: Assumptions) -> tuple[Ledger, int]:
    return case.ledger, _tokens(case)


FORMS = {PREFILL: _prefill_form, DECODE: _decode_form, FORWARD: _form, TRAINING: _form}
"""Returns the ledger and the tokens of each pass. Raises NoAccount for a model without it."""


def _tokens(case: Case) -> int:
    """Return the tokens of all sequences, a target's of a translation; the images of a model without a length."""
    return case.target_tokens or case.samples


def _row(what: str, case: Case, given: Assumptions, card: Hardware, form: Ledger, tokens: int) -> TimeRow:
    """Return the time of a pass on one card, or on those of the case's plan."""
    if case.plan is not None:
        return PlanPass(what, case, given).row(case.plan, card)
    closed, macs = kernels_of(case, form, _types(what, given)), form.macs
    kernels = closed.forward()
    if what == TRAINING:
        trained = form.params - form.frozen_params
        kernels += [*closed.backward(), update(trained, RECIPES[given.optimizer])]
        macs = training_macs(form)
    least, expected = model.least_us(kernels, card, DTYPE), model.load().expected_us(kernels, card, DTYPE)
    return row_of(what, tokens, macs, least, expected, card, kernels=sum(kernel.times for kernel in kernels))


def _types(what: str, given: Assumptions) -> Assumptions:
    """Return the types of a pass: bytes of weights and caches are given for generation alone."""
    return replace(given, weight_bytes=None, cache_bytes=None) if what == TRAINING else given


class PlanPass:
    """A pass of a model under plans; what plans have in common is computed once.

    Raises NoAccount for a model without the pass.
    """

    def __init__(self, what: str, case: Case, given: Assumptions) -> None:
        self._what, self._recipe = what, RECIPES[given.optimizer]
        self._form, self._tokens = FORMS[what](case, given)
        self._closed = kernels_of(case, self._form, _types(what, given))
        self._ranks = Ranks(self._form)
        self._times: dict[str, PlanTimes] = {}

    def row(self, plan: Plan, card: Hardware) -> TimeRow:
        """Return the time of all ranks; the model's sequences are those of one. Raises PlanError and UsageError."""
        if card.name not in self._times:
            closed = self._closed
            self._times[card.name] = PlanTimes(cluster_of(card), self._recipe, closed.is_causal, closed.each)
        times, training = self._times[card.name], self._what == TRAINING
        own = plan if training else plan.generating
        costs = self._ranks.costs(own)
        sequences = plan.dp * (plan.mb if training else 1)
        if training:
            found = times.step(costs, [sent_by(cost) for cost in costs], partial(span, plan=own))
            least, expected, macs = found.least_s * model.US, found.expected_s * model.US, training_macs(self._form)
        else:
            least, expected = times.forward_us(costs, partial(span, plan=own))
            macs = self._form.macs
        return row_of(self._what, self._tokens * sequences, macs * sequences, least, expected, card, plan.ranks)


def row_of(
    what: str,
    tokens: int | None,
    macs: int,
    least_us: float,
    expected_us: float,
    card: Hardware,
    cards: int = 1,
    kernels: int | None = None,
    dtype: str = DTYPE,
) -> TimeRow:
    """Return the row of a pass on ``cards`` cards."""
    seconds = expected_us / model.US
    mfu = 100 * macs / (seconds * cards * card.macs_per_s[dtype])
    rate = None if tokens is None else tokens / seconds
    return TimeRow(what, tokens, least_us / 1000, expected_us / 1000, rate, mfu, kernels)


def _expected_ms(name: str, what: str) -> None:
    """Register the expected time of a pass as the account ``name``."""

    def value(case: Case, given: Assumptions) -> float:
        assert given.card
        rows = time_rows(case, given.card, given, passes=[what])
        if not rows:
            raise NoAccount(f"it has no {what}")
        return rows[0].expected_ms

    value.__name__ = name
    Account(f"expected\n{what}", "time", needs=("card",), kind="fixed", digits=3, unit="ms")(value)


TIMES = {"prefill_ms": PREFILL, "decode_ms": DECODE, "forward_ms": FORWARD, "training_ms": TRAINING}
"""The pass of each account of an expected time."""
for _account, _pass in TIMES.items():
    _expected_ms(_account, _pass)
