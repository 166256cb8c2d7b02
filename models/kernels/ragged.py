"""MoH that skips unselected heads: the queries that selected a head are packed, and attend to that head alone.

Keys and values stay whole: head i's key at a position is read by every query that selected head i.
"""

import logging

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Inputs, hidden_keys, split_heads
from headcount.models.configs.base import ConfigError
from headcount.models.configs.moh import Router
from headcount.models.experts import to_autocast_dtype
from headcount.models.kernels.fused import attend_shared
from headcount.models.kernels.segments import CollectSegments, SpreadSegments, make_segments, sort_rows
from headcount.models.kernels.selection import log_once
from headcount.models.moh import fused, selected_heads
from headcount.models.rotary import rotate
from headcount.models.shapes import Queries, SelectedHeads


def ragged(layer: nn.Module, inputs: Inputs) -> Queries:
    """Return the layer's output (Eq. 3-4) from packed queries; on the CPU queries and outputs are packed too.

    Gradients are the ideal form's on every device, where every head is computed too.

    On meta the rows of the selected heads are gathered, to the same products as on the CPU. On CUDA every head is
    computed, with one warning, where attention is causal, because torch packs no rows whose positions have gaps, and in
    float32, because its packed attention has 16 bits. Raises ConfigError for dropout.
    """
    x = inputs.query
    if inputs.dropout:
        raise ConfigError("ragged takes no dropout; choose fused")
    if x.is_cuda and (lack := _lack(x, inputs.causal)):
        log_once(logging.WARNING, f"ragged computes every head: torch has no packed {lack} attention on CUDA")
        return fused(layer, inputs, every=False)
    if x.is_cuda:
        return _packed_on_device(layer, inputs)
    if x.is_meta:
        # rows gathered one by one: sizes of segments are values, which meta does not have
        return selected_heads(layer, inputs)
    return _packed_by_head(layer, inputs)


def _lack(x: Tensor, causal: bool) -> str | None:
    """Return the kind of attention on CUDA that torch cannot compute for packed rows; None where it can."""
    if causal and x.shape[1] > 1:
        return "causal"
    dtype = to_autocast_dtype(x).dtype
    return None if dtype.itemsize == 2 else f"{dtype}".removeprefix("torch.")


def _packed_by_head(layer: nn.Module, inputs: Inputs) -> Queries:
    """Compute shared heads for all tokens at once, and routed ones head by head; sizes lie on the host."""
    x, key, value, rotary = *inputs[:3], inputs.rotary
    config, head_dim, shared = layer.config, layer.config.head_dim, layer.config.num_shared_heads
    by_norm = config.router is Router.QUERY_NORM
    full = split_heads(layer.q_proj(x), head_dim) if by_norm else None
    selected, gates = layer.router(x, inputs.query_padding_mask, full)
    gates = to_autocast_dtype(gates)
    width, group = shared * head_dim, config.num_heads // config.num_kv_heads
    weight, bias = layer.q_proj.weight, layer.q_proj.bias
    parts = []
    if shared:
        if by_norm:
            query = full[:, :, :shared]
        else:
            query = split_heads(F.linear(x, weight[:width], None if bias is None else bias[:width]), head_dim)
        out = attend_shared(rotate(query, rotary), key, value, group, **inputs.masks)
        parts.append(F.linear((out * gates[..., :shared, None]).flatten(-2), layer.out_proj.weight[:, :width]))
    if config.top_k:
        routed = selected[..., shared:]
        segments = make_segments(routed - shared, config.num_routed_heads)
        if by_norm:
            query = full.gather(2, routed[..., None].expand(-1, -1, -1, head_dim))
        else:
            by_head = weight[width:].unflatten(0, (-1, head_dim)).transpose(1, 2)
            bias = None if bias is None else to_autocast_dtype(bias[width:].unflatten(0, (-1, head_dim)))
            query = SpreadSegments.apply(to_autocast_dtype(x.flatten(0, 1)), to_autocast_dtype(by_head), bias, segments)
            query = query.view(*routed.shape, head_dim)
        out = _attend_by_head(layer, rotate(query, rotary).reshape(-1, head_dim), inputs, routed - shared)
        outputs = to_autocast_dtype(layer.out_proj.weight[:, width:].t().unflatten(0, (-1, head_dim)))
        weights = gates[..., shared:].reshape(-1)
        sums = CollectSegments.apply(to_autocast_dtype(out), weights, outputs, x.shape[0] * x.shape[1], segments)
        parts.append(sums.view(*x.shape[:2], -1))
    y = sum(parts[1:], parts[0])
    return y if layer.out_proj.bias is None else y + layer.out_proj.bias


def _attend_by_head(
    layer: nn.Module, query: Float[Tensor, "rows head_dim"], inputs: Inputs, heads: SelectedHeads
) -> Float[Tensor, "rows head_dim"]:
    """Attend from the rows of each of the routed ``heads``, numbered from 0, of each sequence to its keys."""
    (x, key, value), config = inputs[:3], layer.config
    (batch_size, tgt_len), num_heads = x.shape[:2], config.num_routed_heads
    group = config.num_heads // config.num_kv_heads
    hidden = hidden_keys(tgt_len, key.shape[1], device=x.device, **inputs.masks)
    visible = None if hidden is None else ~hidden.expand(batch_size, tgt_len, -1)
    first = num_heads * torch.arange(batch_size, device=x.device)[:, None, None]
    segments, outs = make_segments(first + heads, batch_size * num_heads), []
    for number, rows, tokens in segments.filled():
        b, head = divmod(number, num_heads)
        q = query.index_select(0, rows)[None, None]
        k, v = (t[b, :, (config.num_shared_heads + head) // group][None, None] for t in (key, value))
        seen = None if visible is None else visible[b].index_select(0, tokens - b * tgt_len)
        outs.append(F.scaled_dot_product_attention(q, k, v, attn_mask=seen)[0, 0])
    # every row belongs to one head, so that the order is a permutation
    return torch.cat(outs)[torch.argsort(torch.cat(segments.rows))]


def _packed_on_device(layer: nn.Module, inputs: Inputs) -> Queries:
    """Attend over packed queries only, each (sequence, key/value head) a sequence of variable-length attention.

    Nothing is read back from the device: the number of rows is N k, and their order comes from one stable sort.
    """
    from torch.nn.attention.varlen import varlen_attn

    config, head_dim = layer.config, layer.config.head_dim
    x, key, value = inputs[:3]
    full = layer.q_proj(x).unflatten(-1, (-1, head_dim))
    selected, gates = layer.router(x, inputs.query_padding_mask, full)
    query = rotate(full, inputs.rotary).gather(2, selected[..., None].expand(-1, -1, -1, head_dim))
    batch_size, src_len, num_kv_heads, _ = key.shape
    first_sequence = num_kv_heads * torch.arange(batch_size, device=x.device)[:, None, None]
    sequences = first_sequence + selected // (config.num_heads // num_kv_heads)
    order, ends = sort_rows(sequences, batch_size * num_kv_heads)
    keys, values = (t.transpose(1, 2).reshape(-1, 1, head_dim) for t in (key, value))
    lengths = torch.full_like(ends, src_len)
    if inputs.key_padding_mask is not None:
        # hidden keys are moved to the end, where no sequence reads
        hidden = inputs.key_padding_mask[:, None].expand(-1, num_kv_heads, -1).flatten(0, 1)
        lengths = (~hidden).sum(-1, dtype=torch.int32)
        first = torch.sort(hidden.flatten().to(torch.uint8), stable=True).indices
        keys, values = keys[first], values[first]
    most = x.shape[1] * min(selected.shape[-1], config.num_heads // num_kv_heads)
    rows = query.reshape(-1, 1, head_dim)[order]
    bounds = (F.pad(last, (1, 0)) for last in (ends, lengths.cumsum(0, dtype=torch.int32)))
    packed = varlen_attn(rows, keys, values, *bounds, most, src_len)
    out = torch.empty_like(packed).index_copy(0, order, packed).view(*selected.shape, head_dim)
    heads = out.new_zeros(*selected.shape[:2], config.num_heads, head_dim)
    index = selected[..., None].expand(-1, -1, -1, head_dim)
    return layer.out_proj(heads.scatter(2, index, out * gates[..., None].to(out.dtype)).flatten(-2))
