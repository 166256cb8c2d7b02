"""Multi-query attention (arXiv 1911.02150): ``mha`` with one key/value head."""

from headcount.formulas import mha
from headcount.formulas.ledger import Ledger, Size


def layer(path: str, **sizes: Size) -> Ledger:
    """Return the ledger of ``mha.layer`` with one key/value head."""
    return mha.layer(path, g=1, **sizes)
