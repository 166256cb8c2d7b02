"""Custom operators with their own rule: an attribute ``contractions`` of ``torch.ops.<library>.<name>``.

It takes the call's arguments, of which only shapes are used, and returns each product as (kind, sizes by letter,
positions of the operands among the arguments), or an empty list.
"""

from headcount.bench.trace.events import Event


def custom_op_products(event: Event) -> list[tuple[str, dict[str, int], tuple]] | None:
    """Return kind, sizes and operands of each product of an operation; None if its operator has no rule."""
    library, _, name = event.name.partition(".")
    if not name:
        return None
    import torch

    rule = getattr(getattr(getattr(torch.ops, library), name, None), "contractions", None)
    if rule is None:
        return None
    return [(kind, sizes, tuple(event.args[i] for i in at)) for kind, sizes, at in rule(*event.args)]
