"""The key/value cache as a projection of the ledger: what the key and value projections put out."""

from math import prod

from formulas.ledger import Ledger, Size


def kv_values(ledger: Ledger) -> Size:
    """Numbers that the caches hold for one context: keys and values of each attention that decodes.

    These are the decoder's, self- and cross-attention, where there is a decoder, else every layer's.
    """
    projections = ledger.select(lambda entry: entry.kind == "linear" and entry.path.endswith(("k_proj", "v_proj")))
    decoding = projections.select(lambda entry: entry.path.startswith("decoder."))
    return sum(
        entry.times * prod(size for letter, size in entry.dims.items() if letter != "d_m")
        for entry in (decoding if len(decoding) else projections)
    )
