"""Multi-head latent attention (arXiv 2405.04434, Eq. 9-19): keys and values from one latent vector per token.

c^KV = W^DKV x, k^C_i = W^UK_i c^KV, v_i = W^UV_i c^KV; c^Q = W^DQ x, q^C_i = W^UQ_i c^Q; q^R_i = RoPE(W^QR_i c^Q),
k^R = RoPE(W^KR x), one for all heads; o_i = Softmax([q^C_i; q^R_i] [k^C_i; k^R]^T / sqrt(d_h + d_r)) v_i.
A cache holds c^KV and k^R, d_c + d_r elements per token; as written, keys and values are made of all stored tokens.
"""

from headcount.formulas.blocks import cache, linear, past_len, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.mha import rope


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

    MACs: :func:`compressed`'s, B S d_c h (d_h + d_v) + B h T S (d_h + d_r + d_v) and B T h d_v d_m.
    """
    stored, latent, new = {"B": B, "S": S}, {"d_c": d_c}, S - past_len(n)
    return ledger(
        compressed(path, B=B, T=T, new=new, d_m=d_m, h=h, d_h=d_h, d_r=d_r, d_c=d_c, d_q=d_q, bias=bias),
        rotated(path, B=B, T=T, new=new, h=h, d_r=d_r) if rotary else (),
        linear(at(path, "k_proj"), stored, latent, {"h": h, "d_h": d_h}),
        linear(at(path, "v_proj"), stored, latent, {"h": h, "d_v": d_v}),
        core(path, B=B, T=T, S=S, h=h, d_qk=d_h + d_r, values={"d_v": d_v}),
        linear(at(path, "out_proj"), {"B": B, "T": T}, {"h": h, "d_v": d_v}, {"d_m": d_m}, bias),
        latents(path, B=B, S=S, n=n, d_c=d_c, d_r=d_r),
    )


def compressed(
    path: str,
    *,
    B: Size,
    T: Size,
    new: Size,
    d_m: Size,
    h: Size,
    d_h: Size,
    d_r: Size,
    d_c: Size,
    d_q: Size | None,
    bias: bool,
) -> Ledger:
    """Return the ledger of queries of T tokens, and of latents and rotary keys of ``new`` tokens.

    ``bias``: biases of the layers that read the model's input.

    MACs: B T d_q (d_m + h (d_h + d_r)), B T d_m h (d_h + d_r) without ``d_q``; and B new d_m (d_c + d_r).
    """
    queries, keys, width, fan_in = {"B": B, "T": T}, {"B": B, "S": new}, {"d_m": d_m}, {"d_m": d_m}
    out = ledger()
    if d_q is not None:
        fan_in = {"d_q": d_q}
        out += linear(at(path, "q_down_proj"), queries, width, fan_in, bias)
        out += ledger(rms_norm(at(path, "q_norm"), queries, fan_in))
    return ledger(
        out,
        linear(at(path, "q_proj"), queries, fan_in, {"h": h, "d_h": d_h}),
        linear(at(path, "q_rotary_proj"), queries, fan_in, {"h": h, "d_r": d_r}),
        linear(at(path, "kv_down_proj"), keys, width, {"d_c": d_c}, bias),
        rms_norm(at(path, "kv_norm"), keys, {"d_c": d_c}),
        linear(at(path, "k_rotary_proj"), keys, width, {"d_r": d_r}, bias),
    )


def latents(path: str, *, B: Size, S: Size, n: Size | None, d_c: Size, d_r: Size) -> Ledger:
    """Return the ledger of a cache of one latent and one rotary key per token, S tokens."""
    return ledger(*(cache(path, part, B=B, S=S, n=n) for part in ({"d_c": d_c}, {"d_r": d_r})))


def rotated(path: str, *, B: Size, T: Size, new: Size, h: Size, d_r: Size) -> Ledger:
    """Return the ledger of rotary positions on h queries of T tokens and on one key of ``new`` tokens."""
    return rope(path, {"B": B, "T": T}, {"h": h, "d_r": d_r}, {"B": B, "S": new}, {"d_r": d_r})


def core(path: str, *, B: Size, T: Size, S: Size, h: Size, d_qk: Size, values: dict[str, Size]) -> Ledger:
    """Return the ledger of scores of h heads of width d_qk, softmax and weighted ``values``."""
    pairs = {"B": B, "h": h, "T": T, "S": S}
    return ledger(
        Entry(path, "scores", {**pairs, "d_qk": d_qk}),
        Entry(path, "softmax", pairs),
        Entry(path, "values", {**pairs, **values}),
    )
