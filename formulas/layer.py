"""A single attention layer as a model."""

from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.transformer import Mixer

CAUSAL_PATHS = r""
"""A single layer counts as that of a decoder."""


def model(attention: Mixer, *, n: Size | None = None, **lengths: Size) -> Ledger:
    """Return the ledger of ``attention`` from T query to S key tokens; with ``n`` cached ones, to these and the T.

    ``lengths``: B, T and S, of which the attention of a grid has only B.
    """
    return attention("", **lengths) if n is None else attention("", **{**lengths, "S": n + lengths["T"]}, n=n)
