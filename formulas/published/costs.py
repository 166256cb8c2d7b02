"""The costs that a relation of claims.toml may name."""

from collections.abc import Callable
from fractions import Fraction

from headcount.formulas import conventions, mha, moa, moh
from headcount.formulas.ledger import Entry, Ledger, Size


def _projections(entry: Entry) -> int | Fraction:
    """Return 1 for linear layers other than the router."""
    return conventions.projections(entry) - conventions.router(entry)


def _moa(*, T, K, E, D, d_m, **_) -> Ledger:
    return moa.layer("", B=1, T=T, S=T, d_m=d_m, E=E, K=K, D=D)


def _with_own_keys(E: Size, account: str, **letters) -> Size:
    # a query may select any expert, so all E of them have all their keys and values computed
    shared = _moa(E=E, **letters)
    keys = shared.select(lambda entry: entry.path in ("k_proj", "v_proj"))
    return getattr(shared, account) + (E - 1) * getattr(keys, account)


def _mha(*, T, d_m, **_) -> Ledger:
    # heads of any width with h d_h = d_m cost the same
    return mha.layer("", B=1, T=T, S=T, d_m=d_m, h=1, d_h=d_m, g=1, bias=False)


def _moh(form: str, *, T, h, s, r, d_h, g, d_m) -> Ledger:
    return moh.layer("", B=1, T=T, S=T, d_m=d_m, h=h, s=s, r=r, d_h=d_h, g=g, form=form)


COSTS: dict[str, Callable[..., Size]] = {
    "moa_macs_eq18": lambda *, T, K, D, d_m, **_: moa.macs_eq18(T=T, K=K, D=D, d_m=d_m),
    "mha_macs_eq19": lambda *, T, d_m, **_: mha.macs_eq19(T=T, d_m=d_m),
    "moa_params_eq20": lambda *, E, D, d_m, **_: moa.params_eq20(E=E, D=D, d_m=d_m),
    "mha_params_eq20": lambda *, d_m, **_: mha.params_eq20(d_m=d_m),
    "moa_macs": lambda **letters: _moa(**letters).macs,
    "mha_macs": lambda **letters: _mha(**letters).macs,
    "moa_params": lambda **letters: _moa(**letters).params,
    "mha_params": lambda **letters: _mha(**letters).params,
    "moa_router_macs": lambda **letters: _moa(**letters).total_under(conventions.router),
    "moa_projection_macs": lambda **letters: _moa(**letters).total_under(_projections),
    "moa_own_keys_macs": lambda *, E, **letters: _with_own_keys(E, "macs", **letters),
    "moa_own_keys_params": lambda *, E, **letters: _with_own_keys(E, "params", **letters),
    "moh_macs": lambda **letters: _moh("released", **letters).macs,
    "moh_ideal_macs": lambda **letters: _moh("ideal", **letters).macs,
    "moh_params": lambda **letters: _moh("released", **letters).params,
}
"""The costs by name, each a function of all letters."""
