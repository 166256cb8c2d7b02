"""Rules that give the matrix products of a recorded operation from its shapes: b times (m, i) by (i, j)."""

from collections.abc import Mapping
from functools import partial

import torch

from headcount.bench.contractions.products.attention import ATTENTION
from headcount.bench.contractions.products.convolution import CONVOLUTIONS
from headcount.bench.contractions.products.dense import DENSE
from headcount.bench.contractions.products.libraries import LIBRARIES, by_attribute, by_flops
from headcount.bench.contractions.products.product import Product, Rule
from headcount.bench.contractions.products.sparse import SPARSE, of_stored_elements
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.trace.events import Event

RULES: Mapping[str, Rule] = {**DENSE, **SPARSE, **CONVOLUTIONS, **ATTENTION, **LIBRARIES}


def products(event: Event) -> list[Product] | None:
    """Return the contractions of an operation; None if neither this table nor the operator has a rule for the call."""
    rule, _ = find_rule(event.name)
    return rule(event) if rule else None


def find_rule(name: str) -> tuple[Rule | None, str]:
    """Return the rule of an operation, and the registry of another library that has it, else "".

    A custom operator may have a rule as attribute ``contractions`` of ``torch.ops.<library>.<name>``: it takes the
    call's arguments, of which only shapes are used, and returns each product as (kind, sizes by letter, positions of
    the operands among the arguments), or an empty list. Of formulas of
    ``torch.utils.flop_counter.register_flop_formula``, which give FLOPs, half are counted.
    """
    if rule := RULES.get(base(name)):
        return partial(of_stored_elements, rule), ""
    if "." not in name:
        # an operation of aten
        return None, ""
    # it imports triton, which is slow
    from torch.utils.flop_counter import flop_registry

    library, _, own = name.partition(".")
    operator = getattr(getattr(torch.ops, library), own, None)
    if rule := getattr(operator, "contractions", None):
        return partial(by_attribute, rule), ""
    if formula := flop_registry.get(operator):
        return partial(by_flops, formula), "torch.utils.flop_counter"
    return None, ""
