"""Read checkpoints and token files; errors name the first tensor, line or position that is wrong."""

import textwrap
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.bench.case import Case
from headcount.bench.errors import UsageError, named_file, read_file
from headcount.bench.variants.variant import variants_with
from headcount.models.build import build
from headcount.models.configs.base import ConfigError, ModelConfig
from headcount.models.configs.numbers import LONGEST
from headcount.models.configs.presets import PRESETS

SEPARATOR = "|"
"""Separates source and target tokens on a line; without it the source is the target too."""

LONGEST_REASON = 300
"""Characters of torch's reason, which may name thousands of tensors."""

Example = tuple[list[int], list[int]]
"""Source and target tokens; the same for a model with one input."""


def load_checkpoint(path: str | Path, config: ModelConfig) -> nn.Module:
    """Return the model of ``config`` with the tensors of ``path``, a saved state dict.

    Raises UsageError for a file that holds none, with torch's reason for tensors that do not fit the model, and naming
    the first tensor that is not finite.
    """
    Case("the model", config, dict.fromkeys(config.lengths, 1)).check_runs()
    state = _read_state(path)
    # on meta first, so that a mismatch is reported before a large model is built
    _load(build(config, device="meta"), path, state, assign=True)
    model = build(config, initialise=False)
    _load(model, path, state)
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise UsageError(f"{path}: {name} holds values that are not finite")
    return model


def _read_state(path: str | Path) -> dict[str, torch.Tensor]:
    file = named_file(path)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:
        # torch raises whatever pickle, zipfile or its own reader raise for a file that is no checkpoint
        raise UsageError(f"{path} is no checkpoint: torch cannot read it ({type(error).__name__})") from None
    is_state = isinstance(state, dict) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    )
    if not is_state:
        raise UsageError(f"{path} is no checkpoint: a mapping from names to tensors is expected")
    for name, value in state.items():
        if value.is_complex():
            raise UsageError(f"{path}: {name} is complex; a model has real weights")
    # without the metadata of a state dict, in which torch keeps ``assign`` for the next load
    return dict(state)


def _load(model: nn.Module, path: str | Path, state: dict[str, torch.Tensor], **options: Any) -> None:
    try:
        model.load_state_dict(state, **options)
    except RuntimeError as error:
        raise UsageError(f"{path} does not match the preset: {textwrap.shorten(str(error), LONGEST_REASON)}") from None


def read_tokens(path: str | Path, config: ModelConfig) -> list[Example]:
    """Return the token sequences of a file, one on each line.

    Raises UsageError naming the first wrong line and position, for a file without tokens and for a model that takes
    no tokens.
    """
    if not hasattr(config, "vocab_size"):
        routed = variants_with("routed")
        names = (name for name, given in PRESETS.items() if given["attention"] in routed and "vocab_size" in given)
        raise UsageError(f"a {config.variant} model takes no tokens; choose from {', '.join(names)}")
    lines = enumerate(read_file(path).decode(errors="replace").splitlines(), 1)
    examples = [_example(f"{path}: line {number}", line, config) for number, line in lines if line.strip()]
    if not examples:
        raise UsageError(f"{path} holds no tokens")
    return examples


def _example(where: str, line: str, config: ModelConfig) -> Example:
    source, separator, target = line.partition(SEPARATOR)
    if separator and "tgt_len" not in config.lengths:
        raise UsageError(f"{where}: {SEPARATOR!r} is for translation models")
    ids = _ids(where, source, config.vocab_size, 1)
    both = ids, _ids(where, target, config.vocab_size, len(ids) + 1) if separator else ids
    if not all(both):
        raise UsageError(f"{where}: no tokens on one side of {SEPARATOR!r}")
    try:
        config.length_letters({"batch_size": 1, "seq_len": len(ids), "src_len": len(ids), "tgt_len": len(both[1])})
    except ConfigError as error:
        raise UsageError(f"{where}: {error}") from None
    return both


def _ids(where: str, text: str, vocab_size: int, first: int) -> list[int]:
    ids = []
    for position, word in enumerate(text.split(), first):
        if not word.isascii() or not word.isdigit() or len(word) > LONGEST:
            raise UsageError(f"{where}, position {position}: {word[:LONGEST]!r} is no token id")
        if int(word) >= vocab_size:
            raise UsageError(f"{where}, position {position}: {word} is not in the vocabulary 0..{vocab_size - 1}")
        ids.append(int(word))
    return ids
