"""MLA: counted == closed form, both forms, on a grid of primes, with every counter; in a layer, a step and a model."""

from itertools import product

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.bench.counters import base, registry
from headcount.formulas.ledger import Ledger
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.agreement.points import Step, by_turns, point_id, readings

FORMS = ("released", "ideal")
# d_h, d_r, d_v, d_c, d_q: latents wider and narrower than heads, with and without a latent of queries
WIDTHS = [(5, 3, 7, 11, None), (5, 3, 7, 11, 13), (11, 7, 5, 3, 2), (2, 13, 3, 7, 5), (7, 2, 2, 5, None)]
GRID = [
    dict(h=h, d_h=w[0], d_r=w[1], d_v=w[2], d_c=w[3], d_q=w[4], dm=dm, T=t, S=t if s is None else s, B=b)
    for h, w, dm, t, s, b in product((1, 17, 19), WIDTHS, (23, 29), (31, 37), (None, 41), (1, 43))
    if (s is None) != (b == 43)
]


def config_at(point, form, **more):
    names = dict(num_heads="h", head_dim="d_h", rotary_dim="d_r", value_dim="d_v", kv_rank="d_c", query_rank="d_q")
    sizes = {name: point[letter] for name, letter in names.items()}
    return make_config(dict(attention="mla", d_model=point["dm"], form=form) | sizes | more)


def terms(h, d_h, d_r, d_v, d_c, d_q, dm, T, S, B, form):
    ideal = form == "ideal"
    return {
        "latent of queries": 0 if d_q is None else B * T * dm * d_q,
        "queries": B * T * (d_q or dm) * h * d_h,
        "rotary queries": B * T * (d_q or dm) * h * d_r,
        "latent": B * S * dm * d_c,
        "rotary key": B * S * dm * d_r,
        "keys": B * (T if ideal else S) * d_c * h * d_h,
        "values of heads": B * (T if ideal else S) * d_c * h * d_v,
        "scores": B * h * T * S * ((d_c if ideal else d_h) + d_r),
        "values": B * h * T * S * (d_c if ideal else d_v),
        "output": B * T * h * d_v * dm,
    }


def weights(h, d_h, d_r, d_v, d_c, d_q, dm, **_):
    of_queries = dm * h * (d_h + d_r) if d_q is None else dm * d_q + d_q + d_q * h * (d_h + d_r)
    return of_queries + dm * (d_c + d_r) + d_c + d_c * h * (d_h + d_v) + h * d_v * dm


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("point, counters", by_turns(GRID))
def test_counted_is_exact(point, counters, form):
    exact = sum(terms(**point, form=form).values())
    counted, params, ledger = readings(config_at(point, form), point, counters=counters)
    assert counted == dict.fromkeys(counters, exact)
    assert (ledger.macs, ledger.params, params) == (exact, weights(**point), weights(**point))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("point", GRID[::17], ids=point_id)
def test_counted_on_cpu_is_exact(point, form):
    counted, _, _ = readings(config_at(point, form), point, "cpu")
    assert counted == dict.fromkeys(registry.NAMES, sum(terms(**point, form=form).values()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", registry.NAMES)
def test_biased_readings_are_what_the_rules_predict(name, device, form):
    point = GRID[8]
    config, lengths = config_at(point, form, bias=True), {"batch_size": 1, "tgt_len": point["T"], "src_len": 5}
    tool, inputs = registry.counter(name), example_inputs(config, lengths, device=device)
    reading = tool.read(build(config, device=device), inputs, label="mla")
    assert reading.macs == base.predict(tool, ledger_of(config, lengths), device)


def test_the_grid_is_large_enough(figure):
    figure(
        f"formula consistency: {len(GRID)} MLA points, {len(FORMS)} forms, two of {len(registry.NAMES)} counters each"
    )
    assert len(GRID) >= 100


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_ledger_without_one_of_its_entries_is_not_the_count(form, bias):
    point = GRID[2 * 2 * 2]
    assert point["d_q"] is not None
    counted, params, ledger = readings(config_at(point, form, bias=bias), point)
    assert ledger.params == params
    for i, entry in enumerate(ledger.entries):
        rest = Ledger(ledger.entries[:i] + ledger.entries[i + 1 :])
        assert (rest.macs != counted["torch"]) == bool(entry.macs)
        assert (rest.params != params) == bool(entry.params)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", registry.NAMES)
def test_a_counted_decode_step_is_exact(name, form):
    B, n, dm, h, d_h, d_r, d_v, d_c, d_q = 3, 29, 23, 19, 5, 2, 7, 11, 13
    sizes = dict(h=h, d_h=d_h, d_r=d_r, d_v=d_v, d_c=d_c, d_q=d_q, dm=dm)
    step = Step(build(config_at(sizes, form), device="meta"), B, n)
    reading = registry.counter(name).read(step, {"query": torch.zeros(B, 1, dm, device="meta")}, label="decode")
    projected = dm * (d_q + d_c + d_r) + d_q * h * (d_h + d_r) + h * d_v * dm
    read = {
        "released": (n + 1) * h * (d_c * (d_h + d_v) + d_h + d_r + d_v),
        "ideal": h * d_c * (d_h + d_v) + (n + 1) * h * (2 * d_c + d_r),
    }
    assert reading.macs == B * (projected + read[form])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", registry.NAMES)
def test_a_counted_language_model_is_exact(name, form):
    sizes = dict(d_model=22, num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11, query_rank=13)
    config = make_config(dict(model="llama", attention="mla", d_ff=17, num_layers=2, vocab_size=19, form=form) | sizes)
    lengths = {"batch_size": 2, "seq_len": 7}
    model = build(config, device="meta")
    tool, ledger = registry.counter(name), ledger_of(config, lengths)
    reading = tool.read(model, example_inputs(config, lengths, device="meta"), label="llama")
    attention = terms(h=3, d_h=5, d_r=2, d_v=7, d_c=11, d_q=13, dm=22, T=7, S=7, B=2, form=form)
    exact = 2 * (sum(attention.values()) + 2 * 7 * 3 * 22 * 17) + 2 * 7 * 22 * 19
    assert (ledger.macs, ledger.params) == (exact, sum(p.numel() for p in model.parameters()))
    # some bill SiLU beside
    assert reading.macs == base.predict(tool, ledger, "meta")
