"""Inputs of a module that are given as sizes and types, as people and other tools write them."""

import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headcount.bench.targets.target import full_dtype
from headcount.models.configs.suggest import did_you_mean

EXAMPLE, IDS = "(1, 3, 224, 224)", "(1, 128)"
"""A size of images, and of ids."""
NUMBERS = re.compile(r"[\s\d,.x()\[\]+-]*\d[\s\d,.x()\[\]+-]*")
"""A text of numbers: a size that is written as a text."""
SETTINGS = re.compile(r"size|shape|resolution|dim|stride|kernel|scale|factor")
"""In the names of keywords that are a module's settings, whose tuples are data."""
INTEGERS = re.compile(r"(ids|mask|labels|positions)$")
FLOATS = re.compile(r"(embeds|embeddings|values|features|states)$")
"""In the names of keywords whose inputs are integers, or floating-point numbers."""


def is_size(value: Any) -> bool:
    """Return whether ``value`` is a sequence of whole numbers from 1 on."""
    return isinstance(value, Sequence) and all(_is_whole(part) and part >= 1 for part in value)


def _is_whole(part: Any) -> bool:
    return isinstance(part, Integral) and not isinstance(part, bool)


def is_numbers(value: Any) -> bool:
    """Return whether ``value`` is a tuple or a list of numbers, which no module takes as data."""
    return (
        isinstance(value, tuple | list)
        and bool(value)
        and all(isinstance(part, Real) and not isinstance(part, bool | Tensor) for part in value)
    )


def positional_sizes(model: Any, inputs: Sequence[Any]) -> Sequence[Any] | None:
    """Return the size, or the sizes, that stand for all positional inputs; None where these are data.

    A tuple of whole numbers is a size, and so are a list of such tuples and several of them behind each other; of a
    module, a list of whole numbers too. Raises ValueError for other numbers, and for a text of numbers.
    """
    only = inputs[0] if len(inputs) == 1 else None
    given = only if only is not None else list(inputs)
    is_module = isinstance(model, nn.Module)
    several = isinstance(given, list | tuple if is_module else list) and all(isinstance(one, tuple) for one in given)
    sizes = list(given) if several else [given]
    if not is_module:
        return given if sizes and all(isinstance(one, tuple) and one and is_size(one) for one in sizes) else None
    _refuse_text(only)
    if sizes and all(isinstance(one, tuple) or one is only for one in sizes) and all(map(is_numbers, sizes)):
        _check(sizes)
        return given
    return None


def keyword_sizes(model: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword inputs of a module that are sizes: tuples or lists of numbers where no input is a tensor.

    Raises ValueError for numbers that are no size, and for a text of numbers.
    """
    leaves = tree_leaves((list(inputs), dict(kwargs)))
    if not isinstance(model, nn.Module) or any(isinstance(leaf, Tensor) for leaf in leaves):
        return {}
    named = {name: value for name, value in kwargs.items() if not SETTINGS.search(name)}
    sizes = {name: value for name, value in named.items() if is_numbers(value)}
    _check(sizes.values())
    return sizes


def _check(sizes: Any) -> None:
    for size in sizes:
        if not is_size(size):
            raise ValueError(f"{size!r} is no size: give whole numbers from 1 on, the batch first, as {EXAMPLE}")


def _refuse_text(value: Any) -> None:
    if isinstance(value, str) and NUMBERS.fullmatch(value):
        raise ValueError(f"{value!r} is a text: give a size as a tuple, {EXAMPLE}")


def parse_dtype(value: Any) -> torch.dtype:
    """Return a type of torch's, its name, ``"long"``, or a type of tensors, ``torch.LongTensor``.

    Raises ValueError for anything else.
    """
    if isinstance(value, torch.dtype):
        return value
    if value in (int, float, bool):
        return {int: torch.long, float: torch.float32, bool: torch.bool}[value]
    name = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    name = name.removeprefix("torch.").removeprefix("cuda.")
    found = getattr(torch, full_dtype(name), None)
    found = getattr(found, "dtype", found)
    if not isinstance(found, torch.dtype):
        names = [name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)]
        raise ValueError(f"dtypes: {value!r} is no type; write torch.long or 'long'{did_you_mean(name, names)}")
    return found


def make_inputs(module: nn.Module, input_size: Any, dtypes: Any = None) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a tensor for each size, those of a mapping by name: ones, or zeros of a type for integers.

    They are on the device of the module. ``input_size`` is one size, a list of sizes or a mapping of sizes by name;
    ``dtypes`` a type or one for each size (default: the weights', or long where the first layer is an embedding; ids
    and masks by name are long). Raises ValueError for anything else.
    """
    named = isinstance(input_size, Mapping)
    sizes = list(input_size.values() if named else input_size) if isinstance(input_size, Sequence | Mapping) else [None]
    if not named and sizes and all(isinstance(size, Real) for size in sizes):
        sizes = [sizes]
    names = list(input_size) if named else [""] * len(sizes)
    weight = next((one for one in module.parameters() if one.is_floating_point()), torch.empty(0))
    usual = torch.long if takes_ids(module) else weight.dtype
    if dtypes is None:
        types = [_usual_dtype(name, usual, weight.dtype) for name in names]
    else:
        several = isinstance(dtypes, Sequence) and not isinstance(dtypes, str)
        types = [parse_dtype(one) for one in (dtypes if several else [dtypes] * len(sizes))]
    if not sizes or len(types) != len(sizes) or not all(size and is_size(size) for size in sizes):
        raise ValueError(
            f"input_size={input_size!r} with dtypes={dtypes!r}: give {EXAMPLE} or a list of such sizes, of numbers "
            "from 1 on, and a type for each"
        )
    made = [
        torch.full(tuple(size), int(dtype.is_floating_point), dtype=dtype, device=weight.device)
        for size, dtype in zip(sizes, types, strict=True)
    ]
    return ((), dict(zip(names, made, strict=True))) if named else (tuple(made), {})


def takes_ids(module: nn.Module) -> bool:
    """Return whether the first layer of a module is an embedding."""
    first = next((one for one in module.modules() if not [*one.children()] and [*one.parameters()]), None)
    return isinstance(first, nn.Embedding | nn.EmbeddingBag)


def _usual_dtype(name: str, usual: torch.dtype, weights: torch.dtype) -> torch.dtype:
    """Return the type of an input by its name; empty where it has none."""
    return torch.long if INTEGERS.search(name) else weights if FLOATS.search(name) else usual
