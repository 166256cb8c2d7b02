"""SwitchHead: counted == closed form on a grid of primes, with every counter; in a layer, a step and a model."""

from itertools import product

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.bench.counters import base, registry
from headcount.formulas.ledger import Ledger
from headcount.models import experts
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.agreement.points import Step, by_turns, point_id, readings

K_E = [(1, 1), (1, 5), (2, 5), (5, 5), (3, 7)]
GRID = [
    dict(K=k, E=e, h=h, D=d, dm=dm, T=t, S=t if s is None else s, B=b)
    for (k, e), h, d, dm, t, s, b in product(K_E, (1, 11), (13, 17), (19, 23), (29, 31), (None, 37), (1, 41))
    if (s is None) != (b == 41)
]


def config_at(point):
    names = dict(num_experts="E", top_k="K", num_heads="h", head_dim="D", d_model="dm")
    return make_config(dict(attention="switchhead") | {name: point[letter] for name, letter in names.items()})


def terms(K, E, h, D, dm, T, S, B):
    return {
        "query": B * T * dm * h * D,
        "key": B * S * dm * h * D,
        "router of values": B * S * dm * h * E,
        "values of heads": B * S * h * K * dm * D,
        "scores": B * h * T * S * D,
        "values": B * h * T * S * D,
        "router of outputs": B * T * dm * h * E,
        "output": B * T * h * K * D * dm,
    }


@pytest.mark.parametrize("point, counters", by_turns(GRID))
def test_counted_is_exact(point, counters):
    exact = sum(terms(**point).values())
    counted, params, ledger = readings(config_at(point), point, counters=counters)
    assert counted == dict.fromkeys(counters, exact)
    of_a_head = 2 * point["dm"] * (point["D"] + point["E"] + point["E"] * point["D"])
    assert (ledger.macs, ledger.params, params) == (exact, point["h"] * of_a_head, point["h"] * of_a_head)


@pytest.mark.parametrize("point", GRID[::19], ids=point_id)
def test_counted_on_cpu_in_chunks_is_exact(point, monkeypatch):
    monkeypatch.setattr(experts, "GATHERED_BYTES", 40_000)
    counted, _, _ = readings(config_at(point), point, "cpu")
    assert counted == dict.fromkeys(registry.NAMES, sum(terms(**point).values()))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", registry.NAMES)
def test_gates_are_billed_by_no_counter(name, device):
    config, lengths = config_at(GRID[-1]), {"batch_size": 1, "tgt_len": 7, "src_len": 5}
    tool, inputs, ledger = (
        registry.counter(name),
        example_inputs(config, lengths, device=device),
        ledger_of(config, lengths),
    )
    reading = tool.read(build(config, device=device), inputs, label="switchhead")
    assert reading.macs == base.predict(tool, ledger, device) == ledger.macs


def test_the_grid_is_large_enough(figure):
    figure(f"formula consistency: {len(GRID)} SwitchHead points, two of {len(registry.NAMES)} counters each")
    assert len(GRID) >= 100


def test_a_ledger_without_one_of_its_entries_is_not_the_count():
    point = GRID[-1]
    counted, params, ledger = readings(config_at(point), point)
    for i, entry in enumerate(ledger.entries):
        rest = Ledger(ledger.entries[:i] + ledger.entries[i + 1 :])
        assert (rest.macs != counted["torch"]) == bool(entry.macs)
        assert (rest.params != params) == bool(entry.params)


@pytest.mark.parametrize("name", registry.NAMES)
def test_a_counted_decode_step_is_exact(name):
    B, n, dm, h, D, E, K = 3, 29, 23, 19, 5, 7, 2
    step = Step(build(config_at(dict(K=K, E=E, h=h, D=D, dm=dm)), device="meta"), B, n)
    reading = registry.counter(name).read(step, {"query": torch.zeros(B, 1, dm, device="meta")}, label="decode")
    assert reading.macs == B * h * (dm * (2 * D + 2 * E + 2 * K * D) + 2 * (n + 1) * D)


@pytest.mark.parametrize("name", registry.NAMES)
def test_a_counted_language_model_is_exact(name):
    sizes = dict(d_model=22, num_heads=3, head_dim=10, num_experts=7, top_k=2)
    config = make_config(dict(model="llama", attention="switchhead", d_ff=17, num_layers=2, vocab_size=19) | sizes)
    lengths = {"batch_size": 2, "seq_len": 7}
    model = build(config, device="meta")
    tool, ledger = registry.counter(name), ledger_of(config, lengths)
    reading = tool.read(model, example_inputs(config, lengths, device="meta"), label="llama")
    attention = terms(K=2, E=7, h=3, D=10, dm=22, T=7, S=7, B=2)
    exact = 2 * (sum(attention.values()) + 2 * 7 * 3 * 22 * 17) + 2 * 7 * 22 * 19
    assert (ledger.macs, ledger.params) == (exact, sum(p.numel() for p in model.parameters()))
    # some bill SiLU beside
    assert reading.macs == base.predict(tool, ledger, "meta")
