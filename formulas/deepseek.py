"""DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437): dense layers, then layers of shared and routed experts.

Closed form only, without multi-token prediction.
"""

from collections.abc import Sequence

from headcount.formulas import llama, moe_ffn
from headcount.formulas.blocks import linear, residual, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger, stack
from headcount.formulas.transformer import Mixer

CAUSAL_PATHS = llama.CAUSAL_PATHS
NO_DECODE_STEP = "closed form of a forward pass only"


def model(
    attention: Sequence[Mixer],
    *,
    B: Size,
    T: Size,
    d_m: Size,
    F: Size,
    V: Size,
    E_ff: Size,
    K_ff: Size,
    N_dense: Size,
    F_e: Size,
    E_s: Size,
) -> Ledger:
    """Return the ledger of one layer per ``attention`` over T tokens, as executed: all T x T pairs.

    The first N_dense have feed-forward blocks of width F; the others E_s shared experts of width F_e, which run as one
    block, and K_ff of E_ff routed ones.
    """
    sizes, rows, width = {"B": B, "T": T, "d_m": d_m}, {"B": B, "T": T}, {"d_m": d_m}

    def mixture(path: str) -> Ledger:
        return ledger(
            llama.gated_feed_forward(at(path, "shared_experts"), F=E_s * F_e, **sizes),
            moe_ffn.layer(path, F=F_e, E=E_ff, K=K_ff, gated=True, **sizes),
            residual(path, **sizes),
        )

    def layer(path: str, run: tuple[Mixer, bool]) -> Ledger:
        mixer, dense = run
        block = at(path, "feed_forward")
        return ledger(
            rms_norm(at(path, "self_attn_norm"), rows, width),
            mixer(at(path, "self_attn"), B=B, T=T, S=T, rotary=True),
            residual(path, **sizes),
            rms_norm(at(path, "feed_forward_norm"), rows, width),
            llama.gated_feed_forward(block, F=F, **sizes) if dense else mixture(block),
            residual(path, **sizes),
        )

    # layers with one mixer share a tuple, so that their entries are written once
    runs = {(id(mixer), dense): (mixer, dense) for mixer in attention for dense in (True, False)}
    layers = [runs[id(mixer), i < N_dense] for i, mixer in enumerate(attention)]
    return ledger(
        Entry("embedding", "embedding", {**rows, **width}, weight={"V": V, **width}),
        stack("layers", layers, layer),
        rms_norm("norm", rows, width),
        linear("output_proj", rows, width, {"V": V}),
    )
