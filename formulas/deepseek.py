"""DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437): dense layers, then layers of shared and routed experts."""

from collections.abc import Sequence
from functools import partial

from headcount.formulas import llama
from headcount.formulas.blocks import linear, residual
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.moe_ffn import feed_forward
from headcount.formulas.transformer import Mixer, tied_output

CAUSAL_PATHS = rf"{llama.CAUSAL_PATHS}|predictors\..+\.self_attn"
"""Module paths of causal attention."""


def model(
    attention: Sequence[Mixer],
    *,
    F: Size,
    E_ff: Size,
    K_ff: Size,
    N_dense: int,
    F_e: Size,
    E_s: Size,
    N_mtp: int = 0,
    n: Size | None = None,
    **sizes: Size,
) -> Ledger:
    """Return the :func:`llama.language_model` of one layer per ``attention``.

    The first N_dense have feed-forward blocks of width F; the others E_s shared experts of width F_e, which run as one
    block, and K_ff of E_ff routed ones. N_mtp: further tokens that are predicted at once, each by a layer as the last
    (V3's Eq. 21-24); a decode step predicts none.
    """
    T, V = sizes["T"], sizes["V"]
    rows = {"B": sizes["B"], "d_m": sizes["d_m"]}

    def mixture(path: str, **own: Size) -> Ledger:
        return ledger(
            feed_forward(path, F=F_e, E_ff=E_ff, K_ff=K_ff, gated=True, **own),
            feed_forward(at(path, "shared_experts"), F=E_s * F_e, gated=True, **own),
            residual(path, **own),
        )

    dense = partial(feed_forward, F=F, gated=True)
    blocks = [dense if i < N_dense else mixture for i in range(len(attention))]
    layers = list(zip(attention, blocks, strict=True))

    def predictor(k: int) -> Ledger:
        path, own = f"predictors.{k - 1}", {**rows, "T": T - k}
        tokens, width = {"B": own["B"], "T": own["T"]}, {"d_m": own["d_m"]}
        return ledger(
            Entry("embedding", "embedding", own),
            llama.root_mean_square_norm(at(path, "hidden_norm"), **own),
            llama.root_mean_square_norm(at(path, "embedding_norm"), **own),
            linear(at(path, "proj"), tokens, {"2": 2, **width}, {"d_out": own["d_m"]}),
            llama.layer(at(path, "layer"), layers[-1], n=None, **own),
            llama.root_mean_square_norm(at(path, "norm"), **own),
            tied_output(V=V, **own),
        )

    predictors = [predictor(k) for k in range(1, N_mtp + 1)] if n is None else []
    return ledger(llama.language_model(layers, n=n, **sizes), *predictors)
