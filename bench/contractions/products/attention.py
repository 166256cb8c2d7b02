"""Fused attention of torch: scaled_dot_product_attention's kernels, FlexAttention and the fast paths of torch.nn."""

from collections.abc import Mapping
from dataclasses import replace

from headcount.bench.contractions.products.dense import linear
from headcount.bench.contractions.products.product import Product, Rule
from headcount.bench.trace.events import Event, TensorFact


def attention(
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
        return attention_products(*facts)

    return rule


def attention_products(q, k, v, gradient=None) -> list[Product]:
    """Return scores and values, or with the result's gradient five products.

    The five are the recomputed scores, then the gradients of weights, values, queries and keys.
    """
    heads, queries, width = q.shape[0] * q.shape[1], q.shape[2], q.shape[3]
    keys, out = k.shape[2], v.shape[3]

    def product(m: int, i: int, j: int, kind: str, *operands: TensorFact) -> Product:
        return Product({"b": heads, "m": m, "i": i, "j": j}, operands, kind)

    if gradient is None:
        return [product(queries, width, keys, "scores", q, k), product(queries, keys, out, "values", v)]
    return [
        product(queries, width, keys, "scores_recompute", q, k),
        product(queries, out, keys, "values_dx", gradient, v),
        product(keys, queries, out, "values_dw", gradient),
        product(queries, keys, width, "scores_dx", k),
        product(keys, queries, width, "scores_dw", q),
    ]


def _fast_path(event: Event) -> list[Product]:
    """nn.MultiheadAttention's fast path: packed in-projection, attention, out-projection.

    Of self-attention the in-projection is one product, as on the path of several operations. Products have no operands:
    these only identify gradients, and the fast path has no backward.
    """
    q, k, v, width, heads = event.args[:5]
    batch, queries, _ = q.shape
    keys, head = k.shape[1], width // heads
    if q == k == v:
        rows, columns = queries, 3 * width
    else:
        rows, columns = queries + k.shape[1] + v.shape[1], width
    return [
        Product({"m": batch * rows, "i": width, "j": columns}, (), "linear"),
        Product({"b": batch * heads, "m": queries, "i": head, "j": keys}, (), "scores"),
        Product({"b": batch * heads, "m": queries, "i": keys, "j": head}, (), "values"),
        Product({"m": batch * queries, "i": width, "j": width}, (), "linear"),
    ]


def _encoder_layer(event: Event) -> list[Product]:
    """nn.TransformerEncoderLayer's fast path: self-attention and two linear layers, each of its module."""
    x, width, heads = event.args[:3]
    attention = [replace(one, path="self_attn") for one in _fast_path(replace(event, args=(x, x, x, width, heads)))]
    feed_forward = {"linear1": event.args[14], "linear2": event.args[16]}
    return attention + [replace(linear(x, weight), path=path) for path, weight in feed_forward.items()]


_FUSED = tuple(
    f"_scaled_dot_product_{kernel}"
    for kernel in (
        "flash_attention",
        "flash_attention_for_cpu",
        "efficient_attention",
        "cudnn_attention",
        "fused_attention_overrideable",
    )
)
"""Kernels of scaled_dot_product_attention."""

ATTENTION: Mapping[str, Rule] = {
    # kernel(q (B, h, T, d), k (B, g, S, d), v (B, g, S, d_v)), and kernel_backward(gradient (B, h, T, d_v), q, k, v)
    **dict.fromkeys(_FUSED, attention()),
    **{f"{kernel}_backward": attention(1, gradient_at=0) for kernel in _FUSED},
    # flex_attention(q, k, v, …), and its backward (q, k, v, out, logsumexp, gradient, …)
    "flex_attention": attention(),
    "flex_attention_backward": attention(gradient_at=5),
    # (q (B, T, h, d), k, v, …), then tensors of lengths where sequences are packed
    "_flash_attention_forward": attention(tokens_first=True, lengths_at=3),
    "_efficient_attention_forward": attention(tokens_first=True, lengths_at=4),
    # (q (B, T, d_m), k (B, S, d_m), v (B, S, d_m), d_m, h, …) with packed weights
    "_native_multi_head_attention": _fast_path,
    # (x (B, T, d_m), d_m, h, …) with the two weights of the feed-forward layer at 14 and 16
    "_transformer_encoder_layer_fwd": _encoder_layer,
}
