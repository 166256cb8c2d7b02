"""Custom operators with their own rule, or with a formula that a library registered with torch.

The rule is an attribute ``contractions`` of ``torch.ops.<library>.<name>``. It takes the call's arguments, of which
only shapes are used, and returns each product as (kind, sizes by letter, positions of the operands among the
arguments), or an empty list. Formulas of ``torch.utils.flop_counter.register_flop_formula`` give FLOPs, of which half
are counted.
"""

from typing import Any

from headcount.bench.contractions.product import Product
from headcount.bench.trace.events import Event, TensorFact, tensors_in


def custom_op_products(event: Event) -> list[Product] | None:
    """Return the products of an operation; None if its operator has no rule."""
    if "." not in event.name:
        return None
    operator = _operator(event.name)
    rule = getattr(operator, "contractions", None)
    if rule is None:
        return _registered(operator, event)
    return [Product(sizes, tuple(event.args[i] for i in at), kind) for kind, sizes, at in rule(*event.args)]


def registered_source(name: str) -> str:
    """Return where the formula of an operation without an own rule is registered; "" if it is not."""
    if "." not in name:
        return ""
    from torch.utils.flop_counter import flop_registry

    operator = _operator(name)
    registered = operator in flop_registry and not hasattr(operator, "contractions")
    return "torch.utils.flop_counter" if registered else ""


def _operator(name: str) -> Any:
    """Return ``torch.ops.<library>.<name>``; the names of aten's operations have no library."""
    import torch

    library, _, own = name.partition(".")
    return getattr(getattr(torch.ops, library), own, None)


def _registered(operator: Any, event: Event) -> list[Product] | None:
    """Return the product that a formula registered with torch gives; None without one. Raises ValueError if odd."""
    import torch
    from torch.utils.flop_counter import flop_registry

    if operator not in flop_registry:
        return None

    def tensor(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(tensor, value))
        if not isinstance(value, TensorFact):
            return value
        return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device="meta")

    kwargs = {name: tensor(value) for name, value in event.kwargs.items()}
    flops = flop_registry[operator](*tensor(event.args), **kwargs, out_val=tensor(event.out))
    if flops % 2:
        raise ValueError(f"the formula registered for {event.name} gives {flops:,} FLOPs, which is odd")
    return [Product({"i": flops // 2}, tuple(tensors_in(event.args)), "contraction")]
