"""An attention layer by itself, as a model of one layer."""

from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.transformer import Mixer


def model(attention: Mixer, *, B: Size, T: Size, S: Size) -> Ledger:
    """``attention`` from T query to S key tokens."""
    return attention("", B=B, T=T, S=S)


def step(attention: Mixer, *, new: Size, stored: Size, B: Size, **_: Size) -> Ledger:
    """Self-attention on ``new`` tokens, ``stored`` in the cache after them."""
    return attention("", B=B, T=new, S=stored, n=stored - new)
