"""Times of a model on a card by its closed form: prefill, decode step, forward pass and training step. No torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headcount.bench.accounts import (
    RECIPES,
    Assumptions,
    NoAccount,
    context,
    encoder_macs,
    is_layer,
    step,
    with_last_logits,
)
from headcount.bench.case import Case
from headcount.bench.column import Column, plural
from headcount.bench.hardware import Hardware
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import ClosedForm, update
from headcount.bench.performance.kernel import Kernel
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.formulas.backward import training_macs
from headcount.formulas.ledger import Ledger

DTYPE = "bfloat16"
"""The type of products, in which the efficiencies were measured."""
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
    """Return the times of each pass that the model has, or of ``passes``, on one card."""
    rows: list[TimeRow] = []
    for what, make in {PREFILL: _prefill, DECODE: _decode, FORWARD: _forward, TRAINING: _training}.items():
        if passes and what not in passes:
            continue
        try:
            kernels, tokens, macs = make(case, given)
        except NoAccount:
            continue
        # what decodes has its forward pass as prefill
        if what != FORWARD or not any(row.what == PREFILL for row in rows) or is_layer(case):
            rows.append(_row(what, kernels, tokens, macs, card))
    return rows


def table(case: Case, card: Hardware, given: Assumptions, *, passes: Sequence[str] = ()) -> Table[TimeRow]:
    """Return the times of each pass as a table, with how they come about."""
    stored = context(case, given)
    sequences = plural(case.lengths["batch_size"], "sequence")
    where = "" if stored is None else f" Prefill and decode step: {sequences} of {stored:,} tokens in the end."
    return Table(
        "time",
        f"Time on {card.name}, not measured",
        columns_of(TimeRow),
        time_rows(case, card, given, passes=passes),
        [
            f"At least: over the kernels, the longer of bytes over {card.bytes_per_s / 1e12:g} TB/s and MACs over the "
            f"bfloat16 rate, and {model.LEAST_LAUNCH_US:g} us for each. Kernels by the closed form: an operation each, "
            "attention fused, in a CUDA graph.",
            model.load().statement(card),
            f"Training step: forward, backward and the update by {given.optimizer}.{where}",
        ],
    )


def kernels_of(case: Case, form: Ledger, given: Assumptions) -> ClosedForm:
    """Return the kernels of a ledger of ``case``."""
    paths = getattr(case.form, "CAUSAL_PATHS", None)
    # a layer alone may be that of an encoder
    causal = None if is_layer(case) else paths

    def is_causal(path: str) -> bool:
        return causal is not None and re.fullmatch(causal, path) is not None

    return ClosedForm(form, given.bytes_each, is_causal)


def passes_of(case: Case, given: Assumptions, training: bool) -> dict[str, tuple[Ledger, int]]:
    """Return the ledger and the tokens of each pass of a model that generates, or of a training step."""
    if training:
        return {TRAINING: (case.ledger, _tokens(case))}
    try:
        return {PREFILL: _prefill_form(case, given), DECODE: (step(case, context(case, given)), case.samples)}
    except NoAccount:
        return {FORWARD: (case.ledger, _tokens(case))}


def _prefill_form(case: Case, given: Assumptions) -> tuple[Ledger, int]:
    prompt = context(case, given)
    if is_layer(case) or prompt is None:
        raise NoAccount("a layer has a forward pass")
    if encoder_macs(case):
        form = replace(case, sizes={**case.sizes, "T": 0}).ledger.select(lambda entry: entry.size)
    else:
        form = with_last_logits(step(case, prompt, prompt))
    return form, prompt * case.samples


def _prefill(case: Case, given: Assumptions) -> tuple[list[Kernel], int, int]:
    form, tokens = _prefill_form(case, given)
    return kernels_of(case, form, given).forward(), tokens, form.macs


def _decode(case: Case, given: Assumptions) -> tuple[list[Kernel], int, int]:
    form = step(case, context(case, given))
    return kernels_of(case, form, given).forward(), case.samples, form.macs


def _forward(case: Case, given: Assumptions) -> tuple[list[Kernel], int, int]:
    return kernels_of(case, case.ledger, given).forward(), _tokens(case), case.ledger.macs


def _training(case: Case, given: Assumptions) -> tuple[list[Kernel], int, int]:
    form = case.ledger
    each = replace(given, weight_bytes=None, cache_bytes=None)
    closed = kernels_of(case, form, each)
    trained = update(form.params - form.frozen_params, RECIPES[given.optimizer])
    return [*closed.forward(), *closed.backward(), trained], _tokens(case), training_macs(form)


def _tokens(case: Case) -> int:
    """Return the tokens of all sequences, a target's of a translation; the images of a model without a length."""
    return case.samples * (case.lengths.get("tgt_len") or case.length or 1)


def _row(what: str, kernels: list[Kernel], tokens: int, macs: int, card: Hardware) -> TimeRow:
    least, expected = model.least_us(kernels, card, DTYPE), model.load().expected_us(kernels, card, DTYPE)
    return row_of(what, tokens, macs, least, expected, card, kernels=sum(kernel.times for kernel in kernels))


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
