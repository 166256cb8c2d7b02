"""MoA by Triton kernels: rows ordered without a sort, multiplied where they lie, gates applied in an epilogue.

Where K = E no row is ordered: the router's logits are columns of the keys' and values' product, and gates are a softmax
in the epilogue of attention, or factors in the output product. The operators and their gradients are in
``models/kernels/triton_ops.py``.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.attention import Inputs
from headcount.models.configs.base import ConfigError
from headcount.models.experts import to_autocast_dtype
from headcount.models.kernels import triton_ops as ops
from headcount.models.kernels.dense_all import add_bias, add_selected_bias, all_queries, sum_experts
from headcount.models.kernels.fused import fused_attend
from headcount.models.kernels.segments import sort_rows
from headcount.models.kernels.triton_configs import MOST_KEYS_OF_MQA, WIDEST_HEAD_OF_DECODE, WIDEST_HEAD_OF_MQA
from headcount.models.moa import attend_slots
from headcount.models.router import Routing
from headcount.models.shapes import Queries, QueryMask

# by compilation for compute capability 9.0: heads of 128 need 262,144 bytes of shared memory, and 232,448 are there
WIDEST_FLOAT32_HEAD = 64


def run(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return the reference's output. Raises ConfigError for a dtype that the kernels do not take."""
    inputs = inputs._replace(query=to_autocast_dtype(inputs.query))
    check_dtype(inputs.query)
    every = layer.config.top_k == layer.config.num_experts
    return (_all_experts if every else _selected)(layer, inputs)


def check_dtype(x: Float[Tensor, "*shape"]) -> None:
    """Raise ConfigError for a dtype without matrix products in Triton."""
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ConfigError(f"implementation triton takes bfloat16, float16 and float32, not {x.dtype}")


def needs_gradient(*tensors: Tensor) -> bool:
    """Return whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _all_experts(layer: nn.Module, inputs: Inputs) -> Tensor:
    x, router, logits, hidden = inputs.query, layer.router, inputs.packed, inputs.key_padding_mask
    if router.is_recorded:
        logits = router(x, inputs.query_padding_mask, ranked=False, logits=logits).logits
    else:
        router.recorded, logits = None, router.proj(x) if logits is None else logits
    q = all_queries(layer, x)
    if not _in_one_kernel(q, inputs, logits):
        gates, out = torch.softmax(logits, dim=-1), attend_slots(q, inputs, fused_attend)
        w_o = to_autocast_dtype(layer.out_proj.weight).flatten(0, 1)
        y = ops.gated_linear(out.flatten(0, 1), gates.flatten(0, 1), w_o).view(x.shape)
        return add_bias(layer, y, gates)
    if q.shape[1] == 1:
        out = ops.decode(q[:, 0], inputs.key, inputs.value, None, logits[:, 0], hidden)[:, None]
    else:
        out = ops.mqa(q, inputs.key[:, :, 0], inputs.value[:, :, 0], logits, hidden, inputs.causal)
    gates = None if layer.out_proj.bias is None else torch.softmax(logits, dim=-1)
    return sum_experts(layer, out, gates)


def _in_one_kernel(q: Tensor, inputs: Inputs, *gates: Tensor) -> bool:
    """Return whether attention is an own kernel; with gradients, and for wide float32 heads, torch's core."""
    key, value, is_step = inputs.key, inputs.value, q.shape[1] == 1
    plain = key.shape[2] == 1 and inputs.rotary is None
    widest = WIDEST_HEAD_OF_DECODE if is_step else WIDEST_HEAD_OF_MQA
    if not q.is_cpu and q.dtype == torch.float32:
        widest = WIDEST_FLOAT32_HEAD
    fits = plain and (is_step or key.shape[1] <= MOST_KEYS_OF_MQA) and q.shape[-1] <= widest
    return fits and not inputs.dropout and not needs_gradient(q, key, value, *gates)


def _selected(layer: nn.Module, inputs: Inputs) -> Tensor:
    x = inputs.query
    gates, experts, order, ends = route(layer, x, inputs.query_padding_mask)
    w_q, bias, w_o = (to_autocast_dtype(t) for t in (layer.q_proj.weight, layer.q_proj.bias, layer.out_proj.weight))
    top_k = layer.config.top_k
    rows = ops.spread(x.flatten(0, 1).contiguous(), w_q, bias, order, ends, top_k)
    q = rows.view(*gates.shape, -1)
    if q.shape[1] == 1 and _in_one_kernel(q, inputs, gates):
        past = inputs.key, inputs.value, inputs.key_padding_mask
        y = ops.decode_collect(q[:, 0], *past, w_o, gates.flatten(), order, ends)
    else:
        out = attend_slots(q, inputs, fused_attend)
        y = ops.collect(out.reshape(rows.shape), w_o, gates.flatten(), order, ends, top_k)
    return add_selected_bias(layer.out_proj.bias, y.view(x.shape), experts, gates)


def route(
    layer: nn.Module, x: Queries, padding_mask: QueryMask
) -> tuple[Float[Tensor, "batch tgt top_k"], Int[Tensor, "batch tgt top_k"], Int[Tensor, "rows"], Int[Tensor, "ends"]]:
    """Return gates, experts, the rows in the order of their experts, and where those of each expert end; K < E."""
    router, config = layer.router, layer.config
    if router.noise_proj is not None and router.training:
        # the noise is torch's, and so is the choice
        routing = router(x, padding_mask)
        experts = routing.indices.to(torch.int32)
        order, ends = sort_rows(experts, config.num_experts)
        return routing.weights, experts, order.to(torch.int32), ends
    router.recorded = None
    weight = to_autocast_dtype(router.proj.weight)
    gates, experts, order, ends, logits = ops.route(x.flatten(0, 1).contiguous(), weight, config.top_k, config.gates)
    gates, experts, logits = (t.unflatten(0, x.shape[:2]) for t in (gates, experts, logits))
    if router.is_recorded:
        router.record(Routing(gates, experts.long(), logits, torch.softmax(logits, -1)), padding_mask)
    return gates, experts, order, ends
