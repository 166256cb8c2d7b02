"""Equal layers of a decoder: a configuration with few of them has the terms of all."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from headcount.bench.closed_form.observe import Decoder
from headcount.bench.closed_form.terms import ClosedForm

LAYERS = "num_hidden_layers"
_INDEX = re.compile(r"idx|index|layer_id|layer_number")
"""Attributes of a module that hold the place of its layer."""
_PLAIN = (int, float, bool, str, tuple, type(None))
ORDERED, OTHERS = ("forward", "step"), ("stored", "results", "results_of_one")
"""Terms of a closed form, those that are in the order of the modules and those that are not."""


@dataclass(frozen=True)
class FewerLayers:
    """A decoder with the first layers of another one, and for each layer of that the first one that is equal to it.

    ``prefixes``: the paths of the lists of layers, ``model.layers.``; ``order``: of the modules of the other by path.
    """

    decoder: Decoder
    equal_to: tuple[int, ...]
    prefixes: tuple[str, ...]
    order: Mapping[str, int]

    def repeat(self, form: ClosedForm) -> ClosedForm:
        """Return the form of this decoder with the terms of all layers of the other."""
        found = {name: list(self._all_layers(getattr(form, name))) for name in (*ORDERED, *OTHERS)}
        for name in ORDERED:
            found[name].sort(key=lambda term: self.order.get(term.path, 0))
        return replace(form, **{name: tuple(terms) for name, terms in found.items()})

    def _all_layers(self, terms: Iterable[Any]) -> Iterator[Any]:
        """Yield terms in order, those of all layers of a list where the first term of it is."""
        own: dict[str, dict[int, list[Any]]] = {prefix: {} for prefix in self.prefixes}
        ordered: list[Any] = []
        for term in terms:
            prefix, index, rest = self._split(term.path)
            if index is None:
                ordered.append(term)
                continue
            ordered += [] if own[prefix] else [prefix]
            own[prefix].setdefault(index, []).append((rest, term))
        for one in ordered:
            if not isinstance(one, str):
                yield one
                continue
            for layer, equal in enumerate(self.equal_to):
                yield from (replace(term, path=f"{one}{layer}{rest}") for rest, term in own[one].get(equal, ()))

    def _split(self, path: str) -> tuple[str, int | None, str]:
        """Return the list of a path, the index of its layer and the rest; no index of a path in no layer."""
        for prefix in self.prefixes:
            index, dot, rest = path[len(prefix) :].partition(".")
            if path.startswith(prefix) and index.isdecimal():
                return prefix, int(index), dot + rest
        return "", None, path


def fewer_layers(decoder: Decoder) -> FewerLayers | None:
    """Return the decoder with the fewest first layers to one of which each layer is equal.

    None where these are more than half of all, or where no such decoder can be built. Equal layers have the same
    modules, parameters and attributes; whether they do the same is for the caller to prove.
    """
    number = getattr(decoder.module.config, LAYERS, None)
    prefixes = tuple(_lists(decoder.module, number))
    if type(number) is not int or not prefixes:
        return None
    every = [_signature(decoder.module, prefixes, layer) for layer in range(number)]
    equal_to = tuple(every.index(one) for one in every)
    few = max(2, max(equal_to) + 1)
    if 2 * few > number:
        return None
    config = decoder.module.config.to_dict()
    lists = {name: value[:few] for name, value in config.items() if isinstance(value, list) and len(value) == number}
    try:
        short = decoder.with_fields({LAYERS: few, **lists})
        of_short = [_signature(short.module, prefixes, layer) for layer in range(few)]
    except Exception:
        # a configuration refuses a number of layers by any error
        return None
    return FewerLayers(short, equal_to, prefixes, order_of(decoder)) if of_short == every[:few] else None


def order_of(decoder: Decoder) -> dict[str, int]:
    """Return the place of each module of a decoder by path."""
    return {path: place for place, (path, _) in enumerate(decoder.module.named_modules())}


def _lists(model: nn.Module, number: int | None) -> Iterator[str]:
    """Iterate over the paths of the lists that hold ``number`` modules."""
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == number and not re.search(r"\.\d+\.", f".{path}."):
            yield f"{path}."


def _signature(model: nn.Module, prefixes: Iterable[str], layer: int) -> list[Any]:
    """Return what equal layers share: the classes, parameters and attributes of the modules in each list."""
    found: list[Any] = []
    for prefix in prefixes:
        for path, module in model.get_submodule(f"{prefix}{layer}").named_modules():
            tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            shapes = [(name, tuple(one.shape), one.dtype, one.requires_grad) for name, one in tensors]
            plain = {
                name: value
                for name, value in vars(module).items()
                if isinstance(value, _PLAIN) and not _INDEX.search(name)
            }
            found.append((path, type(module), shapes, plain))
    return found
