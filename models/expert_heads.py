"""Attention of slots, each of which is one expert's heads, on key/value heads that all experts share."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from headcount.models.rotary import Rotary, rotate


def attend_slots(
    query: Float[Tensor, "batch tgt slots width"],
    key: Float[Tensor, "batch src kv_heads head_dim"],
    value: Float[Tensor, "batch src kv_heads head_dim"],
    *,
    attend: Callable,
    rotary: Rotary | None = None,
    **core,
) -> Float[Tensor, "batch tgt slots width"]:
    """``attend`` for slots of g heads side by side, of width D = g c: head j of every slot reads key/value head j.

    ``rotary`` turns each head of a query; keys are turned already.
    """
    num_kv_heads, num_slots = key.shape[2], query.shape[2]
    if num_kv_heads == 1:
        return attend(rotate(query, rotary), key, value, **core)
    heads = query.unflatten(-1, (num_kv_heads, -1))
    # the heads that share a key/value head must lie side by side
    heads = rotate(heads.transpose(2, 3).flatten(2, 3), rotary)
    out = attend(heads, key, value, **core)
    return out.unflatten(2, (num_kv_heads, num_slots)).transpose(2, 3).flatten(3)
