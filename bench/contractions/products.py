"""Rules of the operations that contain contractions: products of named sizes, b times (m, i) by (i, j)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod

from headcount.bench.contractions.convolution import convolution, convolution_backward, time_first
from headcount.bench.contractions.custom_ops import custom_op_products
from headcount.bench.contractions.product import Product
from headcount.bench.contractions.sparse_nested import Rule, stored_products
from headcount.bench.contractions.trilinear import trilinear
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.trace.events import Event, TensorFact


def products(event: Event) -> list[Product] | None:
    """Return the contractions of an operation; None if neither this table nor the operator has a rule for the call."""
    rule = RULES.get(base(event.name))
    if rule is None:
        return custom_op_products(event)
    stored = [fact for fact in event.tensors() if fact.stored is not None]
    return stored_products(event, stored, rule) if stored else rule(event)


def _matrices(first: int, second: int) -> Rule:
    """Return the rule for arguments ``first`` (…, m, i) and ``second`` (…, i, j); vectors lack m and j."""

    def rule(event: Event) -> list[Product]:
        a, b = event.args[first], event.args[second]
        sizes = {"b": a.shape[:-2], "m": a.shape[-2:-1], "i": a.shape[-1:], "j": b.shape[1:][-1:]}
        return [Product({letter: prod(size) for letter, size in sizes.items() if size}, (a, b))]

    return rule


def _by_output(event: Event) -> list[Product]:
    """First operand (…, m, k) and an output (…, m, n): weights that are packed or transposed."""
    a, b = event.args[:2]
    *rows, k = a.shape
    return [Product({"m": prod(rows), "i": k, "j": event.out.shape[-1]}, (a, b))]


def _grouped(event: Event) -> list[Product]:
    """Groups of rows against one matrix each. (m, k) x (g, k, n), (g, m, k) x (k, n), (m, k) x (k, n) with groups
    along k (a weight gradient), (g, m, k) x (g, k, n)."""
    a, b = event.args[:2]
    *batch, m, k = a.shape
    dims = {"m": m, "i": k, "j": b.shape[-1]}
    if event.covered is not None and not (batch and len(b.shape) == 3):
        # Rows beyond the last offset are padding and not multiplied.
        dims["j" if batch else "m" if len(b.shape) == 3 else "i"] = event.covered
    if batch and len(b.shape) == 3:
        dims = {"b": batch[0], **dims}
    return [Product(dims, (a, b), "expert_linear")]


def _attention(
    first: int = 0, gradient_at: int | None = None, tokens_first: bool = False, lengths_at: int | None = None
) -> Rule:
    """Return the rule for fused attention over (B, h, T, d), (B, g, S, d) and (B, g, S, d_v), from argument ``first``.

    ``gradient_at``: the argument of a backward pass that holds the result's gradient. ``tokens_first``: the tensors are
    (B, T, h, d). The rule returns None for packed sequences: tensors of their lengths follow from ``lengths_at`` on.
    """

    def rule(event: Event) -> list[Product] | None:
        if lengths_at and any(isinstance(value, TensorFact) for value in event.args[lengths_at:]):
            return None
        facts = event.args[first : first + 3]
        if gradient_at is not None:
            facts += (event.args[gradient_at],)
        if tokens_first:
            if len(facts[0].shape) != 4:
                return None
            facts = [replace(x, shape=(*x.shape[::2], *x.shape[1::2])) for x in facts]
        return _attention_products(*facts) if gradient_at is None else _attention_gradients(*facts)

    return rule


def _attention_products(q, k, v) -> list[Product]:
    heads, queries, keys = q.shape[0] * q.shape[1], q.shape[2], k.shape[2]
    return [
        Product({"b": heads, "m": queries, "i": q.shape[-1], "j": keys}, (q, k), "scores"),
        Product({"b": heads, "m": queries, "i": keys, "j": v.shape[-1]}, (v,), "values"),
    ]


def _neighborhood(event: Event) -> list[Product]:
    """Return the products of (B, *positions, h, d), each query with the keys of its window, kernel_size in all cases.

    Tiled kernels take the groups of dilation in B, and padded positions; an argument has the sizes without padding.
    """
    q, k, v = event.args[:3]
    backward = event.name.endswith("backward")
    window_at = 6 if backward else 3
    batch, heads, queries, window = q.shape[0], q.shape[-2], prod(q.shape[1:-2]), prod(event.args[window_at])
    if "_na" in event.name:
        batch, queries = batch // prod(event.args[window_at + 2]), prod(event.args[window_at + 7])

    def reshaped(x: TensorFact, length: int) -> TensorFact:
        return replace(x, shape=(batch, heads, length, x.shape[-1]))

    operands = reshaped(q, queries), reshaped(k, window), reshaped(v, window)
    if backward:
        return _attention_gradients(*operands, reshaped(event.args[4], queries))
    return _attention_products(*operands)


def _attention_gradients(q, k, v, gradient) -> list[Product]:
    """Return five products: the recomputed scores, then the gradients of weights, values, queries and keys."""
    heads, queries, width = q.shape[0] * q.shape[1], q.shape[2], q.shape[3]
    keys, out = k.shape[2], v.shape[3]
    return [
        Product({"b": heads, "m": queries, "i": width, "j": keys}, (q, k), "scores_recompute"),
        Product({"b": heads, "m": queries, "i": out, "j": keys}, (gradient, v), "values_dx"),
        Product({"b": heads, "m": keys, "i": queries, "j": out}, (gradient,), "values_dw"),
        Product({"b": heads, "m": queries, "i": keys, "j": width}, (k,), "scores_dx"),
        Product({"b": heads, "m": keys, "i": queries, "j": width}, (q,), "scores_dw"),
    ]


def _native_attention(event: Event) -> list[Product]:
    """nn.MultiheadAttention's fast path: packed in-projection, attention, out-projection."""
    return _self_attention(*event.args[:5])


def _self_attention(q, k, v, width, heads) -> list[Product]:
    """Return products without operands: these only identify gradients, and the fast path has no backward."""
    batch, queries, _ = q.shape
    keys, head = k.shape[1], width // heads
    rows = queries + k.shape[1] + v.shape[1]
    return [
        Product({"b": batch, "m": rows, "i": width, "j": width}, (), "linear"),
        Product({"b": batch * heads, "m": queries, "i": head, "j": keys}, (), "scores"),
        Product({"b": batch * heads, "m": queries, "i": keys, "j": head}, (), "values"),
        Product({"b": batch, "m": queries, "i": width, "j": width}, (), "linear"),
    ]


def _native_encoder_layer(event: Event) -> list[Product]:
    """nn.TransformerEncoderLayer's fast path: self-attention and two linear layers."""
    x, width, heads = event.args[:3]
    rows = prod(x.shape[:-1])
    fed = [
        Product({"m": rows, "i": weight.shape[1], "j": weight.shape[0]}, (), "linear")
        for weight in (event.args[14], event.args[16])
    ]
    return _self_attention(x, x, x, width, heads) + fed


def _recurrent(event: Event) -> list[Product]:
    """One recurrent layer in one call: every row of the input through each of its weight matrices."""
    x = event.args[0]
    weights = event.args[1] if isinstance(event.args[1], tuple) else event.args[1:3]
    rows = prod(x.shape[:-1])
    return [
        Product({"m": rows, "i": weight.shape[1], "j": weight.shape[0]}, (x, weight), "linear")
        for weight in weights
        if len(weight.shape) == 2
    ]


def _embedding_bag(kind: str, index_at: int, factor_at: int) -> Rule:
    """Return the rule for rows, the first argument, each multiplied by its own factor: none of a sum without weights.

    The rows are those of a table, or those of the gradient of the sums; the factors are weights, or a table's rows.
    """

    def rule(event: Event) -> list[Product]:
        rows, factor = event.args[0], event.argument(factor_at)
        sizes = {"i": event.args[index_at].numel, "j": rows.shape[1]}
        return [Product(sizes, (rows, factor), kind)] if factor else []

    return rule


def _outer(event: Event) -> list[Product]:
    a, b = event.args[1:3]
    return [Product({"m": a.numel, "j": b.numel}, (a, b))]


def _cross(event: Event) -> list[Product]:
    """Each element of a cross product is a difference of two products."""
    return [Product({"m": event.out.numel, "i": 2}, tuple(event.args[:2]), "contraction")]


def _distances(event: Event) -> list[Product]:
    """Return the product of (n, d + 2) and (d + 2, m) that gives all squared distances of (n, d) and (m, d)."""
    a, b = event.args[:2]
    dims = {"b": prod(a.shape[:-2])} if len(a.shape) > 2 else {}
    return [Product({**dims, "m": a.shape[-2], "i": a.shape[-1] + 2, "j": b.shape[-2]}, (a, b))]


def _reduced(event: Event) -> list[Product]:
    """Return the product of a sparse matrix whose rows are summed; the largest or smallest is no sum."""
    return _matrices(0, 1)(event) if event.args[2] in ("sum", "mean") else []


def _depthwise_backward(event: Event) -> list[Product]:
    """Return the gradients of input and weight of causal-conv1d: (B, c, T) through a window (c, w) for each channel."""
    x, weight = event.args[:2]
    return [Product(_depthwise(event)[0].dims, (other,), f"conv_{kind}") for other, kind in ((weight, "dx"), (x, "dw"))]


def _depthwise(event: Event) -> list[Product]:
    x, weight = event.args[:2]
    batch, channels, length = x.shape
    return [Product({"b": batch, "m": length, "i": weight.shape[1], "j": channels}, (x, weight), "conv")]


def _grid(event: Event) -> list[Product]:
    """Each position of a grid through one small matrix per sample."""
    theta = event.args[0]
    return [Product({"m": event.out.numel, "i": theta.shape[-1]}, (theta,))]


_NATTEN = ("", "hopper_", "blackwell_")
"""Beginnings of the names of natten's kernels; those with a name are tiled."""

_FUSED = tuple(
    f"_scaled_dot_product_{kernel}"
    for kernel in (
        *("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention"),
        "fused_attention_overrideable",
    )
)
"""Kernels of fused attention."""

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        ("mm", "bmm", "_sparse_mm", "_scaled_mm", "_int_mm", "hspmm", "mv", "dot", "vdot"), _matrices(0, 1)
    ),
    **dict.fromkeys(("addmm", "_addmm_activation", "_sparse_addmm", "baddbmm", "addbmm", "addmv"), _matrices(1, 2)),
    # decomposed unless operands are nested (bench.contractions.sparse_nested)
    "matmul": lambda event: None,
    **dict.fromkeys(
        ("linear", "_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu"), _by_output
    ),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag("contraction", 1, 6)),
    "_embedding_bag_backward": _embedding_bag("contraction_dw", 1, 10),
    "_embedding_bag_per_sample_weights_backward": _embedding_bag("contraction_dx", 2, 1),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), convolution),
    "convolution_backward": convolution_backward,
    "conv_tbc": time_first,
    **dict.fromkeys(
        ("_slow_conv2d_forward", "slow_conv3d_forward", "torchvision.deform_conv2d"),
        partial(convolution, transposed=False),
    ),
    "slow_conv_transpose2d": partial(convolution, transposed=True),
    "linalg_cross": _cross,
    "_euclidean_dist": _distances,
    "_sparse_mm_reduce_impl": _reduced,
    "addr": _outer,
    "affine_grid_generator": _grid,
    "_trilinear": trilinear,
    **dict.fromkeys((*_FUSED, "flex_attention"), _attention()),
    "_flash_attention_forward": _attention(tokens_first=True, lengths_at=3),
    "_efficient_attention_forward": _attention(tokens_first=True, lengths_at=4),
    **{f"{kernel}_backward": _attention(1, gradient_at=0) for kernel in _FUSED},
    "flex_attention_backward": _attention(gradient_at=5),
    "_native_multi_head_attention": _native_attention,
    "_transformer_encoder_layer_fwd": _native_encoder_layer,
    # flash_attn/flash_attn_interface.py, xformers/ops/fmha, causal_conv1d/cpp_functions.py: packed sequences, whose
    # lengths are values, are unsupported
    "flash_attn._flash_attn_forward": _attention(tokens_first=True),
    "flash_attn._flash_attn_backward": _attention(1, gradient_at=0, tokens_first=True),
    "xformers_flash.flash_fwd": _attention(tokens_first=True, lengths_at=3),
    "xformers.efficient_attention_forward_cutlass": _attention(tokens_first=True, lengths_at=4),
    "DaoAILab._causal_conv1d_fwd_cpp": _depthwise,
    "DaoAILab._causal_conv1d_bwd_cpp": _depthwise_backward,
    # natten/_libnatten/torch_wrappers.py
    "natten.fmha_forward": _attention(tokens_first=True, lengths_at=7),
    "natten.hopper_fmha_forward": _attention(tokens_first=True),
    "natten.blackwell_fmha_forward": _attention(tokens_first=True, lengths_at=8),
    **dict.fromkeys(
        (f"natten.{kernel}fmha_backward" for kernel in _NATTEN),
        _attention(gradient_at=4, tokens_first=True, lengths_at=6),
    ),
    **{
        f"natten.{kernel}na{n}d_{way}": _neighborhood
        for kernel in _NATTEN
        for n in (1, 2, 3)
        for way in ("forward", "backward")
    },
    **dict.fromkeys(("mkldnn_rnn_layer", "_cudnn_rnn"), _recurrent),
}
