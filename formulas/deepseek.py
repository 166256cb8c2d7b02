"""DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437): dense layers, then layers of shared and routed experts.

Without multi-token prediction.
"""

from collections.abc import Sequence
from functools import partial

from headcount.formulas import llama
from headcount.formulas.blocks import residual
from headcount.formulas.ledger import Ledger, Size, at, ledger
from headcount.formulas.llama import gated_feed_forward
from headcount.formulas.transformer import Mixer

CAUSAL_PATHS = llama.CAUSAL_PATHS


def model(
    attention: Sequence[Mixer],
    *,
    F: Size,
    E_ff: Size,
    K_ff: Size,
    N_dense: int,
    F_e: Size,
    E_s: Size,
    **sizes: Size,
) -> Ledger:
    """Return the :func:`llama.language_model` of one layer per ``attention``.

    The first N_dense have feed-forward blocks of width F; the others E_s shared experts of width F_e, which run as one
    block, and K_ff of E_ff routed ones.
    """

    def mixture(path: str, **rows: Size) -> Ledger:
        return ledger(
            gated_feed_forward(path, F=F_e, E_ff=E_ff, K_ff=K_ff, **rows),
            gated_feed_forward(at(path, "shared_experts"), F=E_s * F_e, **rows),
            residual(path, **rows),
        )

    dense = partial(gated_feed_forward, F=F)
    blocks = [dense if i < N_dense else mixture for i in range(len(attention))]
    return llama.language_model(zip(attention, blocks, strict=True), **sizes)


step = llama.decode_step(model)
