"""Multi-head latent attention with its up-projections absorbed: a step reads the stored latents as they are.

q_i k_i^T = (q^C_i W^UK_i) c^KV^T + q^R_i k^R^T, and W^UV_i (sum_j a_ij c^KV_j) = sum_j a_ij v_ij: the same function as
formulas/mla.py, with queries and outputs of T tokens through W^UK and W^UV instead of keys and values of S. Less work
where few queries meet many stored tokens, more over whole sequences: by B h d_c ((S - T) (d_h + d_v)) less, and by
B h T S (2 d_c - d_h - d_v) more.
"""

from headcount.formulas.blocks import linear, past_len
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.mla import compressed, core, latents, rotated


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    d_r: Size,
    d_v: Size,
    d_c: Size,
    d_q: Size | None,
    bias: bool = False,
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, latents of ``n`` of the S cached; None: no cache.

    ``d_q`` None: queries have no latent.

    MACs: those of ``compressed``, B T h d_c (d_h + d_v) + B h T S (2 d_c + d_r) and B T h d_v d_m.
    """
    queries, heads, latent = {"B": B, "T": T}, {"h": h}, {"d_c": d_c}
    keys, values, new = {"d_h": d_h}, {"d_v": d_v}, S - past_len(n)
    return ledger(
        compressed(path, B=B, T=T, new=new, d_m=d_m, h=h, d_h=d_h, d_r=d_r, d_c=d_c, d_q=d_q, bias=bias),
        rotated(path, B=B, T=T, new=new, h=h, d_r=d_r) if rotary else (),
        Entry(at(path, "k_proj"), "linear", {**queries, **heads, **keys, **latent}, weight={**latent, **heads, **keys}),
        core(path, B=B, T=T, S=S, h=h, d_qk=d_c + d_r, values=latent),
        Entry(
            at(path, "v_proj"), "linear", {**queries, **heads, **latent, **values}, weight={**latent, **heads, **values}
        ),
        linear(at(path, "out_proj"), queries, {**heads, **values}, {"d_m": d_m}, bias),
        latents(path, B=B, S=S, n=n, d_c=d_c, d_r=d_r),
    )
