"""JetMoE (arXiv 2404.07413): LLaMA's layers around attention experts and feed-forward experts, with a tied output."""

from collections.abc import Sequence

from headcount.formulas import llama
from headcount.formulas.blocks import rms_norm
from headcount.formulas.ledger import Entry, Ledger, Size, ledger, stack
from headcount.formulas.transformer import Mixer, tied_output


def step(attention: Sequence[Mixer], *, new: Size, stored: Size, **sizes: Size) -> Ledger:
    """The model on ``new`` tokens, ``stored`` in the caches after them; logits of each new one."""
    return model(attention, T=new, n=stored - new, **sizes)


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
    n: Size | None = None,
) -> Ledger:
    """One layer for each of ``attention``, over T tokens as executed: the whole T x T square.

    Keys and values of ``n`` tokens before them are in caches; None: there are none. The output's matrix is the
    embedding's.
    """
    rows, width = {"B": B, "T": T}, {"d_m": d_m}
    inner = {"F": F, "E_ff": E_ff, "K_ff": K_ff, "output_bias": True}
    return ledger(
        Entry("embedding", "embedding", {**rows, **width}, weight={"V": V, **width}),
        stack("layers", attention, lambda path, mixer: llama.layer(path, mixer, B=B, T=T, d_m=d_m, n=n, **inner)),
        rms_norm("norm", rows, width),
        tied_output(B=B, T=T, d_m=d_m, V=V),
    )
