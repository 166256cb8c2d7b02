"""A point of a grid of sizes by letter: its id, what every counter reads of its layer, and a decode step."""

from functools import cache

from torch import nn

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.models.build import build, example_inputs


def point_id(point):
    """The sizes themselves: T7-K3-E11."""
    return "-".join(f"{letter}{size}" for letter, size in point.items())


def readings(config, point, device="meta"):
    """MACs by counter and parameters of a layer at the lengths of ``point``, and its closed form."""
    lengths = {"batch_size": point["B"], "tgt_len": point["T"], "src_len": point["S"]}
    model, inputs = built(config, device), example_inputs(config, lengths, device=device)
    counted = {name: registry.counter(name).read(model, inputs, label=point_id(point)).macs for name in registry.NAMES}
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
