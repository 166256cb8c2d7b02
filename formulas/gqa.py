"""Grouped-query attention (arXiv 2305.13245): ``mha`` with g < h key/value heads."""

from headcount.formulas import mha
from headcount.formulas.ledger import Ledger, Size


def layer(path: str, *, g: Size, **sizes: Size) -> Ledger:
    """Return the ledger of ``mha.layer`` with g key/value heads."""
    return mha.layer(path, g=g, **sizes)
