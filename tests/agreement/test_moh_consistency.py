"""MoH: counted == closed form, both implementations, on grids of primes, with four counters."""

from itertools import product

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.bench.counters import base, registry
from headcount.formulas import moh, moh_ideal
from headcount.formulas.ledger import Ledger
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.agreement.points import Step, by_turns, point_id, readings

# (h, s, r, g): both routers with s = 0, 1 and more; nothing routed; all routed; all, some and one key/value heads
HEADS = [
    (5, 2, 2, 5), (7, 0, 3, 7), (7, 1, 5, 1), (11, 3, 5, 11), (6, 3, 2, 3), (6, 2, 3, 2), (3, 3, 0, 3), (5, 0, 5, 1),
    (1, 1, 0, 1), (13, 2, 11, 13),
]  # fmt: skip
GRID = [
    dict(h=h, s=s, r=r, g=g, D=d, dm=dm, T=t, S=t if other is None else other, B=b)
    for (h, s, r, g), d, dm, t, other, b in product(HEADS, (17, 19), (23, 29), (31, 37), (None, 41), (1, 3))
    if (other is None) != (b == 3) or (d, t) == (17, 31)
]
FORMS = ("released", "ideal")


def config_at(point, moh_form, **more):
    heads = dict(num_heads=point["h"], num_shared_heads=point["s"], top_k=point["r"], num_kv_heads=point["g"])
    sizes = dict(d_model=point["dm"], head_dim=point["D"], form=moh_form)
    return make_config(dict(attention="moh") | heads | sizes | more)


def router_outputs(h, s, r):
    """Columns of all routers' matrices together."""
    return (h - s if r else 0) + (s if s > 1 else 0) + (2 if r and s else 0)


def terms(point, moh_form, router="linear"):
    h, s, r, g, D, dm, T, S, B = point.values()
    heads = s + r if moh_form == "ideal" else h
    return {
        "routers": B * T * dm * router_outputs(h, s, r) if router == "linear" else 0,
        "query": B * T * dm * (heads if router == "linear" else h) * D,
        "key": B * S * dm * g * D,
        "value": B * S * dm * g * D,
        "scores": B * heads * T * S * D,
        "values": B * heads * T * S * D,
        "output": B * T * heads * D * dm,
    }


def test_the_grid_is_large_enough(figure):
    figure(
        f"formula consistency: {len(GRID)} MoH points, {len(FORMS)} forms, two of {len(registry.NAMES)} counters each"
    )
    assert len(GRID) >= 200


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("point, counters", by_turns(GRID))
def test_counted_is_exact(point, counters, moh_form):
    exact = sum(terms(point, moh_form).values())
    counted, params, form = readings(config_at(point, moh_form), point, counters=counters)
    assert counted == dict.fromkeys(counters, exact)
    columns = router_outputs(point["h"], point["s"], point["r"])
    weights = point["dm"] * (2 * point["D"] * (point["h"] + point["g"]) + columns)
    assert (form.macs, form.params, params) == (exact, weights, weights)


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("point", [p for p in GRID if p["r"] and p["h"] - p["s"] > 1][::11], ids=point_id)
def test_counted_with_the_parameter_free_router_is_exact(point, moh_form):
    exact = sum(terms(point, moh_form, "query_norm").values())
    counted, params, form = readings(config_at(point, moh_form, router="query_norm"), point)
    assert counted == dict.fromkeys(registry.NAMES, exact)
    assert form.macs == exact
    assert form.params == params == 2 * point["dm"] * point["D"] * (point["h"] + point["g"])


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("router", ["linear", "query_norm"])
@pytest.mark.parametrize("point", [p for p in GRID if p["r"] and p["h"] - p["s"] > 1][::23], ids=point_id)
def test_counted_on_cpu_in_chunks_is_exact(point, router, moh_form, monkeypatch):
    monkeypatch.setattr("headcount.models.experts.GATHERED_BYTES", 40_000)
    counted, _, form = readings(config_at(point, moh_form, router=router), point, "cpu")
    assert counted == dict.fromkeys(registry.NAMES, sum(terms(point, moh_form, router).values()))
    assert form.macs == counted["torch"]


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("router", ["linear", "query_norm"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", registry.NAMES)
def test_biased_readings_are_what_the_rules_predict(name, device, router, moh_form):
    point = GRID[3]
    config = config_at(point, moh_form, router=router, bias=True)
    lengths = {"batch_size": point["B"], "tgt_len": point["T"], "src_len": point["S"]}
    adapter = registry.counter(name)
    reading = adapter.read(build(config, device=device), example_inputs(config, lengths, device=device), label="moh")
    assert reading.macs == base.predict(adapter, ledger_of(config, lengths), device)


@pytest.mark.parametrize("moh_form", FORMS)
def test_a_ledger_without_one_of_its_entries_is_not_the_count(moh_form):
    point = GRID[0]
    counted, params, form = readings(config_at(point, moh_form), point)
    for i, entry in enumerate(form.entries):
        rest = Ledger(form.entries[:i] + form.entries[i + 1 :])
        assert (rest.macs != counted["torch"]) == bool(entry.macs)
        assert (rest.params != params) == bool(entry.params)


@pytest.mark.parametrize("moh_form", FORMS)
@pytest.mark.parametrize("router", ["linear", "query_norm"])
@pytest.mark.parametrize("name", registry.NAMES)
def test_a_counted_decode_step_is_exact(name, router, moh_form):
    B, n, dm, h, s, r, g, D = 3, 29, 23, 6, 2, 3, 2, 17
    config = make_config(
        dict(attention="moh", d_model=dm, num_heads=h, num_shared_heads=s, top_k=r, num_kv_heads=g, head_dim=D)
        | dict(router=router, form=moh_form)
    )
    step = Step(build(config, device="meta"), B, n)
    reading = registry.counter(name).read(step, {"query": torch.zeros(B, 1, dm, device="meta")}, label="decode")
    heads = s + r if moh_form == "ideal" else h
    routers, query = (0, h) if router == "query_norm" else (h - s + s + 2, heads)
    exact = B * (dm * (routers + D * (query + 2 * g + heads)) + 2 * heads * (n + 1) * D)
    sizes = dict(B=B, T=1, S=n + 1, n=n, d_m=dm, h=h, s=s, r=r, d_h=D, g=g)
    form = {"released": moh, "ideal": moh_ideal}[moh_form].layer("", **sizes, router=router)
    assert reading.macs == form.macs == exact
