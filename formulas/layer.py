"""A single attention layer as a model."""

from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.transformer import Mixer

CAUSAL_PATHS = r""
"""A single layer counts as that of a decoder."""


def model(attention: Mixer, *, B: Size, T: Size, S: Size, n: Size | None = None) -> Ledger:
    """Return the ledger of ``attention`` from T query to S key tokens; with ``n`` cached ones, to these and the T."""
    return attention("", B=B, T=T, S=S) if n is None else attention("", B=B, T=T, S=n + T, n=n)
