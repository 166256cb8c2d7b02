"""A point of a grid of sizes by letter: its id, what counters read of its layer, and a decode step."""

from functools import cache

import pytest
from torch import nn

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.models.build import build, example_inputs


def point_id(point):
    """The sizes themselves: T7-K3-E11."""
    return "-".join(f"{letter}{size}" for letter, size in point.items())


def by_turns(grid):
    """Each point with the two counters that read it: those take turns from a size to the next one, in every letter."""
    places = {letter: list(dict.fromkeys(point[letter] for point in grid)) for letter in grid[0]}
    turns = [sum(places[letter].index(size) for letter, size in point.items()) % 2 for point in grid]
    return [
        pytest.param(point, registry.NAMES[turn::2], id=point_id(point))
        for point, turn in zip(grid, turns, strict=True)
    ]


def readings(config, point, device="meta", counters=registry.NAMES):
    """MACs by counter and parameters of a layer at the lengths of ``point``, and its closed form."""
    lengths = {"batch_size": point["B"], "tgt_len": point["T"], "src_len": point["S"]}
    model, inputs = built(config, device), example_inputs(config, lengths, device=device)
    counted = {name: registry.counter(name).read(model, inputs, label=point_id(point)).macs for name in counters}
    return counted, sum(parameter.numel() for parameter in model.parameters()), ledger_of(config, lengths)


@cache
def built(config, device="meta"):
    """One module for equal configurations: a counter leaves it as it was."""
    return build(config, device=device)


class Step(nn.Module):
    """A decode step: the layer with a cache that already holds ``past`` tokens."""

    def __init__(self, layer, batch_size, past):
        super().__init__()
        self.layer, self.batch_size, self.past = layer, batch_size, past

    def forward(self, query):
        cache = self.layer.make_cache(self.batch_size, self.past + 1, device=query.device)
        cache.length = self.past
        return self.layer(query, cache=cache)
