"""TransNeXt (arXiv 2311.17132): an image through stages of ever fewer and wider tokens."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise

from headcount.formulas import moe_ffn
from headcount.formulas.aggregated import WINDOW
from headcount.formulas.blocks import layer_norm, linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger, stack
from headcount.formulas.transformer import Mixer, residual_blocks

NO_DECODE_STEP = "an image classifier reads its image at once and decodes no tokens"

KERNELS = (7, 3)
"""Sides of the overlapping patches of the image, and of the grid before each later stage."""


def patch_embedding(path: str, *, B: Size, T: Size, C_in: Size, d_m: Size, p: Size, from_input: bool = False) -> Ledger:
    """Return the ledger of a convolution of side p on unfolded patches, and LayerNorm: B T C_in p^2 d_m MACs."""
    patch = {"C_in": C_in, "p_h": p, "p_w": p}
    return ledger(
        linear(at(path, "proj"), {"B": B, "T": T}, patch, {"d_m": d_m}, True, from_input),
        layer_norm(at(path, "norm"), B=B, T=T, d_m=d_m),
    )


def feed_forward(path: str, *, B: Size, T: Size, d_m: Size, F: Size, E_ff: Size = 0, K_ff: Size = 0) -> Ledger:
    """Return the ledger of (GELU(depth-wise convolution of x W_a) * x W_b) W_2: B T F (3 d_m + w) MACs.

    With ``E_ff`` experts, plain blocks of width F without gate and convolution, K_ff of them per token.
    """
    if E_ff != 0:
        return moe_ffn.feed_forward(path, B=B, T=T, d_m=d_m, F=F, E_ff=E_ff, K_ff=K_ff)
    rows, width, inner, window = {"B": B, "T": T}, {"d_m": d_m}, {"F": F}, {"w": WINDOW}
    return ledger(
        linear(at(path, "fc1"), rows, width, {"2": 2, **inner}, True),
        # as products of unfolded windows
        Entry(at(path, "conv"), "linear", {**rows, **inner, **window}, weight={**inner, **window}, summed=("w",)),
        Entry(at(path, "conv"), "elementwise", {**rows, **inner}, weight=inner),
        Entry(path, "activation", {**rows, **inner}),
        Entry(path, "elementwise", {**rows, **inner}),
        linear(at(path, "fc2"), rows, inner, width, True),
    )


def model(
    attention: Sequence[Mixer],
    *,
    B: Size,
    C_in: Size,
    C: Size,
    depths: Sequence[int],
    tokens: Sequence[Size],
    widths: Sequence[Size],
    inner_widths: Sequence[Size],
    E_ff: Size = 0,
    K_ff: Size = 0,
) -> Ledger:
    """Return the ledger of one block per ``attention``, ``depths`` per stage, and C classes from the mean token."""
    parts: list[Entry | Ledger] = []
    channels = (C_in, *widths)
    bounds = pairwise(accumulate(depths, initial=0))
    for i, ((first, last), T, d_m, F) in enumerate(zip(bounds, tokens, widths, inner_widths, strict=True)):
        stage, rows = f"stages.{i}", {"B": B, "T": T, "d_m": d_m}
        patch = KERNELS[min(i, 1)]

        def block(path: str, mixer: Mixer, rows=rows, F=F) -> Ledger:
            inner = partial(feed_forward, F=F, E_ff=E_ff, K_ff=K_ff, **rows)
            return residual_blocks(path, {"self_attn": partial(mixer, B=B), "feed_forward": inner}, **rows)

        parts += [
            patch_embedding(at(stage, "patch_embedding"), C_in=channels[i], p=patch, from_input=i == 0, **rows),
            stack(at(stage, "blocks"), attention[first:last], block),
            layer_norm(at(stage, "norm"), **rows),
        ]
    mean = Entry("", "elementwise", {"B": B, "d_m": widths[-1]})
    return ledger(*parts, mean, linear("head", {"B": B}, {"d_m": widths[-1]}, {"C": C}, True))
