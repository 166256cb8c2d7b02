"""Configurations by TARGET text: a preset, or an attention layer by letters, each with NAME=VALUE words behind it.

    llama3-8b,num_layers=2,T=128            fields by their names or letters; T, S and B are input lengths
    moa:K=16,E=32,D=64,d_m=512,T=128        a layer: its variant, then a word for each size

Importable without torch.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from headcount.models.configs.base import AttentionConfig, ConfigError, ModelConfig
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import (
    PRESETS,
    format_overrides,
    format_value,
    label,
    parse_fields,
    parse_overrides,
    preset,
)
from headcount.models.configs.registry import ATTENTIONS

LENGTHS = {
    "seq_len": "sequence length in tokens",
    "src_len": "source length in tokens, of a preset",
    "tgt_len": "target length in tokens, of an encoder-decoder",
    "batch_size": "batch size",
    "image_size": "height and width of an image in pixels",
    "images": "images of a vision-language model",
    "audio": "seconds of sound of a model that takes sound",
}
"""Input lengths of a model by name, with the help text of their options."""
LENGTH_OF_LETTER = {"T": "seq_len", "S": "src_len", "B": "batch_size"}
"""Input length by its letter; T is every length that is not given apart."""


def split(text: str) -> tuple[str, list[str]]:
    """Return the spec of ``TARGET,NAME=VALUE,…`` and its words, split at the commas that a ``NAME=`` follows.

    The spec of a layer is its variant. Raises ConfigError for a layer without sizes, or with a word without =.
    """
    variant, *rest = re.split("[:,]", text, maxsplit=1)
    if variant in ("gqa", "mqa") and text.startswith(f"{variant}:"):
        raise ConfigError(f"{text!r}: grouped- and multi-query attention are mha with g: mha:h=8,g=2,d_m=512,T=128")
    if variant in ATTENTIONS:
        words = [word for part in rest for word in split_words(part)]
        if not words or not all("=" in word for word in words):
            letters = ", ".join(ATTENTIONS[variant].fields_by_letter)
            raise ConfigError(f"{text!r} is no layer; write {variant}:LETTER=N,… of {letters}, T, S and B")
        return variant, words
    spec, *words = split_words(text)
    return spec, words


def length_words(lengths: Mapping[str, int]) -> list[str]:
    """Return the words that set these input lengths of a preset or a layer: T, S where it is another length, and B."""
    tokens = lengths.get("seq_len", lengths.get("tgt_len"))
    source = lengths.get("src_len", tokens)
    words = [] if tokens is None else [f"T={tokens}"]
    words += [f"S={source}"] if source != tokens else []
    words += [f"B={lengths['batch_size']}"] if lengths["batch_size"] != 1 else []
    return words


def join(spec: str, words: Sequence[str]) -> str:
    """Return the TARGET of a preset or a layer with these words; :func:`split` is its inverse."""
    return f"{spec}:{','.join(words)}" if is_layer(spec) else ",".join((spec, *words))


def format_fields(spec: str, values: Mapping[str, Any]) -> list[str]:
    """Return the words that give a preset, or a layer by its letters, the fields of ``values``."""
    if not is_layer(spec):
        return format_overrides(spec, values)
    letters = {field: letter for letter, field in ATTENTIONS[spec].fields_by_letter.items()}
    return [f"{letters.get(field, field)}={format_value(value)}" for field, value in values.items()]


def split_words(text: str) -> list[str]:
    """Return the parts of a text between the commas that a ``NAME=`` follows."""
    return re.split(r",(?=[A-Za-z_][\w.]*=)", text)


def is_layer(spec: str) -> bool:
    """Return whether ``spec`` is that of a layer by letters."""
    return spec in ATTENTIONS


def is_configuration(spec: str) -> bool:
    """Return whether ``spec`` names a configuration, of a file or of the hub, and no code of the user."""
    return spec.endswith(".json") or spec.startswith("hf:")


def has_closed_form(spec: str) -> bool:
    """Return whether ``spec`` is a preset or a layer."""
    return not is_configuration(spec) and ":" not in spec and (spec in PRESETS or is_layer(spec))


def split_lengths(words: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Return the words that are no input lengths, and the lengths by name.

    Raises ConfigError for a length that is no integer.
    """
    rest, lengths = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        length = LENGTH_OF_LETTER.get(name, name)
        if length not in LENGTHS:
            rest.append(word)
            continue
        try:
            lengths[length] = parse_int(value)
        except ValueError:
            raise ConfigError(f"{name} takes a whole number, not {value!r}") from None
    return rest, lengths


def parse(spec: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a preset or a layer from words by field or letter.

    A layer takes the letters of the others too: D and d_h are the head width of each.
    Raises ConfigError, with the valid ones, for any other.
    """
    if not is_layer(spec):
        return parse_overrides(spec, words)
    others: dict[str, str] = {}
    for other in ATTENTIONS.values():
        others = {**other.fields_by_letter, **others}
    letters = ATTENTIONS[spec].fields_by_letter
    return parse_fields(f"a layer of {spec}", words, field_types(None, spec), letters, others, required(spec))


def required(spec: str) -> list[str]:
    """Return the fields of a layer that have no default."""
    return [one.name for one in fields(ATTENTIONS[spec]) if one.default is MISSING]


def lacking(spec: str, values: Mapping[str, Any]) -> list[str]:
    """Return the fields that a layer still needs, with their letters."""
    letters = {field: letter for letter, field in ATTENTIONS[spec].fields_by_letter.items()}
    return [label(name, letters.get(name, name)) for name in required(spec) if name not in values]


def read(text: str, words: Sequence[str] = ()) -> tuple[str, dict[str, Any], dict[str, int]]:
    """Return spec, fields and input lengths of the TARGET of a preset or a layer, with further words behind it."""
    spec, own = split(text)
    rest, lengths = split_lengths([*own, *words])
    return spec, parse(spec, rest), lengths


def make(spec: str, values: Mapping[str, Any]) -> AttentionConfig | ModelConfig:
    """Return the configuration of a preset or a layer with these fields. Raises ConfigError where one is missing."""
    if not is_layer(spec):
        return preset(spec, values)
    if needed := lacking(spec, values):
        raise ConfigError(f"a layer of {spec} needs {', '.join(needed)}")
    return make_config({"attention": spec, **values})
