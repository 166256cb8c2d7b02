"""Decompositions of calls that hide operations: the same values, by operations that a trace shows."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import _disable_current_modes

from headcount.bench.trace.masks import attention_arguments

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_EACH = {
    name: getattr(torch.ops.aten, name)
    for name in ("mul", "mul_", "addcmul", "addcmul_", "lerp", "lerp_", "add", "add_", "sub", "sub_")
}


def fused_on_meta(function: Callable, args: tuple, kwargs: dict, only_trained: bool) -> Callable | None:
    """Return ``F.scaled_dot_product_attention`` on meta as a CPU runs it; None where both run alike.

    On meta torch has no fused kernel and stores the scores, which a fused backward recomputes. ``only_trained``: also
    None where no operand needs a gradient.
    """
    if function is not torch.nn.functional.scaled_dot_product_attention:
        return None
    given = attention_arguments(args, kwargs)
    q, k, v, mask = (given.get(name) for name in ("query", "key", "value", "attn_mask"))
    if only_trained and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))):
        return None
    if not (q.is_meta and _is_fused(q, k, v, mask, given)):
        return None

    def fused(*_: Any, **__: Any) -> Tensor:
        added = mask
        if mask is not None and mask.dtype == torch.bool:
            added = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask.logical_not(), float("-inf"))
        operands = [q, k, v]
        if q.dim() == 3:
            # torch 2.14 runs 3 dimensions as a batch of one; the kernel's backward pass on meta takes 4 only.
            operands = [tensor.unsqueeze(0) for tensor in operands]
            if added is not None:
                added = added[(None,) * (4 - added.dim())]
        out = _FLASH(*operands, 0.0, given.get("is_causal", False), attn_mask=added, scale=given.get("scale"))[0]
        return out.squeeze(0) if q.dim() == 3 else out

    return fused


def _is_fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, given: dict[str, Any]) -> bool:
    """Return whether torch uses its fused kernel for CPU tensors of these shapes, all of 4 sizes; allocate nothing."""
    if any(tensor.stride(-1) != 1 for tensor in (q, k, v)):
        return False
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, q.dtype):
        # Attention refuses such a mask; the choice of a kernel does not check it.
        return False
    options = {name: given[name] for name in ("dropout_p", "is_causal", "scale", "enable_gqa") if name in given}
    with _disable_current_modes():
        tensors = [tensor if tensor is None else _on_cpu(tensor) for tensor in (q, k, v, mask)]
        return torch._fused_sdp_choice(*tensors, **options) == SDPBackend.FLASH_ATTENTION.value


def _on_cpu(tensor: Tensor) -> Tensor:
    row = torch.empty(tensor.shape[-1:], dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)
    return row.expand(tensor.shape)


def flex_score(args: tuple, kwargs: dict) -> tuple[int, Callable[[], None]] | None:
    """Return the number of scores of a FlexAttention call, and a function that computes one score and its mask.

    The operator takes both as functions of one score, which its kernels run for each. None if they are no functions.
    """
    q, k, _, score_mod, block_mask = args[:5]
    mask_mod = block_mask[-1]
    of_score, of_mask = args[7:9] if len(args) > 8 else ((), ())
    if not (callable(score_mod) and callable(mask_mod)) or isinstance(score_mod, torch.fx.GraphModule):
        return None
    # A call of FlexAttention has imported it.
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    score = torch.zeros((), dtype=q.dtype, device=q.device)
    places = [torch.zeros((), dtype=torch.long, device=q.device) for _ in range(4)]

    def once() -> None:
        with TransformGetItemToIndex():
            score_mod(score, *places, *of_score)
            mask_mod(*places, *of_mask)

    return q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2], once


def unfold_foreach(name: str, args: tuple, kwargs: dict) -> Callable[[], list[Any]] | None:
    """Return a product or sum of lists of tensors as those of tensors; None for other operations."""
    operation = _EACH.get(name.removeprefix("_foreach_")) if name.startswith("_foreach_") else None
    if operation is None:
        return None

    def calls() -> Iterator[Any]:
        for position in range(len(args[0])):
            own = [value[position] if isinstance(value, list) else value for value in args]
            # The factor of addcmul is the fourth argument for lists, and a keyword for tensors.
            named = {"value": own[3]} if len(own) > 3 else {}
            yield operation(*own[:3], **named, **kwargs)

    return lambda: list(calls())
