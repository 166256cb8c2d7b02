"""Rules that give the matrix products of a recorded operation from its shapes: b times (m, i) by (i, j)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from math import prod
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from headcount.bench.contractions.linalg import substitute
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.trace.events import Event, TensorFact, tensors_in
from headcount.formulas.ledger import MAC_KINDS


@dataclass(frozen=True, slots=True)
class Product:
    """One contraction: ``dims`` multiply to its MACs; ``kind`` is "" if the operands determine it.

    Sizes are those of b, m, i, j, n that it has, in this order: n products of (b, m, i) by (b, i, j). A kind is one of
    MAC_KINDS. ``operands`` are tensors by which weights and gradients are recognised, none where they do not matter.
    Of sparse operands only stored elements are multiplied.
    """

    dims: Mapping[str, int]
    operands: tuple[TensorFact, ...]
    kind: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for other names or another order of sizes, and for an unknown kind."""
        if [name for name in "bmijn" if name in self.dims] != list(self.dims) or self.kind not in ("", *MAC_KINDS):
            raise ValueError(f"no contraction is {self.kind or 'one'} of {', '.join(self.dims)}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return prod(self.dims.values())


Rule = Callable[[Event], list[Product] | None]
"""Returns the contractions of a call: an empty list for none, None for a call that is unsupported."""


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
        return partial(_of_stored_elements, rule), ""
    if "." not in name:
        # an operation of aten
        return None, ""
    # it imports triton, which is slow
    from torch.utils.flop_counter import flop_registry

    library, _, own = name.partition(".")
    operator = getattr(getattr(torch.ops, library), own, None)
    if rule := getattr(operator, "contractions", None):
        return partial(_by_attribute, rule), ""
    if formula := flop_registry.get(operator):
        return partial(_by_flops, formula), "torch.utils.flop_counter"
    return None, ""


def _by_attribute(rule: Callable[..., Sequence[tuple]], event: Event) -> list[Product]:
    return [Product(sizes, tuple(event.args[i] for i in at), kind) for kind, sizes, at in rule(*event.args)]


def _by_flops(formula: Callable[..., int], event: Event) -> list[Product]:
    flops = formula_flops(formula, event)
    if flops % 2:
        raise ValueError(f"the formula registered for {event.name} gives {flops:,} FLOPs, which is odd")
    return [Product({"i": flops // 2}, tuple(tensors_in(event.args)), "contraction")]


def formula_flops(formula: Callable[..., int], event: Event) -> int:
    """Return what a formula of ``torch.utils.flop_counter`` gives for a recorded call; it looks at shapes only."""
    return formula(*on_meta(event.args), **on_meta(event.kwargs), out_val=on_meta(event.out))


def on_meta(value: Any) -> Any:
    """Return a recorded value with a tensor on meta for each fact."""
    return tree_map_only(
        TensorFact, lambda fact: torch.empty(fact.shape, dtype=getattr(torch, fact.dtype), device="meta"), value
    )


# Sparse and nested tensors

_SPARSE_TOO = frozenset(
    "mm bmm addmm addmm_ _sparse_addmm _sparse_mm mv addmv linear hspmm _sparse_mm_reduce_impl".split()
)
_INPUTS = {"linear": 1, "_transformer_encoder_layer_fwd": 1, "_native_multi_head_attention": 3}
"""Number of leading arguments that are sequences; torch's attention over several lengths is self-attention."""


def _of_stored_elements(rule: Rule, event: Event) -> list[Product] | None:
    """Return the products of a call; of sparse and nested operands those of stored elements. None if unsupported."""
    held = [fact for fact in event.tensors() if fact.stored is not None]
    if not held:
        return rule(event)
    if any(fact.parts for fact in held):
        return _of_parts(rule, event)
    # The common elements of two sparse operands depend on values, which a trace does not hold.
    if event.name not in _SPARSE_TOO or len(held) > 1 or not held[0].shape:
        return None
    # each stored element times a row or column of the other operand
    return [
        Product({"i": held[0].stored, "j": one.macs // held[0].numel}, one.operands, one.kind)
        for one in rule(event) or ()
    ]


def _of_parts(rule: Rule, event: Event) -> list[Product] | None:
    """Return the products of each sequence by itself; None for unsupported operations."""
    a, *others = (fact.parts for fact in event.tensors())
    if event.name in ("matmul", "bmm") and a and others[0]:
        pairs = zip(a, others[0], strict=True)
        return [Product({"b": prod(x[:-2]), "m": x[-2], "i": x[-1], "j": y[-1]}, tuple(event.args)) for x, y in pairs]
    inputs = _INPUTS.get(event.name)
    if not inputs or not a:
        return None
    out = []
    for shape in a:
        x = replace(event.args[0], shape=(1, *shape), stored=None, parts=())
        made = replace(x, shape=(*x.shape[:-1], event.args[1].shape[0])) if event.name == "linear" else None
        out += rule(replace(event, args=(*(x,) * inputs, *event.args[inputs:]), out=made))
    return out


# Rules


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
        return _attention_products(*facts)

    return rule


def _attention_products(q, k, v, gradient=None) -> list[Product]:
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

    gradient = reshaped(event.args[4], queries) if backward else None
    return _attention_products(reshaped(q, queries), reshaped(k, window), reshaped(v, window), gradient)


def _native_attention(event: Event) -> list[Product]:
    """nn.MultiheadAttention's fast path: packed in-projection, attention, out-projection.

    Products have no operands: these only identify gradients, and the fast path has no backward.
    """
    q, k, v, width, heads = event.args[:5]
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
    attention = _native_attention(replace(event, args=(x, x, x, width, heads)))
    return attention + [_linear(x, weight) for weight in (event.args[14], event.args[16])]


def _recurrent(event: Event) -> list[Product]:
    """One recurrent layer in one call: every row of the input through each of its weight matrices."""
    weights = event.args[1] if isinstance(event.args[1], tuple) else event.args[1:3]
    return [_linear(event.args[0], weight) for weight in weights if len(weight.shape) == 2]


def _linear(x: TensorFact, weight: TensorFact) -> Product:
    """Return the product of as many rows as ``x`` (…, i) has with a weight (j, i)."""
    return Product({"m": prod(x.shape[:-1]), "i": weight.shape[1], "j": weight.shape[0]}, (x, weight), "linear")


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


def _triangular_solve(matrix_at: int) -> Rule:
    """Return the rule of a solve with a triangular matrix (…, n, n), the argument at this position.

    Row i of a right-hand side subtracts i products: n (n - 1) / 2 (LAPACK Working Note 41, Appendix C).
    """

    def rule(event: Event) -> list[Product]:
        macs = substitute(event.args[matrix_at], next(tensors_in(event.out)))
        return [Product({"i": macs}, tuple(event.tensors()), "contraction")]

    return rule


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
    dims = _window_dims(x, weight, x, transposed=False)
    return [Product(dims, (weight,), "conv_dx"), Product(dims, (x,), "conv_dw")]


def _depthwise(event: Event) -> list[Product]:
    x, weight = event.args[:2]
    return [Product(_window_dims(x, weight, x, transposed=False), (x, weight), "conv")]


def _grid(event: Event) -> list[Product]:
    """Each position of a grid through one small matrix per sample."""
    theta = event.args[0]
    return [Product({"m": event.out.numel, "i": theta.shape[-1]}, (theta,))]


def _convolution(event: Event, transposed: bool | None = None) -> list[Product]:
    """(B, c, …) through windows (o, c, …), or transposed ones (c, o, …), gives (B, o, …).

    ``transposed``: as the operator's name says it; None where an argument does.
    """
    x, weight = event.args[:2]
    transposed = event.args[6] if transposed is None else transposed
    return [Product(_window_dims(x, weight, event.out, transposed), (x, weight), "conv")]


def _window_dims(x: TensorFact, weight: TensorFact, out: TensorFact, transposed: bool) -> dict[str, int]:
    """Return b samples, m positions (a transposed convolution's of the input), i summed elements and j channels."""
    batch = x.shape[0]
    if transposed:
        return {"b": batch, "m": prod(x.shape[2:]), "i": x.shape[1], "j": prod(weight.shape[1:])}
    return {"b": batch, "m": prod(out.shape[2:]), "i": prod(weight.shape[1:]), "j": weight.shape[0]}


def _convolution_backward(event: Event) -> list[Product]:
    """Return the requested gradients of input and weight: each has the size of the convolution."""
    gradient, x, weight = event.args[:3]
    dims = _window_dims(x, weight, gradient, event.args[7])
    both = Product(dims, (gradient, weight), "conv_dx"), Product(dims, (gradient, x), "conv_dw")
    return list(compress(both, event.args[10]))


def _time_first(event: Event) -> list[Product]:
    """conv_tbc: (T, B, c) through windows (k, c, o) gives (T', B, o)."""
    x, weight = event.args[:2]
    length, batch, _ = event.out.shape
    return [Product({"b": batch, "m": length, "i": prod(weight.shape[:2]), "j": weight.shape[2]}, (x, weight), "conv")]


def _trilinear(event: Event) -> list[Product]:
    """nn.Bilinear and its gradients: the product of two tensors and its product with a third.

    Both run for each index of one dimension, whose results are added if it is summed. Dimensions that the third lacks
    are summed in the first product. A product without a sum is elementwise and not counted.
    """
    tensors, lacking, summed = event.args[:3], event.args[3:6], event.args[6]
    unrolled = event.argument(7, default=1)
    a, b, c = (_spread(fact, dims) for fact, dims in zip(tensors, lacking, strict=True))
    times = max(sizes[unrolled] for sizes in (a, b, c))
    for sizes in (a, b, c):
        sizes[unrolled] = 1
    early = [dim for dim in summed if dim in lacking[2] and dim != unrolled]
    late = [dim for dim in summed if dim not in lacking[2] and dim != unrolled]
    between = [1 if dim in early else max(sizes) for dim, sizes in enumerate(zip(a, b, strict=True))]
    found = [_pair(a, b, early, times, tensors[:2])] if early else []
    if late or unrolled in summed:
        found.append(_pair(between, c, late, times, tensors[2:] if found else tensors))
    return found


def _spread(fact: TensorFact, lacking: Sequence[int]) -> list[int]:
    """Return the sizes in all dimensions, 1 where the tensor lacks one."""
    own = iter(fact.shape)
    return [1 if dim in lacking else next(own) for dim in range(len(fact.shape) + len(lacking))]


def _pair(a: Sequence[int], b: Sequence[int], summed: Sequence[int], times: int, operands: tuple) -> Product:
    """Return the product of two tensors summed over ``summed``, or over the ``times`` runs if that is empty.

    Dimensions of ``summed`` that one of them lacks are summed before.
    """
    kept = [(m, n) for dim, (m, n) in enumerate(zip(a, b, strict=True)) if dim not in summed]
    sizes = {
        "b": prod(m for m, n in kept if m == n),
        "m": prod(m for m, n in kept if m != n and n == 1),
        "i": prod(min(a[dim], b[dim]) for dim in summed) if summed else times,
        "j": prod(n for m, n in kept if m != n and m == 1),
        "n": times if summed else 1,
    }
    return Product({letter: size for letter, size in sizes.items() if size != 1 or letter == "i"}, operands)


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
    # decomposed unless operands are nested
    "matmul": lambda event: None,
    **dict.fromkeys(
        ("linear", "_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu"), _by_output
    ),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag("contraction", 1, 6)),
    "_embedding_bag_backward": _embedding_bag("contraction_dw", 1, 10),
    "_embedding_bag_per_sample_weights_backward": _embedding_bag("contraction_dx", 2, 1),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _convolution),
    "convolution_backward": _convolution_backward,
    "conv_tbc": _time_first,
    **dict.fromkeys(
        ("_slow_conv2d_forward", "slow_conv3d_forward", "torchvision.deform_conv2d"),
        partial(_convolution, transposed=False),
    ),
    "slow_conv_transpose2d": partial(_convolution, transposed=True),
    "linalg_cross": _cross,
    "linalg_solve_triangular": _triangular_solve(0),
    "triangular_solve": _triangular_solve(1),
    "_euclidean_dist": _distances,
    "_sparse_mm_reduce_impl": _reduced,
    "addr": _outer,
    "affine_grid_generator": _grid,
    "_trilinear": _trilinear,
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
