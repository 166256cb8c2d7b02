"""What of a preset can be derived: its attention and its feed-forward block, built at any sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from bench.errors import UsageError
from bench.ledgers import attention_form
from bench.turning import symbol
from formulas import transformer
from formulas.ledger import Ledger
from formulas.symbols import by_letter
from models.config import ModelConfig
from models.presets import preset
from models.resolve import make_module
from models.transformer import FeedForward


@dataclass(frozen=True)
class Part:
    """``letters`` by the names that the user gave them; ``build`` takes sizes by these names; ``closed`` is the
    closed form with symbols of these names."""

    letters: Mapping[str, str]
    build: Callable[..., tuple[torch.nn.Module, tuple, dict[str, Any]]]
    closed: Ledger


def part(name: str, which: str, overrides: Mapping[str, Any], names: Sequence[str]) -> Part:
    """The attention or the feed-forward block (``which``) of preset ``name`` in the sizes ``names``, which are
    letters of the legend or their words.

    A size that is not named stays the preset's. Without S the keys are the queries; without g there are as many
    key/value heads as heads where the preset has as many. UsageError, with the choices, for an unknown name.
    """
    config = preset(name, overrides)
    return (_attention if which == "attention" else _feed_forward)(config, names)


def _letters(names: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """Letters by given name; ``known`` holds each letter's word."""
    found = {}
    for name in names:
        letter = next((letter for letter, word in known.items() if name in (letter, word)), None)
        if letter is None:
            choices = ", ".join(f"{x} ({word})" if word != x else x for x, word in known.items())
            raise UsageError(f"unknown variable {name!r}; choose from {choices}")
        found[name] = letter
    if len(set(found.values())) < len(names):
        raise UsageError(f"a variable is given twice in {','.join(names)}")
    return found


def _words(config, *letters: str) -> dict[str, str]:
    """The words of ``letters`` and of a configuration's whole numbers."""
    sizes = {letter: field for letter, field in config.fields_by_letter.items() if type(getattr(config, field)) is int}
    return {letter: by_letter(letter).word.partition(",")[0] for letter in letters} | sizes


def _attention(config: ModelConfig, names) -> Part:
    attention = config.attention
    known = _words(attention, "B", "T", "S")
    letters = _letters(names, known)
    tied = attention.variant == "mha" and attention.num_kv_heads == attention.num_heads

    def completed(given: dict[str, Any]) -> dict[str, Any]:
        out = {"B": 1, "T": 10, **given}
        out.setdefault("S", out["T"])
        if tied and "h" in given:
            out.setdefault("g", given["h"])
        return out

    def build(**sizes):
        given = completed({letters[n]: size for n, size in sizes.items()})
        changed = {known[letter]: size for letter, size in given.items() if letter not in ("B", "T", "S")}
        built = replace(attention, **changed)
        with torch.device("meta"):
            lengths = [given["T"]] + ([given["S"]] if "S" in letters.values() else [])
            inputs = tuple(torch.empty(given["B"], length, built.d_model) for length in lengths)
            return make_module(built).eval(), inputs, {}

    sizes = completed({letter: symbol(n) for n, letter in letters.items()})
    lengths = {letter: sizes[letter] for letter in ("B", "T", "S")}
    return Part(letters, build, attention_form(attention, sizes)("", **lengths))


def _feed_forward(config: ModelConfig, names) -> Part:
    letters = _letters(names, {"B": "batch_size", "T": "tgt_len", "d_m": "d_model", "F": "d_ff"})
    fixed = {"B": 1, "T": 10, "d_m": config.d_model, "F": config.d_ff}

    def build(**sizes):
        given = fixed | {letters[n]: size for n, size in sizes.items()}
        with torch.device("meta"):
            x = torch.empty(given["B"], given["T"], given["d_m"])
            return FeedForward(given["d_m"], given["F"], F.relu).eval(), (x,), {}

    closed = transformer.feed_forward("", **(fixed | {letter: symbol(n) for n, letter in letters.items()}))
    return Part(letters, build, closed)
