"""Diffusion Transformer (arXiv 2212.09748) with adaLN-Zero: norms take scale, shift and gate from a condition."""

from collections.abc import Sequence

from headcount.formulas.blocks import linear
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger, stack
from headcount.formulas.moe_ffn import feed_forward
from headcount.formulas.transformer import Mixer

NO_DECODE_STEP = "a diffusion Transformer makes its image at once and decodes no tokens"


def modulation(path: str, parts: str, *, B: Size, d_m: Size) -> Ledger:
    """Return the ledger of SiLU and a biased linear layer to ``parts`` vectors (a number): B d_m parts d_m MACs."""
    return ledger(
        Entry(path, "activation", {"B": B, "d_m": d_m}),
        linear(at(path, "proj"), {"B": B}, {"d_m": d_m}, {parts: int(parts), "d_out": d_m}, bias=True),
    )


def modulated_norm(path: str, block: str, *, B: Size, T: Size, d_m: Size) -> Ledger:
    """Return the ledger of LayerNorm without parameters at ``path``, and of scale and shift in ``block``."""
    rows = {"B": B, "T": T, "d_m": d_m}
    return ledger(Entry(path, "norm", rows), Entry(block, "elementwise", {"2": 2, **rows}))


def block(path: str, attention: Mixer, *, B: Size, T: Size, d_m: Size, **inner: Size) -> Ledger:
    """Return the ledger of self-attention and feed-forward of sizes ``inner``, modulated before and gated after."""
    rows = {"B": B, "T": T, "d_m": d_m}
    gated_residual = Entry(path, "elementwise", {"2": 2, **rows})
    return ledger(
        modulation(at(path, "modulation"), "6", B=B, d_m=d_m),
        modulated_norm(at(path, "self_attn_norm"), path, **rows),
        attention(at(path, "self_attn"), B=B, T=T, S=T),
        gated_residual,
        modulated_norm(at(path, "feed_forward_norm"), path, **rows),
        feed_forward(at(path, "feed_forward"), **inner, **rows),
        gated_residual,
    )


def model(
    attention: Sequence[Mixer],
    *,
    B: Size,
    T: Size,
    d_m: Size,
    p: Size,
    C_in: Size,
    C_out: Size,
    d_t: Size,
    N_y: Size,
    **inner: Size,
) -> Ledger:
    """Return the ledger of one block per ``attention`` over T patches of p x p; positions are frozen parameters.

    ``inner``: sizes of :func:`headcount.formulas.moe_ffn.feed_forward`.
    """
    rows, width = {"B": B, "T": T}, {"d_m": d_m}
    patch = {"p_h": p, "p_w": p}
    return ledger(
        linear("patch_embedding", rows, {"C_in": C_in, **patch}, width, bias=True, from_input=True),
        Entry("", "elementwise", {**rows, **width}, weight={"T": T, **width}, trainable=False),
        linear("timestep_embedding.fc1", {"B": B}, {"d_t": d_t}, width, bias=True, from_input=True),
        Entry("timestep_embedding", "activation", {"B": B, **width}),
        linear("timestep_embedding.fc2", {"B": B}, width, {"d_out": d_m}, bias=True),
        Entry("label_embedding", "embedding", {"B": B, **width}, weight={"N_y": N_y, **width}),
        Entry("", "elementwise", {"B": B, **width}),
        stack("blocks", attention, lambda path, mixer: block(path, mixer, B=B, T=T, d_m=d_m, **inner)),
        modulation("final_layer.modulation", "2", B=B, d_m=d_m),
        modulated_norm("final_layer.norm", "final_layer", B=B, T=T, d_m=d_m),
        linear("final_layer.proj", rows, width, {**patch, "C_out": C_out}, bias=True),
    )
