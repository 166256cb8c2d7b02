"""From a configuration and input lengths to its ledger: formulas/<variant>.py with the config's letters.

Importable without torch.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from headcount.formulas.ledger import Ledger, Size
from headcount.models.configs.base import AttentionConfig, ConfigError, ModelConfig
from headcount.models.configs.models import Layered
from headcount.models.configs.moh import Form
from headcount.models.configs.registry import MODELS


def attention_form(config: AttentionConfig, sizes: Mapping[str, Size] | None = None):
    """The closed form of one attention layer: a function of ``path``, ``B``, ``T`` and ``S``."""
    return partial(import_module(f"headcount.formulas.{config.file}").layer, **_replaced(config.letters(), sizes))


def ledger_of(
    config: AttentionConfig | ModelConfig, lengths: Mapping[str, int], sizes: Mapping[str, Size] | None = None
) -> Ledger:
    """The exact ledger of a layer or a model for inputs of these lengths (see :func:`resolve_lengths`).

    ``sizes`` replaces letters of the closed form, by symbols or arrays too; nothing checks that they can be built.
    """
    if config.variant not in MODELS:
        letters = {"B": lengths["batch_size"], "T": lengths["tgt_len"], "S": lengths["src_len"]}
        return attention_form(config, sizes)("", **_replaced(letters, sizes))
    letters = {**config.letters(), **config.length_letters(lengths)}
    return model_form(config).model(attentions(config, sizes), **_replaced(letters, sizes))


def model_form(config: ModelConfig) -> ModuleType:
    """The module with a model's closed forms: ``model``, and ``step`` where it decodes, else ``NO_STEP``, why not."""
    return import_module(f"headcount.formulas.{config.variant}")


def attentions(config: ModelConfig, sizes: Mapping[str, Size] | None = None):
    """What a model's closed form takes: the form of its attention, or one for each layer."""
    if not isinstance(config, Layered):
        return attention_form(config.attention, sizes)
    # one form for all layers that are configured alike: the model's form writes their entries once
    forms = {layer: attention_form(layer, sizes) for layer in config.layers}
    return [forms[layer] for layer in config.layers]


def _replaced(letters: Mapping[str, Any], sizes: Mapping[str, Size] | None) -> dict[str, Any]:
    return {letter: (sizes or {}).get(letter, value) for letter, value in letters.items()}


def ideal_form(config: AttentionConfig | ModelConfig) -> AttentionConfig | ModelConfig | None:
    """``config`` without the heads that a token does not use; None where no attention has such a form."""
    attention = config.attention if config.variant in MODELS else config
    return with_attention(config, form=Form.IDEAL) if hasattr(attention, "form") else None


def layers_of(config: ModelConfig) -> tuple[AttentionConfig, ...]:
    """A model's attention layers: each of them where they may differ, else the one that all share."""
    return config.layers if isinstance(config, Layered) else (config.attention,)


def with_attention(config: AttentionConfig | ModelConfig, **fields: Any) -> AttentionConfig | ModelConfig:
    """``config`` with ``fields`` of every attention layer changed and all others as they are, defaults that were
    derived included. ConfigError where it cannot be built."""
    if isinstance(config, Layered):
        changed = {layer: replace(layer, **fields) for layer in set(config.layers)}
        return replace(config, layers=tuple(changed[layer] for layer in config.layers))
    if config.variant in MODELS:
        return replace(config, attention=replace(config.attention, **fields))
    return replace(config, **fields)


def resolve_lengths(config: AttentionConfig | ModelConfig, given: Mapping[str, int | None]) -> dict[str, int]:
    """The input lengths of ``config``: its defaults, replaced by those of ``given`` that are not None.

    ``seq_len`` stands for every length of a model that has several. Raises ConfigError for a length below 1
    or one that the model does not have.
    """
    lengths = dict(config.lengths)
    given = {name: value for name, value in given.items() if value is not None}
    if "seq_len" in given and "src_len" in lengths:
        both = given.pop("seq_len")
        given = {"src_len": both, "tgt_len": both} | given
    for name, value in given.items():
        if name not in lengths:
            raise ConfigError(f"{config.variant} has no {name}; choose from {', '.join(lengths)}")
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
        lengths[name] = value
    return lengths


def describe_input(lengths: Mapping[str, Any]) -> str:
    """Lengths as one phrase: ``batch_size 1, src_len 10, tgt_len 10``."""
    return ", ".join(f"{name} {value}" for name, value in lengths.items())
