"""Multi-head latent attention (arXiv 2405.04434, Eq. 9-19): keys and values from one latent vector per token.

c^KV = W^DKV x, k^C_i = W^UK_i c^KV, v_i = W^UV_i c^KV; c^Q = W^DQ x, q^C_i = W^UQ_i c^Q; q^R_i = RoPE(W^QR_i c^Q),
k^R = RoPE(W^KR x), one for all heads; o_i = Softmax([q^C_i; q^R_i] [k^C_i; k^R]^T / sqrt(d_h + d_r)) v_i.
A cache holds c^KV and k^R, d_c + d_r elements per token; as written, keys and values are made of all stored tokens.

The ideal form absorbs the up-projections: q_i k_i^T = (q^C_i W^UK_i) c^KV^T + q^R_i k^R^T, and
W^UV_i (sum_j a_ij c^KV_j) = sum_j a_ij v_ij. The same function, with queries and outputs of T tokens through W^UK and
W^UV instead of keys and values of S. Less work where few queries meet many stored tokens, more over whole sequences: by
B h d_c ((S - T) (d_h + d_v)) less, and by B h T S (2 d_c - d_h - d_v) more.
"""

from headcount.formulas.blocks import cache, is_ideal, linear, past_len, rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, at, ledger
from headcount.formulas.mha import attention_ledger, rope


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
    form: str = "released",
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, latents of ``n`` of the S cached; None: no cache.

    ``d_q`` None: queries have no latent. ``bias``: biases of the layers that read the model's input, and of the output.
    ``form``: "ideal" absorbs the up-projections.

    MACs: B T d_q (d_m + h (d_h + d_r)), B T d_m h (d_h + d_r) without ``d_q``; B (S - n) d_m (d_c + d_r);
    B S d_c h (d_h + d_v) + B h T S (d_h + d_r + d_v), in the ideal form B T h d_c (d_h + d_v) + B h T S (2 d_c + d_r);
    and B T h d_v d_m.
    """
    queries, keys, stored = {"B": B, "T": T}, {"B": B, "S": S - past_len(n)}, {"B": B, "S": S}
    width, latent, turned = {"d_m": d_m}, {"d_c": d_c}, {"d_r": d_r}
    heads, of_keys, of_values = {"h": h}, {"d_h": d_h}, {"d_v": d_v}
    fan_in = width if d_q is None else {"d_q": d_q}
    pairs = {"B": B, "h": h, "T": T, "S": S}
    k_proj, v_proj = at(path, "k_proj"), at(path, "v_proj")
    if is_ideal(form):
        to_queries = {**heads, **of_keys, **latent}
        to_outputs = {**heads, **latent, **of_values}
        attention = ledger(
            Entry(k_proj, "linear", {**queries, **to_queries}, weight={**latent, **heads, **of_keys}, summed=("d_h",)),
            attention_ledger(path, pairs, {"d_qk": d_c + d_r}, latent),
            Entry(
                v_proj, "linear", {**queries, **to_outputs}, weight={**latent, **heads, **of_values}, summed=("d_c",)
            ),
        )
    else:
        attention = ledger(
            linear(k_proj, stored, latent, {**heads, **of_keys}),
            linear(v_proj, stored, latent, {**heads, **of_values}),
            attention_ledger(path, pairs, {"d_qk": d_h + d_r}, of_values),
        )
    return ledger(
        linear(at(path, "q_down_proj"), queries, width, fan_in, bias) if d_q is not None else (),
        [rms_norm(at(path, "q_norm"), queries, fan_in)] if d_q is not None else (),
        linear(at(path, "q_proj"), queries, fan_in, {**heads, **of_keys}),
        linear(at(path, "q_rotary_proj"), queries, fan_in, {**heads, **turned}),
        linear(at(path, "kv_down_proj"), keys, width, latent, bias),
        rms_norm(at(path, "kv_norm"), keys, latent),
        linear(at(path, "k_rotary_proj"), keys, width, turned, bias),
        rope(path, queries, {**heads, **turned}, keys, turned) if rotary else (),
        attention,
        linear(at(path, "out_proj"), queries, {**heads, **of_values}, width, bias),
        cache(path, latent, B=B, S=S, n=n),
        cache(path, turned, B=B, S=S, n=n),
    )
