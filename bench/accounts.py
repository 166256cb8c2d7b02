"""Accounts on request: cache, decoding, training, intensity and peak activations, each a projection of the ledger.

Importable without torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any

from headcount.bench.case import attention_form, attentions, ledger_of, model_form
from headcount.bench.errors import UsageError
from headcount.bench.table import Column
from headcount.formulas import backward, decoding, layer
from headcount.formulas.activations.schedule import NoSchedule
from headcount.formulas.ledger import Ledger, Size
from headcount.models.configs.base import AttentionConfig, ModelConfig

SWITCHES = ("renormalise", "gates")
"""Fields without a letter that change which tensors there are."""

CACHE_ELEMENT_BYTES = 2
"""Of whatever a cache stores: bfloat16."""


class NoAccount(Exception):
    """A subject has no such account; the message says why."""


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
    """A layer or a model at input lengths, under assumptions."""

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

    def step(self, stored: int, new: int = 1) -> Ledger:
        """The work on ``new`` tokens, ``stored`` after them. NoAccount for a model that does not decode."""
        if self.is_layer:
            return layer.step(attention_form(self.config), B=self.batch_size, new=new, stored=stored)
        return decode_step(self.config, self.lengths, new, stored)

    def prefill_macs(self) -> int:
        """What comes before the first step, an encoder and its output's keys and values: the model without target
        tokens, but for what it does in any step."""
        if self.is_layer:
            return 0
        whole = model_form(self.config).model(attentions(self.config), **self._letters(), T=0)
        return whole.macs - self.step(0, 0).macs

    def _letters(self) -> dict[str, Any]:
        letters = {**self.config.letters(), **self.config.length_letters(self.lengths)}
        # steps have lengths of their own
        del letters["T"]
        return letters

    def forward(self) -> Ledger:
        """One forward pass at the input's lengths."""
        return ledger_of(self.config, self.lengths)


def decode_step(
    config: ModelConfig,
    lengths: Mapping[str, int],
    new: int,
    stored: int,
    sizes: Mapping[str, Size] | None = None,
) -> Ledger:
    """A model's work on ``new`` tokens, ``stored`` after them; ``sizes`` replaces letters of its attention.

    Raises NoAccount, with the model's own reason, where it does not decode.
    """
    form = model_form(config)
    if not hasattr(form, "step"):
        raise NoAccount(form.NO_STEP)
    letters = {**config.letters(), **config.length_letters(lengths)}
    # steps have lengths of their own
    del letters["T"]
    return form.step(attentions(config, sizes), **letters, new=new, stored=stored)


def _of_step(account: Callable[[Subject, Ledger], Any]) -> Callable[[Subject], Any]:
    """``account`` of the step that fills the context."""
    return lambda subject: account(subject, subject.step(subject.context))


def kv_token_bytes(subject: Subject) -> int:
    """Bytes that one more token of one sequence adds to the cache."""
    return CACHE_ELEMENT_BYTES * decoding.written(subject.step(1)) // subject.batch_size


def kv_bytes(step: Ledger) -> Size:
    """Bytes of the caches after ``step``, an encoder's output included."""
    return CACHE_ELEMENT_BYTES * decoding.held(step)


def decode_macs(subject: Subject, step: Ledger) -> int:
    """Multiply-accumulates of the step after which the context is stored."""
    return step.macs


def decode_bytes(subject: Subject, step: Ledger) -> int:
    """Bytes that this step must move: weights, the cache, the new keys and values."""
    return decoding.step_elements(step) * subject.given.element_bytes


def decode_intensity(subject: Subject, step: Ledger) -> Fraction:
    """MACs of the step per byte that it must move."""
    return Fraction(step.macs, decode_bytes(subject, step))


def decode_bound(subject: Subject, step: Ledger) -> str:
    """The side of the roofline: which of the given peaks the step meets first."""
    return _side(subject, decode_intensity(subject, step))


def _side(subject: Subject, intensity: Fraction) -> str:
    ridge = Fraction(subject.given.peak_macs_per_s) / Fraction(subject.given.bytes_per_s)
    return "compute" if intensity >= ridge else "memory"


def generate_macs(subject: Subject) -> int:
    """MACs of generating tokens one by one into an empty cache, an encoder's pass included."""
    steps = subject.given.generate or subject.context
    return decoding.total(lambda stored: subject.step(stored).macs, steps) + subject.prefill_macs()


def generate_bytes(subject: Subject) -> int:
    """Bytes that those steps must move, one after the other; the encoder's pass is left out."""
    steps = subject.given.generate or subject.context
    return decoding.total(lambda stored: decode_bytes(subject, subject.step(stored)), steps)


def forward_bytes(subject: Subject) -> int:
    """Bytes that any forward pass moves: used weights once, and a layer's input and output once."""
    form, lengths = subject.forward(), subject.lengths
    elements = sum(decoding.weights_read(entry) for entry in form)
    if subject.is_layer:
        tokens = [lengths["tgt_len"]] * 2
        # a layer that attends to itself reads one input
        tokens += [lengths["src_len"]] if lengths["src_len"] != lengths["tgt_len"] else []
        elements += lengths["batch_size"] * sum(tokens) * subject.config.d_model
    return elements * subject.given.element_bytes


def forward_intensity(subject: Subject) -> Fraction:
    """MACs of a forward pass per byte that it must move; a training step has three times both."""
    return Fraction(subject.forward().macs, forward_bytes(subject))


def forward_bound(subject: Subject) -> str:
    """The side of the roofline of a forward pass, and of a training step."""
    return _side(subject, forward_intensity(subject))


def training_macs(subject: Subject) -> int:
    """MACs of a training step: forward and backward, without the optimiser."""
    return backward.training_macs(subject.forward())


def _peak(subject: Subject, pass_name: str) -> int:
    config, lengths = subject.config, subject.lengths
    if not subject.is_layer:
        raise NoAccount("peak bytes are of layers by themselves, not of whole models")
    try:
        schedules = import_module(f"headcount.formulas.activations.{config.file}")
    except ModuleNotFoundError:
        raise NoAccount(f"no schedule of a {config.variant} layer's tensors") from None
    sizes = {"B": lengths["batch_size"], "T": lengths["tgt_len"], "S": lengths["src_len"]}
    sizes |= {"element_bytes": subject.given.element_bytes, **config.letters()}
    sizes |= {name: getattr(config, name) for name in SWITCHES if hasattr(config, name)}
    run = getattr(schedules, pass_name)(**sizes)
    return run.peak_bytes


@dataclass(frozen=True)
class Account:
    """A column and how its value comes about; ``of_heads`` where skipping unselected heads changes it."""

    column: Column
    value: Callable[[Subject], Any]
    of_heads: bool


def _account(name: str, head: str, value: Callable[[Subject], Any], of_heads: bool = True, **options: Any) -> Account:
    width = 11 if "kind" in options else 14
    return Account(Column(name, head, **({"kind": "int", "width": width} | options)), value, of_heads)


ACCOUNTS = {
    account.column.key: account
    for account in (
        _account("kv_token_bytes", "KV cache\nper token\nbytes (2 each)", kv_token_bytes, False),
        _account("kv_bytes", "KV cache\nbytes (2 each)", _of_step(lambda _, step: kv_bytes(step)), False),
        _account("decode_macs", "decode step\nMACs", _of_step(decode_macs)),
        _account("decode_bytes", "decode step\nbytes", _of_step(decode_bytes)),
        _account("decode_intensity", "decode step\nMACs/byte", _of_step(decode_intensity), kind="fixed", digits=3),
        _account("decode_bound", "decode step\nbound by", _of_step(decode_bound), kind="text"),
        _account("generate_macs", "generation\nMACs", generate_macs, width=19),
        _account("generate_bytes", "generation\nbytes", generate_bytes, width=19),
        _account("forward_bytes", "forward\nleast bytes", forward_bytes),
        _account("forward_intensity", "forward\nMACs/byte", forward_intensity, kind="fixed", digits=3),
        _account("forward_bound", "forward\nbound by", forward_bound, kind="text"),
        _account("training_macs", "training step\nMACs", training_macs, width=19),
        _account("peak_forward_bytes", "forward\npeak bytes", partial(_peak, pass_name="forward")),
        _account("peak_training_bytes", "training\npeak bytes", partial(_peak, pass_name="training")),
    )
}
NEEDS_PEAKS = ("decode_bound", "forward_bound")


def check(names: Sequence[str], given: Assumptions) -> None:
    """Raise UsageError for columns that do not exist, twice the same, or that need peaks nobody gave."""
    for name in names:
        if name not in ACCOUNTS:
            raise UsageError(f"unknown column {name!r}; choose from {', '.join(ACCOUNTS)}")
        if name in NEEDS_PEAKS and (given.peak_macs_per_s is None or given.bytes_per_s is None):
            raise UsageError(f"column {name} needs --peak-macs and --bandwidth")
    if len(set(names)) != len(names):
        raise UsageError(f"a column is given twice in {', '.join(names)}")


def values(names: Sequence[str], subject: Subject) -> tuple[dict[str, Any], dict[str, str]]:
    """The raw values of columns by name; for each that ``subject`` has not, None, and why."""
    found, missing = {}, {}
    for name in names:
        try:
            found[name] = ACCOUNTS[name].value(subject)
        except (NoAccount, NoSchedule) as reason:
            found[name], missing[name] = None, str(reason)
    return found, missing
