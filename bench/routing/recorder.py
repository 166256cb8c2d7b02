"""Record which experts or heads every routed layer of a model selects for given tokens."""

from collections.abc import Iterable
from fractions import Fraction

import torch
from torch import nn

from headcount.bench.case import ideal_form, ledger_of
from headcount.bench.errors import UsageError
from headcount.bench.routing.inputs import Example
from headcount.bench.routing.stats import LayerRouting
from headcount.bench.variants.variant import variant
from headcount.models import losses


@torch.no_grad()
def record(model: nn.Module, examples: Iterable[Example]) -> list[LayerRouting]:
    """Return the routing of every routed layer of ``model`` over all examples.

    Raises UsageError for a model without a routed layer.
    """
    config, modules = model.config, dict(losses.routed_modules(model))
    if not modules:
        raise UsageError(f"no layer of this preset routes tokens; its attention is {config.attention.variant}")
    layers = {}
    for path, module in modules.items():
        routed, experts = variant(module.config.variant).routed, module.router.num_experts
        layers[path] = LayerRouting(path, routed, experts, module.config.top_k, routed.shared(module.config))
    losses.record_routing(model)
    model.eval()
    for source, target in examples:
        inputs = [source, target] if "tgt_len" in config.lengths else [source]
        model(*(torch.tensor([ids]) for ids in inputs))
        for path, module in modules.items():
            queries = target if path.startswith("decoder.") else source
            keys = source if path.endswith("cross_attn") else queries
            indices = module.router.recorded.indices[0].tolist()
            layers[path].add(queries, indices, row_macs(module.config, len(queries), len(keys)))
    losses.record_routing(model, False)
    return list(layers.values())


def row_macs(config, tgt_len: int, src_len: int) -> Fraction:
    """Return the MACs of one expert, or head, for one token.

    These are the ledger's entries per used expert, in the form that skips unselected ones where a variant has one.
    """
    form = ledger_of(ideal_form(config) or config, {"batch_size": 1, "tgt_len": tgt_len, "src_len": src_len})
    routed = variant(config.variant).routed
    macs = sum(entry.macs for entry in form if routed.used in entry.dims)
    return Fraction(macs, tgt_len * routed.active(config))
