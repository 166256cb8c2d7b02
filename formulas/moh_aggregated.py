"""Mixture of heads over aggregated attention (MoH-ViT, arXiv 2410.11842): released, and without unselected heads."""

from headcount.formulas import aggregated, moh
from headcount.formulas.blocks import is_ideal
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger


def layer(
    path: str,
    *,
    B: Size,
    d_m: Size,
    h: Size,
    s: Size,
    r: Size,
    d_h: Size,
    T: Size,
    M: Size,
    N_pos: Size,
    d_pos: Size,
    form: str = "released",
) -> Ledger:
    """Return the ledger of aggregated attention, the routers of MoH and a gate on the output of each head.

    ``ideal``: queries, scores, values and output rows of k = s + r heads per token. All keys, values and position
    biases are computed, because other tokens read them.
    """
    ideal = is_ideal(form)
    heads = {"k": s + r} if ideal else {"h": h}
    selected = {"k": s + r, "s": s} if ideal else {}
    return ledger(
        moh.linear_router(at(path, "router"), B=B, T=T, d_m=d_m, h=h, s=s, r=r, d_h=d_h),
        aggregated.layer(path, B=B, d_m=d_m, h=h, d_h=d_h, T=T, M=M, N_pos=N_pos, d_pos=d_pos, **selected),
        Entry(path, "elementwise", {"B": B, "T": T, **heads, "d_h": d_h}),
    )
