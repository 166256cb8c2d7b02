"""Light and dynamic convolution in place of self-attention (arXiv 1901.10430), in an encoder-decoder.

A block is Linear d_m to 2 d_m, GLU, a depth-wise convolution whose kernels are softmax-normalised and shared
by channels in h_w groups, Linear d_m to d_m. A dynamic convolution predicts its kernels from each token.
"""

from collections.abc import Sequence

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.transformer import (
    Mixer,
    feed_forward,
    residual_norm,
    tied_output,
    translation_embedding,
)

NO_STEP = "convolutions keep the inputs of their kernels instead of keys, and have no form of a step here"


def block(path: str, *, B: Size, T: Size, d_m: Size, h_w: Size, w: Size, dynamic: bool) -> Ledger:
    """MACs: B T d_m (3 d_m + w), and B T d_m h_w w more for the predicted kernels of a dynamic convolution."""
    rows, width, kernel = {"B": B, "T": T}, {"d_m": d_m}, {"h_w": h_w, "w": w}
    if dynamic:
        weights = ledger(
            linear(at(path, "kernel_proj"), rows, width, kernel),
            Entry(path, "softmax", {**rows, **kernel}),
            Entry(path, "conv", {**rows, **width, "w": w}),
        )
    else:
        weights = ledger(
            Entry(path, "softmax", kernel),
            Entry(path, "conv", {**rows, **width, "w": w}, weight=kernel),
        )
    return ledger(
        linear(at(path, "in_proj"), rows, width, {"2": 2, "d_out": d_m}, bias=True),
        Entry(path, "activation", {**rows, **width}),
        weights,
        linear(at(path, "out_proj"), rows, width, {"d_out": d_m}, bias=True),
    )


def model(
    attention: Mixer,
    *,
    B: Size,
    S: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    h_w: Size,
    encoder_kernels: Sequence[Size],
    decoder_kernels: Sequence[Size],
    dynamic: bool,
) -> Ledger:
    """One layer per kernel size; ``attention`` is the decoder's cross-attention."""
    parts = [translation_embedding(B=B, S=S, T=T, d_m=d_m, V=V)]
    source, target = {"B": B, "T": S, "d_m": d_m}, {"B": B, "T": T, "d_m": d_m}
    for i, w in enumerate(encoder_kernels):
        path = f"encoder.layers.{i}"
        parts += [
            residual_norm(path, "conv", block(at(path, "conv"), h_w=h_w, w=w, dynamic=dynamic, **source), **source),
            residual_norm(path, "feed_forward", feed_forward(at(path, "feed_forward"), F=F, **source), **source),
        ]
    for i, w in enumerate(decoder_kernels):
        path = f"decoder.layers.{i}"
        parts += [
            residual_norm(path, "conv", block(at(path, "conv"), h_w=h_w, w=w, dynamic=dynamic, **target), **target),
            residual_norm(path, "cross_attn", attention(at(path, "cross_attn"), B=B, T=T, S=S), **target),
            residual_norm(path, "feed_forward", feed_forward(at(path, "feed_forward"), F=F, **target), **target),
        ]
    return ledger(*parts, tied_output(B=B, T=T, d_m=d_m, V=V))
