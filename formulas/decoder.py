"""Dense decoders of published cost tables: GPT-3, Megatron-LM, Chinchilla, PaLM. Closed form only."""

from collections.abc import Sequence

from headcount.formulas.blocks import layer_norm, linear, residual, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger, stack
from headcount.formulas.llama import gated_feed_forward
from headcount.formulas.transformer import Mixer, feed_forward, tied_output

CAUSAL_PATHS = r"layers\..+\.self_attn"
"""Module paths of causal attention."""
NO_DECODE_STEP = "closed form of a forward pass only"


def model(
    attention: Sequence[Mixer],
    *,
    B: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    P: Size,
    h: Size,
    d_h: Size,
    bias: bool,
    gated: bool,
    tied: bool,
    parallel: bool,
    positions: str,
) -> Ledger:
    """Return the ledger of one pre-norm layer per ``attention`` over T tokens, as executed: all T x T pairs.

    bias: biases of the feed-forward block and of norms; attention has its own. gated: SwiGLU without biases. tied: the
    output projection uses the embedding's weight. parallel: attention and feed-forward block read one norm.
    positions: learned (P rows), rotary, or relative as in Transformer-XL (a projection and two vectors of the h heads).
    """
    rows, width, heads = {"B": B, "T": T}, {"d_m": d_m}, {"h": h, "d_h": d_h}

    def norm(path: str) -> Entry:
        return layer_norm(path, B=B, T=T, d_m=d_m) if bias else rms_norm(path, rows, width)

    def plain(path: str, **sizes: Size) -> Ledger:
        return feed_forward(path, **sizes).select(lambda entry: bias or entry.kind != "bias")

    def relative(path: str) -> Ledger:
        position = Entry(at(path, "position_proj"), "linear", {"T": T, **width, **heads}, weight={**width, **heads})
        vectors = Entry(path, "bias", {**rows, "2": 2, **heads}, weight={"2": 2, **heads})
        return ledger(position, [vectors] if bias else ())

    def layer(path: str, mixer: Mixer) -> Ledger:
        sizes = {"B": B, "T": T, "d_m": d_m}
        mlp = at(path, "feed_forward")
        return ledger(
            norm(at(path, "self_attn_norm")),
            mixer(at(path, "self_attn"), B=B, T=T, S=T, rotary=positions == "rotary"),
            relative(at(path, "self_attn")) if positions == "relative" else (),
            residual(path, **sizes),
            () if parallel else [norm(at(path, "feed_forward_norm"))],
            gated_feed_forward(mlp, F=F, **sizes) if gated else plain(mlp, F=F, **sizes),
            residual(path, **sizes),
        )

    learned = [
        Entry("position_embedding", "embedding", {"T": T, **width}, weight={"P": P, **width}),
        residual("", B=B, T=T, d_m=d_m),
    ]
    return ledger(
        Entry("embedding", "embedding", {**rows, **width}, weight={"V": V, **width}),
        learned if positions == "learned" else (),
        stack("layers", attention, layer),
        norm("norm"),
        tied_output(B=B, T=T, d_m=d_m, V=V) if tied else linear("output_proj", rows, width, {"V": V}),
    )
