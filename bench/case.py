"""A case: a configuration at input lengths, and its ledgers from formulas/<variant>.py.

Importable without torch.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from importlib import import_module
from types import ModuleType
from typing import Any

from headcount.bench.errors import UsageError
from headcount.formulas import decoding, parts
from headcount.formulas.conventions import Rule
from headcount.formulas.ledger import Entry, Ledger, Size, divide
from headcount.formulas.mha import causal_half
from headcount.formulas.plan import Plan
from headcount.formulas.rank import RankCost, rank_costs
from headcount.models.configs.base import AttentionConfig, ConfigError, Form, Layered, ModelConfig, as_model
from headcount.models.configs.registry import MODELS
from headcount.models.configs.targets import is_layer, make

Config = AttentionConfig | ModelConfig
Sizes = Mapping[str, Size]
"""Sizes by letter: integers, symbols or arrays."""
LIMIT = 2**60
"""Limit of MACs and parameters of a case that runs: torch stores byte counts in 63 bits."""
LENGTHS = {
    "src_len": "source length in tokens",
    "tgt_len": "target length in tokens",
    "seq_len": "sequence length in tokens, of both sides of a translation",
    "batch_size": "batch size",
}
"""Input lengths by name, with the help text of their options."""


@dataclass(frozen=True)
class Case:
    """A configuration at input lengths, with the name that a row or a user gives it; its ledgers are computed once.

    ``preset``: the name of the preset, also where some of its fields are changed; None for a single layer. ``plan``
    divides the case over ranks; the lengths are then those of one rank and microbatch. ``sizes`` replaces letters
    of the closed forms, by symbols or arrays too; nothing checks that they can be built.
    """

    name: str
    config: Config
    lengths: Mapping[str, int]
    preset: str | None = None
    plan: Plan | None = None
    sizes: Mapping[str, Size] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        overrides: Mapping[str, Any] | None = None,
        lengths: Mapping[str, int | None] | None = None,
        *,
        called: str | None = None,
        plan: Plan | None = None,
    ) -> "Case":
        """Return the preset ``name`` with some fields and lengths replaced; ``called`` replaces its name.

        ``name`` may be the variant of a layer, whose fields ``overrides`` are. Raises ConfigError for a name, field,
        value or length that does not exist.
        """
        config = make(name, overrides or {})
        known = None if is_layer(name) else name
        return cls(called or name, config, resolve_lengths(config, lengths or {}), known, plan)

    @property
    def model(self) -> tuple:
        """Return a key that is equal for equal configurations and lengths, whatever their names."""
        return self.config, tuple(sorted(self.lengths.items()))

    @property
    def length(self) -> int | None:
        """The sequence length, of a layer that of its queries; None of a model without one, and of one with two."""
        return self.lengths.get("seq_len" if self.config.variant in MODELS else "tgt_len")

    @property
    def inputs(self) -> Sequence[str]:
        """The input's lengths as text, for which a count has its input tensors."""
        return [describe_input(self.lengths)]

    @property
    def has_paths(self) -> bool:
        """Whether the paths of the ledger name the parts of the model, as those of closed forms do."""
        return True

    @property
    def is_layer(self) -> bool:
        """Whether this is a single attention layer."""
        return self.config.variant not in MODELS

    @property
    def notes(self) -> list[str]:
        """Sentences about the closed form."""
        return []

    @property
    def kernel_notes(self) -> list[str]:
        """Sentences about the operations by which activations and times are counted."""
        return []

    @property
    def samples(self) -> int:
        """The number of sequences or images of the input."""
        return self.lengths["batch_size"]

    @property
    def tokens(self) -> int:
        """The tokens of all sequences; the number of samples of a model without a length."""
        return (self.length or 1) * self.samples

    @property
    def target_tokens(self) -> int | None:
        """The tokens of all sequences, of a translation its target's; None of a model without a length."""
        length = self.lengths.get("tgt_len") or self.lengths.get("seq_len")
        return length and length * self.samples

    @property
    def no_step(self) -> str:
        """Why it does not decode step by step; empty where it does."""
        return getattr(self.form, "NO_DECODE_STEP", "") or (self.config.no_step if self.is_layer else "")

    def cache_elements(self, tokens: Size) -> Size:
        """Return the elements in all caches after ``tokens`` of each sequence, of a model that decodes."""
        return decoding.cache_elements(self.step(tokens))

    @property
    def cache(self) -> Size | None:
        """The elements in all caches after the input's tokens; None of a model that does not decode."""
        return None if self.no_step else self.cache_elements(self.target_tokens // self.samples)

    @property
    def token_cache(self) -> Size | None:
        """The elements that a token adds to the caches of one sequence before a window is full; None as of cache."""
        return None if self.no_step else (self.cache_elements(2) - self.cache_elements(1)) // self.samples

    @property
    def form(self) -> ModuleType:
        """The module of the closed form: of the model, or of a single layer as a model."""
        return model_form(as_model(self.config))

    @cached_property
    def ledger(self) -> Ledger:
        """Return the exact ledger. Raises ConfigError for a length that the model has no positions for."""
        return ledger_of(self.config, self.lengths, self.sizes)

    @property
    def ledger_by_module(self) -> Ledger:
        """The same: its paths are those of the model's modules."""
        return self.ledger

    def part_of(self, entry: Entry) -> str:
        """Return the part that an entry belongs to: attention, feed-forward, vocabulary or other."""
        return parts.ATTENTION if self.is_layer else parts.part_of(entry)

    @property
    def macs(self) -> Size:
        """Multiply-accumulates of one forward pass."""
        return self.ledger.macs

    @property
    def params(self) -> Size:
        """All parameters."""
        return self.ledger.params

    @property
    def active_params(self) -> Size | None:
        """Parameters that a token uses."""
        return self.ledger.active_params

    @property
    def trainable_params(self) -> Size:
        """Parameters that training changes."""
        return self.ledger.params - self.ledger.frozen_params

    def flops_per_token(self, rule: Rule, entries: Ledger | None = None) -> Size:
        """Return the FLOPs per token of a training step, of the whole model or of some ``entries`` of its ledger.

        Whether a rule applies is not asked: bench/training_flops.py does.
        """
        return divide(rule.flops(self.ledger if entries is None else entries, self.tokens), self.tokens)

    def step(self, stored: Size, new: Size = 1) -> Ledger:
        """Return the ledger of ``new`` tokens with ``stored`` in the cache afterwards, of a model that decodes."""
        return ledger_of(self.config, self.lengths, self.sizes, T=new, n=stored - new)

    def stored(self, tokens: int | None, window: int | None) -> int | None:
        """Return how many of the last ``tokens`` tokens a step stores and reads: those of a window, if there is one."""
        if tokens is None or window is None or getattr(self.form, "CAUSAL_PATHS", None) is None:
            return tokens
        return min(tokens, window)

    def masked_macs(self, window: int | None) -> int:
        """Return the MACs without the pairs that a causal mask hides, or those outside of a window.

        Raises UsageError where no attention is causal.
        """
        paths = getattr(self.form, "CAUSAL_PATHS", None)
        if paths is None:
            raise UsageError("no attention is causal")
        if self.is_layer and self.lengths["tgt_len"] > self.lengths["src_len"]:
            raise UsageError("causal queries are the last tokens of the keys, and here are more queries than keys")
        attention = self.ledger.select(lambda entry: re.fullmatch(paths, entry.path))
        return self.ledger.macs - attention.macs + causal_half(attention, window).macs

    @property
    def causal_macs(self) -> int | None:
        """MACs without the pairs that causal masks hide; None where no attention is causal."""
        try:
            return self.masked_macs(None)
        except UsageError:
            return None

    def activation_bytes(self, name: str, element_bytes: int | Fraction | None) -> int | None:
        """Return the bytes of a column of activations where they have a closed form; None where they are measured.

        ``element_bytes``: of a number; None for the types of a run.
        """
        return None

    @cached_property
    def ranks(self) -> tuple[RankCost, ...]:
        """Return the cost of each class of equal ranks of the plan. Raises PlanError for one that does not fit."""
        return rank_costs(self.ledger, self.plan or Plan())

    def check_runs(self) -> None:
        """Raise ConfigError where the case is too large for torch, or has a length without a position."""
        largest = max(self.ledger.macs, self.ledger.params)
        if largest >= LIMIT:
            raise ConfigError(
                f"{self.name} is too large to run: {largest:,} MACs or parameters, at most {LIMIT - 1:,}; closed forms "
                "have no limit (--counter closed-form)"
            )

    @cached_property
    def ideal(self) -> "Case | None":
        """Return the case without the heads that a token does not use; None where the attention has no such form."""
        config = ideal_form(self.config)
        if config == self.config:
            return self
        return None if config is None else replace(self, name=f"{self.name} ideal", config=config)

    @property
    def ideal_ledger(self) -> Ledger | None:
        """Return the exact ledger of the ideal form; None where there is none."""
        return self.ideal and self.ideal.ledger

    def ledger_in(self, letter: str, size: Size) -> Ledger:
        """Return the ledger with ``letter`` replaced in every layer; T is every input length."""
        return ledger_of(self.config, self.lengths, dict.fromkeys(self._tied_letters(letter), size))

    def at(self, letter: str, size: int) -> "Case":
        """Return the case with ``letter`` set to an integer. Raises ConfigError where it cannot be built."""
        if letter == "T":
            if tokens := (layers_of(self.config)[0].fields_by_letter | self.config.fields_by_letter).get("T"):
                raise ConfigError(f"a {self.config.variant} model has no input length; its T is its {tokens}")
            lengths = {name: self.lengths[name] if name == "batch_size" else size for name in self.lengths}
            moved = replace(self, lengths=lengths)
            # a length that the model has no positions for is refused here
            _ = moved.ledger
            return moved
        fields = layers_of(self.config)[0].fields_by_letter
        changed = with_attention(self.config, **{fields[moved]: size for moved in self._tied_letters(letter)})
        return replace(self, config=changed)

    def _tied_letters(self, letter: str) -> tuple[str, ...]:
        """Return ``letter`` and those equal to it by definition: S for T, and g for h where every head has its own."""
        if letter == "T":
            return ("T", "S")
        own = [layer.letters() for layer in layers_of(self.config)]
        tied = letter == "h" and all(sizes.get("g") == sizes["h"] for sizes in own)
        return ("h", "g") if tied else (letter,)

    def letters(self) -> tuple[str, ...]:
        """Return the letters to search for crossovers: T, unless layers set it, and the routing letters that all layers
        share."""
        layer, *others = layers_of(self.config)
        length = () if "T" in layer.fields_by_letter else ("T",)
        sizes, other_sizes = layer.letters(), [other.letters() for other in others]
        shared = (k for k in layer.routing_letters if all(other[k] == sizes[k] for other in other_sizes))
        return (*length, *shared)


def attention_form(config: AttentionConfig, sizes: Sizes | None = None):
    """Return the closed form of one attention layer: a function of ``path``, ``B``, ``T`` and ``S``."""
    return partial(model_form(config).layer, **_replace_sizes(config.letters(), sizes))


def ledger_of(config: Config, lengths: Mapping[str, int], sizes: Sizes | None = None, **step: Size) -> Ledger:
    """Return the exact ledger of a layer or a model for these input lengths (see :func:`resolve_lengths`).

    ``sizes`` replaces letters of the closed form, by symbols or arrays too; nothing checks that they can be built.
    ``step``: the letters of a decode step, T new tokens behind n cached ones.
    """
    model = as_model(config)
    letters = _replace_sizes({**model.letters(), **model.length_letters(lengths)}, sizes)
    return model_form(model).model(attentions(model, sizes), **letters | step)


def model_form(config: Config) -> ModuleType:
    """Return the module of closed forms of an attention or a model.

    A model's has ``model``, and ``NO_DECODE_STEP`` where it decodes no tokens; an attention's has ``layer``.
    """
    return import_module(f"headcount.formulas.{config.variant}")


def attentions(config: ModelConfig, sizes: Sizes | None = None):
    """Return the closed forms of a model's attention: one, one each for encoder and decoder, or one for each layer."""
    if not isinstance(config, Layered):
        own, of_decoder = config.attention, getattr(config, "decoder_attention", config.attention)
        form = attention_form(own, sizes)
        return form if own == of_decoder else (form, attention_form(of_decoder, sizes))
    # one form for all layers that are configured alike: the model's form writes their entries once
    forms = {layer: attention_form(layer, sizes) for layer in dict.fromkeys(config.layers)}
    return [forms[layer] for layer in config.layers]


def _replace_sizes(letters: Mapping[str, Any], sizes: Sizes | None) -> dict[str, Any]:
    return {letter: (sizes or {}).get(letter, value) for letter, value in letters.items()}


def ideal_form(config: Config) -> Config | None:
    """Return ``config`` with its attention in the ideal form; None where there is one form only."""
    return with_attention(config, form=Form.IDEAL) if hasattr(layers_of(config)[0], "form") else None


def layers_of(config: Config) -> tuple[AttentionConfig, ...]:
    """Return a model's attention layers: all where they may differ, else the one that all share; a layer itself."""
    if isinstance(config, Layered):
        return config.layers
    return (config.attention if config.variant in MODELS else config,)


def with_attention(config: Config, **fields: Any) -> Config:
    """Return ``config`` with ``fields`` of every attention layer changed.

    Derived defaults keep their values. Raises ConfigError where the result cannot be built.
    """
    if isinstance(config, Layered):
        changed = {layer: replace(layer, **fields) for layer in set(config.layers)}
        return replace(config, layers=tuple(changed[layer] for layer in config.layers))
    if config.variant in MODELS:
        return replace(config, attention=replace(config.attention, **fields))
    return replace(config, **fields)


def resolve_lengths(config: Config, given: Mapping[str, int | None]) -> dict[str, int]:
    """Return the input lengths of ``config``: its defaults, replaced by those of ``given`` that are not None.

    ``seq_len`` sets every length of a model that has several. Raises ConfigError for a length below 1
    or one that the model does not have.
    """
    lengths = dict(config.lengths)
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    if "seq_len" in given and "src_len" in lengths:
        both = given.pop("seq_len")
        given = {"src_len": both, "tgt_len": both} | given
    for name, value in given.items():
        if name not in lengths:
            images = "; its number of tokens follows from the image's size" if set(lengths) == {"batch_size"} else ""
            raise ConfigError(f"{config.variant} has no {name}; choose from {', '.join(lengths)}{images}")
        lengths[name] = value
    return lengths


def describe_input(lengths: Mapping[str, Any]) -> str:
    """Return lengths as text: ``batch_size 1, src_len 10, tgt_len 10``."""
    return ", ".join(f"{name} {value}" for name, value in lengths.items())
