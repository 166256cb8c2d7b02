"""Record the launches of the Triton kernels for layers that are timed, on meta tensors."""

import torch
from torch import Tensor

from headcount.models.configs.make import make_config
from headcount.models.configs.moa import Gates, MixtureOfAttentionHeadsConfig
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from headcount.models.configs.presets import preset
from headcount.models.kernels import triton_launch as kernels
from headcount.models.kernels.triton_configs import MOST_KEYS_OF_MQA, WIDEST_HEAD_OF_MQA
from headcount.models.kernels.triton_launch import Launched, recording
from headcount.models.kernels.triton_moa import WIDEST_FLOAT32_HEAD_OF_MQA

MOA = ("moa-8K8E128D", "moa-8K8E256D", "moa-8K32E128D", "moa-16K32E256D", "mlm-moa-8K64E256D")
"""Presets whose attention is compiled."""
NARROW = {"attention": "moa", "d_model": 512, "num_experts": 8, "top_k": 8, "head_dim": 64}
"""The narrowest heads of the MoA paper's tables, with every expert selected."""
_HEADS = {"attention": "moh", "d_model": 2048, "num_heads": 32, "head_dim": 64, "num_shared_heads": 8, "top_k": 8}
MOH = (
    _HEADS,
    {**_HEADS, "d_model": 1152, "num_heads": 16, "head_dim": 72, "num_shared_heads": 9, "top_k": 3},
    {**_HEADS, "d_model": 4096, "num_kv_heads": 8, "head_dim": 128, "router": "query_norm"},
)
"""The shapes of the paper's comparison at half of the heads, of its widest DiT, and of LLaMA3."""
LENGTHS = ((16, 1024), (16, 16), (16, 1))
"""(sequences, tokens): many tokens, few tokens, and one decoded token of each sequence after STORED cached ones."""
STORED = 8192


def launches(dtype: torch.dtype = torch.bfloat16) -> list[Launched]:
    """Return every launch of a forward and a backward pass of these layers, in order."""
    moa = [*(preset(name).attention for name in MOA), make_config(NARROW)]
    moh = [make_config(values) for values in MOH]
    with recording() as found:
        for batch_size, tgt_len in LENGTHS:
            for config in moa:
                (_all_experts if config.top_k == config.num_experts else _selected)(config, batch_size, tgt_len, dtype)
            for config in moh:
                _heads(config, batch_size, tgt_len, dtype)
    return found


def _empty(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _to_one(config: MixtureOfAttentionHeadsConfig) -> bool:
    """Return whether the gates of a token sum to 1."""
    return config.gates is not Gates.RELEASED


def _all_experts(config: MixtureOfAttentionHeadsConfig, batch_size: int, tgt_len: int, dtype: torch.dtype) -> None:
    x = _empty(dtype, batch_size * tgt_len, config.d_model)
    for with_logits in (False, True):
        kernels.route(x, _empty(dtype, config.num_experts, config.d_model), config.top_k, _to_one(config), with_logits)
    tgt_len = min(tgt_len, MOST_KEYS_OF_MQA)
    widest = WIDEST_FLOAT32_HEAD_OF_MQA if dtype == torch.float32 else WIDEST_HEAD_OF_MQA
    if config.head_dim <= widest and tgt_len == 1:
        heads = _empty(torch.int32, batch_size, config.top_k)
        _decode(_empty(dtype, batch_size, config.top_k, config.head_dim), 1, heads, torch.float32)
    elif config.head_dim <= widest:
        q = _empty(dtype, batch_size, tgt_len, config.top_k, config.head_dim)
        k = _empty(dtype, batch_size, tgt_len, config.head_dim)
        for causal in (False, True):
            kernels.mqa(q, k, k, _empty(torch.float32, *q.shape[:3]), None, causal)


def _selected(config: MixtureOfAttentionHeadsConfig, batch_size: int, tgt_len: int, dtype: torch.dtype) -> None:
    d_model, top_k, head_dim = config.d_model, config.top_k, config.head_dim
    x, router = _empty(dtype, batch_size * tgt_len, d_model), _empty(dtype, config.num_experts, d_model)
    for with_logits in (False, True):
        gates, _, order, ends, _ = kernels.route(x, router, top_k, _to_one(config), with_logits)
    w_q, w_o = (
        _empty(dtype, config.num_experts, d_model, head_dim),
        _empty(dtype, config.num_experts, head_dim, d_model),
    )
    bias = _empty(dtype, config.num_experts, head_dim) if config.bias else None
    rows, _ = kernels.expert(x, w_q, bias, None, order, ends, top_k)
    kernels.slots(kernels.expert(rows, w_o, None, gates, order, ends, 1)[0], top_k)
    # backward: products with the transposed weights, and gradients of the weights
    kernels.expert(x, w_o.transpose(1, 2), None, gates, order, ends, top_k, rows)
    kernels.weight_grad(rows, x, gates, order, ends, False)
    kernels.expert(rows, w_q.transpose(1, 2), None, None, order, ends, 1)
    kernels.weight_grad(x, rows, None, order, ends, config.bias)


def _heads(config: MixtureOfHeadAttentionConfig, batch_size: int, tgt_len: int, dtype: torch.dtype) -> None:
    width, group = config.head_dim, config.num_kv_heads
    q, k = (_empty(dtype, batch_size, tgt_len, heads, width) for heads in (config.num_heads, group))
    if tgt_len == 1:
        _decode(q[:, 0], group, _empty(torch.int32, batch_size, config.num_active_heads), dtype)
    else:
        heads = _empty(torch.int32, batch_size, tgt_len, config.top_k)
        for causal in (False, True):
            kernels.ragged(q, k, k, heads, _empty(dtype, *heads.shape), None, causal)


def _decode(q: Tensor, num_kv_heads: int, heads: Tensor, gates: torch.dtype) -> None:
    cache = _empty(q.dtype, len(q), STORED, num_kv_heads, q.shape[-1])
    kernels.decode(q, cache, cache, heads, _empty(gates, *heads.shape), None)
