"""Mixture of attention heads: Eq. 18 and 20 of arXiv 2210.05144 as printed, and the exact form.

W_att,i,t = Softmax(q_t Wq_i (K Wk)^T / sqrt(D)), y_t = sum_{i in G(q_t)} w_i,t (W_att,i,t V Wv) Wo_i
(Eq. 6, 10-12): Wq_i and Wo_i are per expert, Wk and Wv are shared by all experts.
"""

from headcount.formulas.blocks import cache, linear, past_len
from headcount.formulas.ledger import Entry, Ledger, Size, at, divide, ledger
from headcount.formulas.mha import attention_ledger, rope


def macs_eq18(*, T: Size, K: Size, D: Size, d_m: Size) -> Size:
    """Return C_MoA = K T^2 D + 2 (K + 1) T D d_m, as printed; it omits the router and one of the two T^2 products."""
    return K * T**2 * D + 2 * (K + 1) * T * D * d_m


def params_eq20(*, E: Size, D: Size, d_m: Size) -> Size:
    """Return M_MoA = (2 E + 2) D d_m, as printed; it omits router and biases."""
    return (2 * E + 2) * D * d_m


def params_ratio_appendix_b(*, E: Size, D: Size, d_m: Size) -> Size:
    """Return M_MoA / M_MHA = 2 (E + 1) D d_m / (4 d_m^2), Appendix B; the printed right-hand side has a stray K."""
    return divide(params_eq20(E=E, D=D, d_m=d_m), 4 * d_m**2)


def layer(
    path: str,
    *,
    B: Size,
    T: Size,
    S: Size,
    d_m: Size,
    E: Size,
    K: Size,
    D: Size,
    g: Size = 1,
    bias: bool = False,
    output_bias: bool = False,
    gates: str = "printed",
    noisy: bool = False,
    training: bool = False,
    n: Size | None = None,
    rotary: bool = False,
) -> Ledger:
    """Return the ledger for T query and S key tokens, K of E experts of width D per query token.

    ``n``: number of the S tokens that are cached; None: no cache. With g key/value heads an expert is g heads of width
    D / g: the same products, g times the softmaxes. ``output_bias``: a bias after the sum over experts. ``gates``:
    "selected" adds a softmax over the K selected experts.
    MACs: B T d_m E + 2 B K T d_m D + 2 B (S - n) d_m D + 2 B K T S D, and B T d_m E more for the noise of Eq. 3
    where ``noisy`` and ``training``.
    """
    queries, keys, width, head = {"B": B, "T": T}, {"B": B, "S": S - past_len(n)}, {"d_m": d_m}, {"D": D}
    experts, routed = {"E": E}, {"B": B, "T": T, "K": K}
    noise = {"B": B, "T": T if training else 0}
    return ledger(
        linear(at(path, "router.proj"), queries, width, experts),
        linear(at(path, "router.noise_proj"), noise, width, experts) if noisy else (),
        Entry(at(path, "router"), "softmax", {**queries, **experts}),
        Entry(at(path, "router"), "softmax", routed) if gates == "selected" else (),
        linear(at(path, "q_proj"), routed, width, head, bias, experts=experts),
        linear(at(path, "k_proj"), keys, width, head, bias),
        linear(at(path, "v_proj"), keys, width, head, bias),
        rope(path, routed, head, keys, head) if rotary else (),
        attention_ledger(path, {"B": B, "K": K, "T": T, "S": S}, head, g=g),
        Entry(path, "elementwise", {**routed, **head}),
        linear(at(path, "out_proj"), routed, head, width, bias, experts=experts),
        Entry(path, "expert_bias", {**queries, **width}, weight=width) if output_bias else (),
        cache(path, {"2": 2, **head}, B=B, S=S, n=n),
    )
