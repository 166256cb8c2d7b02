"""Convolutions and their gradients."""

from collections.abc import Mapping
from functools import partial
from itertools import compress
from math import prod

from headcount.bench.contractions.products.product import Product, Rule
from headcount.bench.trace.events import Event, TensorFact


def convolution(event: Event, transposed: bool | None = None) -> list[Product]:
    """(B, c, …) through windows (o, c, …), or transposed ones (c, o, …), gives (B, o, …).

    ``transposed``: as the operator's name says it; None where an argument does.
    """
    x, weight = event.args[:2]
    transposed = event.args[6] if transposed is None else transposed
    return [Product(window_dims(x, weight, event.out, transposed), (x, weight), "conv")]


def window_dims(x: TensorFact, weight: TensorFact, out: TensorFact, transposed: bool) -> dict[str, int]:
    """Return b samples, m positions (a transposed convolution's of the input), i summed elements and j channels."""
    batch = x.shape[0]
    if transposed:
        return {"b": batch, "m": prod(x.shape[2:]), "i": x.shape[1], "j": prod(weight.shape[1:])}
    return {"b": batch, "m": prod(out.shape[2:]), "i": prod(weight.shape[1:]), "j": weight.shape[0]}


def _convolution_backward(event: Event) -> list[Product]:
    """Return the requested gradients of input and weight: each has the size of the convolution."""
    gradient, x, weight = event.args[:3]
    dims = window_dims(x, weight, gradient, event.args[7])
    both = Product(dims, (gradient, weight), "conv_dx"), Product(dims, (gradient, x), "conv_dw")
    return list(compress(both, event.args[10]))


def _time_first(event: Event) -> list[Product]:
    """conv_tbc: (T, B, c) through windows (k, c, o) gives (T', B, o)."""
    x, weight = event.args[:2]
    length, batch, _ = event.out.shape
    return [Product({"b": batch, "m": length, "i": prod(weight.shape[:2]), "j": weight.shape[2]}, (x, weight), "conv")]


CONVOLUTIONS: Mapping[str, Rule] = {
    # (x (B, c, …), window (o, c / groups, …), bias, stride, padding, dilation, transposed, …)
    "convolution": convolution,
    "_convolution": convolution,
    "convolution_overrideable": convolution,
    # (gradient (B, o, …), x, window, …, which gradients are needed)
    "convolution_backward": _convolution_backward,
    # conv_tbc(x (T, B, c), window (k, c, o), …)
    "conv_tbc": _time_first,
    # (x (B, c, …), window (o, c, …), …), transposed window (c, o, …)
    "_slow_conv2d_forward": partial(convolution, transposed=False),
    "slow_conv3d_forward": partial(convolution, transposed=False),
    "slow_conv_transpose2d": partial(convolution, transposed=True),
}
