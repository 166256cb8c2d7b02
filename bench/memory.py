"""Columns on request: cache, decoding, training, intensity and peak activations, each a projection of the ledger.

Importable without torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from bench.errors import UsageError
from bench.ledgers import attention_form, describe_input, ledger_of
from bench.sections import Row, Section
from bench.table import Column, Table
from formulas import activations_mha, activations_moa, decoding
from formulas.ledger import Ledger
from models.config import AttentionConfig, ModelConfig


@dataclass(frozen=True)
class Assumptions:
    """``context``: stored tokens, None for the input's; ``generate``: tokens made one by one, None for
    ``context``; peaks of the hardware, None where nobody gave them."""

    context: int | None = None
    generate: int | None = None
    element_bytes: int = 4
    peak_macs_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class Subject:
    """A layer or a model at input lengths, under assumptions; accounts that it does not have are None."""

    config: AttentionConfig | ModelConfig
    lengths: Mapping[str, int]
    given: Assumptions

    @property
    def context(self) -> int | None:
        """Tokens in the cache after the step; None for a model of images, which has no length."""
        return self.given.context or self.lengths.get("tgt_len") or self.lengths.get("seq_len")

    @property
    def batch_size(self) -> int:
        """Sequences that are decoded at once."""
        return self.lengths["batch_size"]

    @property
    def is_layer(self) -> bool:
        """Whether this is an attention layer by itself."""
        return not hasattr(self.config, "attention")

    def step(self, stored: int, new: int = 1) -> Ledger | None:
        """The work on ``new`` tokens, ``stored`` after them; None for a model that does not decode."""
        if self.is_layer:
            return decoding.attention_step(attention_form(self.config), "", B=self.batch_size, new=new, stored=stored)
        if self.config.variant != "encoder_decoder":
            return None
        letters = self.config.letters() | {"B": self.batch_size, "S": self.lengths["src_len"]}
        form = attention_form(self.config.attention)
        return decoding.encoder_decoder_step(form, **letters, new=new, stored=stored)

    def prefill(self) -> Ledger:
        """What comes before the first step: an encoder-decoder reads its source."""
        if self.is_layer:
            return Ledger(())
        letters = self.config.letters() | {"B": self.batch_size, "S": self.lengths["src_len"]}
        return decoding.encoder_decoder_prefill(attention_form(self.config.attention), **letters)

    def stored(self, context: int | None = None) -> Ledger | None:
        """What projected the keys and values in the cache: ``context`` own tokens, and the source's."""
        tokens = context or self.context
        step = self.step(tokens, tokens)
        # of the prefill, an encoder's own keys and values are gone when it is done
        return step and step + self.prefill().select(lambda entry: entry.path.startswith("decoder."))

    def forward(self) -> Ledger:
        """One forward pass at the input's lengths."""
        return ledger_of(self.config, self.lengths)


def _of_step(account: Callable[[Subject, Ledger], Any]) -> Callable[[Subject], Any]:
    """``account`` of the step that fills the context, None for what does not decode."""

    def value(subject: Subject):
        step = subject.step(subject.context)
        return None if step is None else account(subject, step)

    return value


def kv_token_bytes(subject: Subject) -> int | None:
    """Bytes that one more token of one sequence adds to the cache."""
    step = subject.step(1)
    return step and decoding.cached_elements(step) // subject.batch_size * subject.given.element_bytes


def kv_bytes(subject: Subject) -> int | None:
    """Bytes of the cache at the context, an encoder's output included."""
    stored = subject.stored()
    return stored and decoding.cached_elements(stored) * subject.given.element_bytes


def decode_macs(subject: Subject, step: Ledger) -> int:
    """Multiply-accumulates of the step after which the context is stored."""
    return step.macs


def decode_bytes(subject: Subject, step: Ledger) -> int:
    """Bytes that this step must move: weights, the cache, the new keys and values."""
    return decoding.step_elements(step, subject.stored()) * subject.given.element_bytes


def decode_intensity(subject: Subject, step: Ledger) -> Fraction:
    """MACs of the step per byte that it must move."""
    return Fraction(step.macs, decode_bytes(subject, step))


def decode_bound(subject: Subject, step: Ledger) -> str:
    """The side of the roofline: which of the given peaks the step meets first."""
    ridge = Fraction(subject.given.peak_macs_per_s) / Fraction(subject.given.bytes_per_s)
    return "compute" if decode_intensity(subject, step) >= ridge else "memory"


def generate_macs(subject: Subject) -> int | None:
    """MACs of generating tokens one by one into an empty cache, an encoder's pass included."""
    if subject.step(1) is None:
        return None
    steps = subject.given.generate or subject.context
    return subject.prefill().macs + decoding.total(lambda stored: subject.step(stored).macs, steps)


def generate_bytes(subject: Subject) -> int | None:
    """Bytes that those steps must move, one after the other; the encoder's pass is left out."""
    if subject.step(1) is None:
        return None

    def moved(stored: int) -> int:
        elements = decoding.step_elements(subject.step(stored), subject.stored(stored))
        return elements * subject.given.element_bytes

    return decoding.total(moved, subject.given.generate or subject.context)


def training_macs(subject: Subject) -> int:
    """MACs of a training step: forward and backward, without the optimiser."""
    return decoding.training_macs(subject.forward())


def _peak(subject: Subject, pass_name: str) -> int | None:
    config, lengths = subject.config, subject.lengths
    # at width 1 other reshapes copy than the schedules know
    if getattr(config, "head_dim", 1) == 1:
        return None
    sizes = {"B": lengths["batch_size"], "T": lengths.get("tgt_len"), "S": lengths.get("src_len")}
    sizes |= {"element_bytes": subject.given.element_bytes}
    if config.variant == "mha":
        form = {"forward": activations_mha.forward, "training": activations_mha.training}[pass_name]
        return form(**sizes, **config.letters()).peak_bytes
    # models hold more than their layers; biased experts and the gate's noise have no training schedule
    if config.variant != "moa" or config.noisy or (pass_name == "training" and config.bias):
        return None
    sizes |= {letter: size for letter, size in config.letters().items() if letter not in ("bias", "noisy")}
    if pass_name == "forward":
        return activations_moa.forward(**sizes, bias=config.bias, renormalise=config.renormalise).peak_bytes
    run = activations_moa.training(**sizes, renormalise=config.renormalise)
    return run and run.peak_bytes


@dataclass(frozen=True)
class Account:
    """A column and how its value comes about."""

    column: Column
    value: Callable[[Subject], Any]


def _account(name: str, head: str, value: Callable[[Subject], Any], **options: Any) -> Account:
    return Account(Column(name, head, **({"kind": "int", "width": 11} | options)), value)


ACCOUNTS = {
    account.column.key: account
    for account in (
        _account("kv_token_bytes", "KV cache\nper token\nbytes", kv_token_bytes),
        _account("kv_bytes", "KV cache\nbytes", kv_bytes),
        _account("decode_macs", "decode step\nMACs", _of_step(decode_macs)),
        _account("decode_bytes", "decode step\nbytes", _of_step(decode_bytes)),
        _account("decode_intensity", "decode step\nMACs/byte", _of_step(decode_intensity), kind="fixed", digits=3),
        _account("decode_bound", "decode step\nbound by", _of_step(decode_bound), kind="text"),
        _account("generate_macs", "generation\nMACs", generate_macs, width=14),
        _account("generate_bytes", "generation\nbytes", generate_bytes, width=14),
        _account("training_macs", "training step\nMACs", training_macs, width=14),
        _account("peak_forward_bytes", "forward\npeak bytes", partial(_peak, pass_name="forward")),
        _account("peak_training_bytes", "training\npeak bytes", partial(_peak, pass_name="training")),
    )
}
NEEDS_PEAKS = ("decode_bound",)


def check(names: Sequence[str], given: Assumptions) -> None:
    """Raise UsageError for columns that do not exist, twice the same, or that need peaks nobody gave."""
    for name in names:
        if name not in ACCOUNTS:
            raise UsageError(f"unknown column {name!r}; choose from {', '.join(ACCOUNTS)}")
        if name in NEEDS_PEAKS and (given.peak_macs_per_s is None or given.bytes_per_s is None):
            raise UsageError(f"column {name} needs --peak-macs and --bandwidth")
    if len(set(names)) != len(names):
        raise UsageError(f"a column is given twice in {', '.join(names)}")


def statement(given: Assumptions) -> str:
    """What the columns assume, in words."""
    context = f"{given.context}" if given.context else "as many as the input has"
    steps = f"{given.generate}" if given.generate else "as many as the context"
    return (
        f"{given.element_bytes} bytes per element. Context: tokens stored after a decode step, {context}; generated "
        f"tokens: {steps}. Bytes of a step: weights once, stored keys and values once, new ones once. Training: "
        "forward and backward, no optimiser. Peak bytes: what the reference layer allocates, as executed."
    )


def values(names: Sequence[str], subject: Subject) -> dict[str, Any]:
    """The raw values of columns by name, None where a subject has no such account."""
    return {name: ACCOUNTS[name].value(subject) for name in names}


def extended(
    section: Section,
    names: Sequence[str],
    given: Assumptions,
    subject_of: Callable[[Row], tuple[Any, Mapping[str, int]]],
) -> Section:
    """``section`` with columns before its last; ``subject_of`` gives a row's configuration and input lengths."""
    table = section.table
    columns = [*table.columns[:-1], *(ACCOUNTS[name].column for name in names), table.columns[-1]]
    notes = [*table.notes_above, statement(given)]

    def rows() -> Iterator[Row]:
        for row in section.rows:
            extra = values(names, Subject(*subject_of(row), given))
            records = [{**record, **plain(extra)} for record in row.records]
            yield Row({**row.values, **extra}, row.notes, records, row.failures)

    layout = Table(table.name, table.title, columns, notes, table.note_column)
    return Section(layout, rows(), section.below, section.facts)


def section_of(name: str, heading: str, names: Sequence[str], subject: Subject) -> Section:
    """A section of one row: the columns of one preset."""
    table = Table(
        f"{name}-memory",
        f"{heading}: memory and decoding",
        [Column("preset", "preset", width=20), *(ACCOUNTS[column].column for column in names)],
        notes_above=[f"Input: {describe_input(subject.lengths)}.", statement(subject.given)],
    )
    found = values(names, subject)
    return Section(table, [Row({"preset": name, **found}, records=[{"preset": name, **plain(found)}])])


def plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Values for JSON, which knows no fractions."""
    return {name: float(value) if isinstance(value, Fraction) else value for name, value in found.items()}
