"""Counted == exact == printed equation + what it leaves out, on grids of primes, with four counters.

Every size is another prime, so that a wrong count factors into the term that is wrong.
"""

from itertools import product

import pytest
import sympy

from headcount.bench.counters import registry
from headcount.formulas import mha, moa
from headcount.formulas.ledger import Ledger
from headcount.models.configs.make import make_config
from tests.agreement.points import point_id, readings

# every term is linear in K and E but for the limits K = 1, K = E and E = 1: two more values of each are enough
MOA_K_E = [(k, e) for k in (1, 3, 5) for e in sorted({k, 5, 7, 11}) if e >= k]
MOA_GRID = [
    dict(K=k, E=e, D=d, dm=dm, T=t, S=t if s is None else s, B=b)
    for (k, e), d, dm, t, s, b in product(MOA_K_E, (13, 17), (19, 23), (29, 31), (None, 37), (1, 41))
]
MHA_GRID = [
    dict(h=h, D=d, dm=h * d, T=t, S=t if s is None else s, B=b)
    for h, d, t, s, b in product((2, 3, 5, 7), (11, 13), (17, 19, 23), (None, 29), (1, 31, 37))
]


def moa_config(point):
    return make_config(
        dict(attention="moa", d_model=point["dm"], num_experts=point["E"], top_k=point["K"], head_dim=point["D"])
    )


def mha_config(point):
    return make_config(dict(attention="mha", d_model=point["dm"], num_heads=point["h"], bias=False))


def moa_terms(K, E, D, dm, T, S, B):
    return {
        "router": B * T * dm * E,
        "query": B * K * T * dm * D,
        "key": B * S * dm * D,
        "value": B * S * dm * D,
        "scores": B * K * T * S * D,
        "values": B * K * T * S * D,
        "output": B * K * T * D * dm,
    }


def mha_terms(h, D, dm, T, S, B):
    return {
        "query": B * T * dm**2,
        "key": B * S * dm**2,
        "value": B * S * dm**2,
        "scores": B * T * S * dm,
        "values": B * T * S * dm,
        "output": B * T * dm**2,
    }


def explain(counted, exact):
    """Which product a wrong reading is off by: the factors of the difference."""
    return {name: sympy.factorint(abs(macs - exact)) for name, macs in counted.items() if macs != exact}


@pytest.mark.parametrize("point", MOA_GRID, ids=point_id)
def test_moa(point):
    terms = moa_terms(**point)
    exact = sum(terms.values())
    counted, params, _ = readings(moa_config(point), point)
    assert counted == dict.fromkeys(registry.NAMES, exact), explain(counted, exact)

    letters = dict(d_m=point["dm"], E=point["E"], K=point["K"], D=point["D"])
    form = moa.layer("", B=point["B"], T=point["T"], S=point["S"], **letters)
    assert (form.macs, form.params) == (exact, params)
    if point["S"] == point["T"]:
        printed = moa.macs_eq18(T=point["T"], K=point["K"], D=point["D"], d_m=point["dm"])
        assert point["B"] * printed + terms["router"] + terms["values"] == exact
    assert moa.params_eq20(E=point["E"], D=point["D"], d_m=point["dm"]) + point["dm"] * point["E"] == params


@pytest.mark.parametrize("point", MHA_GRID, ids=point_id)
def test_mha(point):
    terms = mha_terms(**point)
    exact = sum(terms.values())
    counted, params, _ = readings(mha_config(point), point)
    assert counted == dict.fromkeys(registry.NAMES, exact), explain(counted, exact)

    letters = dict(d_m=point["dm"], h=point["h"], d_h=point["D"], g=point["h"], bias=False)
    form = mha.layer("", B=point["B"], T=point["T"], S=point["S"], **letters)
    assert (form.macs, form.params) == (exact, params)
    if point["S"] == point["T"]:
        assert point["B"] * mha.macs_eq19(T=point["T"], d_m=point["dm"]) + terms["values"] == exact
    assert mha.params_eq20(d_m=point["dm"]) == params


@pytest.mark.parametrize("point", MOA_GRID[::37], ids=point_id)
def test_moa_with_values_on_cpu(point):
    counted, _, _ = readings(moa_config(point), point, device="cpu")
    assert counted == dict.fromkeys(registry.NAMES, sum(moa_terms(**point).values()))


@pytest.mark.parametrize("point", MHA_GRID[::37], ids=point_id)
def test_mha_with_values_on_cpu(point):
    counted, _, _ = readings(mha_config(point), point, device="cpu")
    assert counted == dict.fromkeys(registry.NAMES, sum(mha_terms(**point).values()))


def test_the_grids_are_large_enough(figure):
    figure(
        f"formula consistency: {len(MOA_GRID)} MoA and {len(MHA_GRID)} MHA points, {len(registry.NAMES)} counters each"
    )
    assert len(MOA_GRID) >= 300 and len(MHA_GRID) >= 100


@pytest.mark.parametrize("point", [MOA_GRID[0], MOA_GRID[-1]], ids=point_id)
def test_a_ledger_without_one_of_its_entries_is_not_the_count(point):

    letters = dict(d_m=point["dm"], E=point["E"], K=point["K"], D=point["D"])
    form = moa.layer("", B=point["B"], T=point["T"], S=point["S"], **letters)
    counted, params, _ = readings(moa_config(point), point)
    for i, entry in enumerate(form.entries):
        rest = Ledger(form.entries[:i] + form.entries[i + 1 :])
        assert (rest.macs != counted["torch"]) == bool(entry.macs)
        assert (rest.params != params) == bool(entry.params)
