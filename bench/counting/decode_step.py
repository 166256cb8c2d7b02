"""A decode step of a user module: one new token of each sequence, with a cache that the model itself has filled."""

import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.targets.user_code import UserCodeError, run_user_code

CACHES = ("past_key_values", "cache")
"""Names of the cache in ``forward`` and in its result, by version of transformers."""
IDS = ("decoder_input_ids", "input_ids")
"""Names of the new tokens in ``forward``; that of a decoder with an encoder comes first."""
CACHE_ELEMENTS = "cache_elements"
"""The attribute of a module that states how many numbers it keeps of the tokens of its input, of all sequences."""


@dataclass(frozen=True)
class DecodeStep:
    """The call of a step, and the elements of the cache before and after it. ``batch``: its sequences.

    ``new``: elements of the new token. A library that drops the oldest token of a full window stores fewer than a step
    reads.
    """

    module: nn.Module
    kwargs: dict[str, Any]
    batch: int
    before: int
    after: int
    new: int

    @property
    def read(self) -> int:
        """The elements that the step reads, those of the new token included."""
        return self.before + self.new


def decode_step(
    module: nn.Module, args: tuple, kwargs: dict[str, Any], context: int | None, window: int | None = None
) -> DecodeStep:
    """Return the step after which ``context`` tokens are stored (default: as many as the inputs have).

    Of those the last ``window`` at most: a step that attends to no others is that of a shorter context. The module is
    changed: it takes the tensors of its cache in place of the cache. Raises UserCodeError for one that takes no cache,
    or that returns none.
    """
    names = list(inspect.signature(module.forward).parameters)
    inputs = {**dict(zip(names, args, strict=False)), **kwargs}
    name = next((name for name in CACHES if name in names), None)
    tokens = next((name for name in IDS if name in inputs), None)
    if name is None or tokens is None:
        takes = ", ".join(names)
        known = "a cache is known of presets, layers by letters and Hugging Face decoders"
        own = f"an integer {CACHE_ELEMENTS} of a module states its own kv_bytes, as self.{CACHE_ELEMENTS} = 2 * T * d"
        raise UserCodeError(f"{known}; {type(module).__name__} takes {takes}; {own}")
    ids = inputs.pop(tokens)
    length = context or ids.shape[1]
    stored = min(length, window or length) - 1
    if stored < 1:
        raise UserCodeError(f"{stored + 1} token in the context or the window: a step with a cache needs at least 2")
    others = inputs if tokens == IDS[0] else {}
    options = {"use_cache": True} if "use_cache" in names else {}

    def fill(number: int) -> Any:
        """Return the result of a run of ``number`` tokens with an empty cache."""
        prompt = {tokens: ids[:, :1].expand(-1, number)}
        return run_user_code("filling the cache", lambda: module(**others, **options, **prompt))

    with torch.no_grad():
        filled = fill(stored)
        cache = getattr(filled, name, None)
        if cache is None:
            raise UserCodeError(f"{type(module).__name__} returned no {name}: it does not decode step by step")
        step = {**options, tokens: ids[:, :1]}
        if others:
            from transformers.modeling_outputs import BaseModelOutput

            step["encoder_outputs"] = BaseModelOutput(last_hidden_state=filled.encoder_last_hidden_state)
        tensors = list(tensors_of_cache(cache))

        def make(values: list[Tensor]) -> Any:
            """Return a cache of tensors: a run adds tokens to its own cache alone."""
            return copy.deepcopy(cache, {id(old): new for old, new in zip(tensors, values, strict=True)})

        grown = make(tensors)
        run_user_code("a decode step", lambda: module(**step, **{name: grown}))
        before, after = _elements(cache), _elements(grown)
        new = after - before
        if before != stored * new:
            # a window may be full, and drop as much as it stores: two short runs tell what a token adds
            one, two = (_elements(getattr(fill(number), name)) for number in (1, 2))
            new = max(new, two - one)
    module.register_forward_pre_hook(lambda _, args, kw: (args, {**kw, name: make(kw[name])}), with_kwargs=True)
    return DecodeStep(module, {**step, name: tensors}, len(ids), before, after, new)


def stated_cache(module: nn.Module) -> dict[str, int]:
    """Return the numbers that modules state to keep, by class. Raises UserCodeError for a statement that is none."""
    found: dict[str, int] = {}
    for one in module.modules():
        if not hasattr(one, CACHE_ELEMENTS):
            continue
        name, stated = type(one).__name__, getattr(one, CACHE_ELEMENTS)
        if not isinstance(stated, int) or isinstance(stated, bool) or stated < 0:
            raise UserCodeError(f"{CACHE_ELEMENTS} of {name} must be a whole number of at least 0, not {stated!r}")
        found[name] = found.get(name, 0) + stated
    return found


def _elements(cache: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_of_cache(cache) if tensor.is_floating_point())


def tensors_of_cache(value: Any) -> Iterator[Tensor]:
    """Iterate over the tensors of an object: of its attributes, and of those in lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_of_cache(part)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from tensors_of_cache(vars(value))
