"""A model's routing of given tokens: checkpoint and token file read with care, every routed layer recorded."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path

import torch
from torch import nn

from headcount.bench.case import Case, ideal_form, ledger_of
from headcount.bench.errors import UsageError, named_file, read_file
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.variants.variant import variant, variants_with
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.base import ConfigError, ModelConfig
from headcount.models.configs.presets import PRESETS

SEPARATOR = "|"
"""Between source and target tokens on a line, for translation models; without it the source is the target."""

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""The types of weights that are computed with."""

Example = tuple[list[int], list[int]]
"""Source and target tokens; the same for a model with one input."""


def load_checkpoint(path: str | Path, config: ModelConfig) -> nn.Module:
    """The model of ``config`` with the tensors of ``path``, a saved state dict.

    Raises UsageError that names the first tensor, in the model's order, that is missing, of another shape or
    not finite, or the first that the model does not have.
    """
    Case("the model", config, dict.fromkeys(config.lengths, 1)).check_runs()
    # compared on meta: a preset that is too large for this machine is named before it is built
    state = _matching(path, build(config, device="meta").state_dict())
    model = build(config, initialise=False)
    model.load_state_dict(state)
    return model


def _matching(path: str | Path, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    file = named_file(path)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:
        # torch raises what pickle, zipfile or its own reader raise for a file that is none of its own
        raise UsageError(f"{path} is no checkpoint: torch cannot read it ({type(error).__name__})") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UsageError(f"{path} is no checkpoint: a mapping from names to tensors is expected")
    for name, tensor in wanted.items():
        if name not in state:
            raise UsageError(f"{path} does not match the preset: it has no {name}")
        if kind := _other_kind(state[name]):
            raise UsageError(f"{path}: {name} is {kind}, no plain tensor of floating point")
        if state[name].shape != tensor.shape:
            raise UsageError(
                f"{path} does not match the preset: {name} is {tuple(state[name].shape)}, not {tuple(tensor.shape)}"
            )
        if not torch.isfinite(state[name]).all():
            raise UsageError(f"{path}: {name} holds values that are not finite")
    for name in state:
        if name not in wanted:
            raise UsageError(f"{path} does not match the preset: the model has no {name}")
    return state


def _other_kind(tensor: torch.Tensor) -> str:
    """What a tensor is where it is none that a model's weight can be; empty for one that can."""
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.is_meta:
        return "without values"
    return "" if tensor.dtype in FLOATS else str(tensor.dtype).removeprefix("torch.")


def read_tokens(path: str | Path, config: ModelConfig) -> list[Example]:
    """Token ids, a sequence on each line. Raises UsageError that names the first line and position that cannot be
    used, or says that there is no token, or that the model takes none."""
    if not hasattr(config, "vocab_size"):
        raise UsageError(f"a {config.variant} model takes no tokens; choose from {', '.join(_taking_tokens())}")
    data = read_file(path)
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text: token ids with spaces between are expected") from None
    examples = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            examples.append(_example(f"{path}: line {number}", line, config))
    if not examples:
        raise UsageError(f"{path} holds no tokens")
    return examples


def _taking_tokens() -> list[str]:
    """The presets that route tokens of a vocabulary."""
    routed = variants_with("routed")
    return [name for name, fields in PRESETS.items() if fields["attention"] in routed and "vocab_size" in fields]


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
        if not word.isascii() or not word.isdigit():
            raise UsageError(f"{where}, position {position}: {word!r} is no token id")
        if int(word) >= vocab_size:
            raise UsageError(f"{where}, position {position}: {word} is not in the vocabulary 0..{vocab_size - 1}")
        ids.append(int(word))
    return ids


@torch.no_grad()
def record(model: nn.Module, examples: Iterable[Example]) -> list[LayerRouting]:
    """Every routed layer of ``model`` over all examples. Raises UsageError for a model that routes nothing."""
    config, modules = model.config, dict(losses.routed_modules(model))
    if not modules:
        raise UsageError(f"no layer of this preset routes tokens; its attention is {config.attention.variant}")
    layers = {path: _empty(path, module) for path, module in modules.items()}
    losses.record_routing(model)
    model.eval()
    for source, target in examples:
        inputs = [source, target] if "tgt_len" in config.lengths else [source]
        model(*(torch.tensor([ids]) for ids in inputs))
        for path, module in modules.items():
            queries = target if path.startswith("decoder.") else source
            keys = source if path.endswith("cross_attn") else queries
            indices = module.router.recorded.routing.indices[0].tolist()
            layers[path].add(queries, indices, row_macs(module.config, len(queries), len(keys)))
    losses.record_routing(model, False)
    return list(layers.values())


def _empty(path: str, module: nn.Module) -> LayerRouting:
    config, routed = module.config, variant(module.config.variant).routed
    return LayerRouting(path, routed, module.router.num_experts, config.top_k, num_shared=routed.shared(config))


def row_macs(config, tgt_len: int, src_len: int) -> Fraction:
    """MACs that one expert, or head, spends on one token: the ledger's entries that are done for each that is used.

    In the form that skips the others, where there is one.
    """
    form = ledger_of(ideal_form(config) or config, {"batch_size": 1, "tgt_len": tgt_len, "src_len": src_len})
    routed = variant(config.variant).routed
    done = sum(entry.macs for entry in form if routed.used in entry.dims)
    return Fraction(done, tgt_len * routed.active(config))
