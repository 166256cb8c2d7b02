"""Ledgers of common blocks: linear layers, norms, residual additions, caches."""

from collections.abc import Mapping

from headcount.formulas.ledger import Entry, Ledger, Size, ledger

FORMS = ("released", "ideal")
"""A variant as its authors' code computes it, and without its unused work."""


def linear(
    path: str,
    rows: Mapping[str, Size],
    fan_in: Mapping[str, Size],
    fan_out: Mapping[str, Size],
    bias: bool = False,
    from_input: bool = False,
    experts: Mapping[str, Size] | None = None,
    stored: tuple[Mapping[str, Size], Mapping[str, Size]] | None = None,
    shared: Size = 0,
) -> Ledger:
    """Return the ledger of y = x W + b on ``rows`` rows: rows * fan_in * fan_out MACs.

    ``experts``: numbers of matrices, of which a row uses one. ``stored``: fan-in and fan-out of the weight, where a row
    uses only some of its heads, ``shared`` of them the same in all rows.
    """
    used, of_experts = (fan_in, fan_out), experts or {}
    all_in, all_out = stored or used
    selects = bool(experts) or (all_in, all_out) != used
    prefix, shared = ("expert_", shared) if selects else ("", 0)
    product, weight = {**rows, **fan_in, **fan_out}, {**of_experts, **all_in, **all_out}
    # selected heads have a product each, whose results are added afterwards
    summed = tuple(letter for letter in fan_in if letter in all_in)
    kind = f"{prefix}linear"
    out = ledger(Entry(path, kind, product, weight=weight, shared=shared, from_input=from_input, summed=summed))
    if bias:
        of_heads = shared if fan_out != all_out else 0
        out += ledger(
            Entry(path, f"{prefix}bias", {**rows, **fan_out}, weight={**of_experts, **all_out}, shared=of_heads)
        )
    return out


def layer_norm(path: str, *, B: Size, T: Size, d_m: Size) -> Entry:
    """Return the entry of a LayerNorm over d_m with scale and shift."""
    return Entry(path, "norm", {"B": B, "T": T, "d_m": d_m}, weight={"2": 2, "d_m": d_m})


def rms_norm(path: str, rows: Mapping[str, Size], width: Mapping[str, Size]) -> Entry:
    """Return the entry of RMSNorm with scale on ``rows`` rows."""
    return Entry(path, "rms_norm", {**rows, **width}, weight=width)


def residual(path: str, *, B: Size, T: Size, d_m: Size) -> Entry:
    """Return the entry of a residual addition."""
    return Entry(path, "elementwise", {"B": B, "T": T, "d_m": d_m})


def is_ideal(form: str) -> bool:
    """Return whether ``form`` is "ideal" and not "released". Raises ValueError for any other."""
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; choose from {', '.join(FORMS)}")
    return form == "ideal"


def past_len(n: Size | None) -> Size:
    """Return the number of cached tokens: 0 for None, a forward pass without a cache."""
    return 0 if n is None else n


def cache(path: str, token: Mapping[str, Size], *, B: Size, S: Size, n: Size | None, **read: Size) -> Ledger:
    """Return the ledger of a cache of S tokens of size ``token``, ``n`` of them cached before; empty for n = None.

    ``read``: smaller sizes of letters of ``token``, where the queries read only a part.
    """
    if n is None:
        return ledger()
    return ledger(
        Entry(path, "cache", {"B": B, "S": S, **token}),
        Entry(path, "cache_write", {"B": B, "S": S - n, **token}),
        Entry(path, "cache_read", {"B": B, "S": S, **token, **read}),
    )
