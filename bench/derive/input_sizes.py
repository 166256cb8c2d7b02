"""Sizes of a module's inputs that may vary: found by running the module with other ones."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from headcount.bench.derive.symbolic import Build, CannotBuild

Place = tuple[int, int]
"""A tensor by its number among the inputs, and one of its dimensions."""


@dataclass(frozen=True)
class InputSize:
    """A size that several dimensions of inputs may share.

    Attributes:
        name: of its first dimension, as src_0.
        example: its value in the inputs that were given.
        places: its dimensions.
        about: its dimensions in words.
    """

    name: str
    example: int
    places: tuple[Place, ...]
    about: str


def resized(build: Build, sizes: Sequence[InputSize]) -> Build:
    """Return a build of the same module whose inputs have other sizes, by their names; tensors are of ones then."""

    def build_resized(**values: Any) -> tuple[nn.Module, tuple, dict[str, Any]]:
        module, args, kwargs = build()
        found, tree = tree_flatten_with_path((args, kwargs))
        leaves = [leaf for _, leaf in found]
        shapes = {at: list(leaf.shape) for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        for size in sizes:
            for at, dimension in size.places:
                shapes[at][dimension] = values[size.name]
        for at in {at for size in sizes for at, _ in size.places}:
            leaves[at] = leaves[at].new_ones(shapes[at])
        args, kwargs = tree_unflatten(leaves, tree)
        return module, args, kwargs

    return build_resized


def find_input_sizes(
    build: Build, count: Callable[[Build, Mapping[str, int]], Any]
) -> tuple[list[InputSize], list[InputSize]]:
    """Return the sizes of the inputs that may vary, and those that the module fixes.

    Dimensions of one size in the example are one size where the module runs with another value for all of them, else
    each is tried alone. ``count`` raises CannotBuild where the module does not run.
    """
    module, args, kwargs = build()
    groups: dict[int, list[Place]] = {}
    labels: dict[Place, tuple[str, str]] = {}
    parameters = list(inspect.signature(module.forward).parameters)
    for at, (path, leaf) in enumerate(tree_flatten_with_path((args, kwargs))[0]):
        if not isinstance(leaf, torch.Tensor):
            continue
        # the first step is that into the arguments or the keywords
        first, rest = path[1], keystr(path[2:])
        position = getattr(first, "idx", None)
        tensor = str(first.key) if position is None else parameters[min(position, len(parameters) - 1)]
        for dimension, size in enumerate(leaf.shape):
            groups.setdefault(int(size), []).append((at, dimension))
            name = "".join(c if c.isalnum() else "_" for c in f"{tensor}{rest}_{dimension}")
            labels[at, dimension] = name, f"{tensor}{rest}.size({dimension})"

    def make(example: int, places: Sequence[Place]) -> InputSize:
        about = " = ".join(labels[place][1] for place in places)
        return InputSize(labels[places[0]][0], example, tuple(places), about)

    free, fixed = [], []
    for example, places in groups.items():
        together = make(example, places)
        if _may_vary(build, together, count):
            free.append(together)
            continue
        for place in places:
            alone = make(example, [place])
            is_free = len(places) > 1 and _may_vary(build, alone, count)
            (free if is_free else fixed).append(alone)
    order = list(labels)
    return sorted(free, key=lambda size: order.index(size.places[0])), fixed


def _may_vary(build: Build, size: InputSize, count: Callable[[Build, Mapping[str, int]], Any]) -> bool:
    """Return whether the module runs with a multiple of the size, its neighbour or its half."""
    for value in (2 * size.example, size.example + 1, size.example // 2):
        if value and value != size.example:
            with suppress(CannotBuild):
                count(resized(build, [size]), {size.name: value})
                return True
    return False
