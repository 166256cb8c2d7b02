"""A single attention layer as a model."""

from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.transformer import Mixer

CAUSAL_PATHS = r""
"""A single layer counts as that of a decoder."""


def model(attention: Mixer, *, B: Size, T: Size, S: Size) -> Ledger:
    """Return the ledger of ``attention`` from T query to S key tokens."""
    return attention("", B=B, T=T, S=S)


def step(attention: Mixer, *, new: Size, stored: Size, B: Size, **_: Size) -> Ledger:
    """Return the ledger of a decode step: ``new`` tokens, ``stored`` in the cache after the step."""
    return attention("", B=B, T=new, S=stored, n=stored - new)
