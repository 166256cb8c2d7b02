"""MAE: counted == closed form on a grid of primes, with every counter; in a layer, a step and the published model."""

from itertools import product

import pytest
import torch

from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.measure import measure
from headcount.formulas.ledger import Ledger
from headcount.models.build import build
from headcount.models.configs.make import make_config
from tests.agreement.points import Step, by_turns, point_id, readings

GRID = [
    dict(h=h, D=d, G=g, dm=dm, T=t, S=t if s is None else s, B=b, gate=gate)
    for h, d, g, dm, t, s, b, gate in product(
        (2, 3, 11), (5, 13), (7, 17), (19, 23), (29, 31), (None, 37), (1, 41), ("sequence", "running", "memory")
    )
    if (s is None) != (b == 41)
]


def config_at(point):
    names = dict(num_heads="h", head_dim="D", gate_width="G", d_model="dm", gate="gate")
    fields = {name: point[letter] for name, letter in names.items()}
    return make_config(dict(attention="mae", bias=False) | fields)


def terms(h, D, G, dm, T, S, B, gate):
    gates = B * T if gate == "running" else B
    return {
        "gate in": gates * dm * G,
        "gate out": gates * G * h,
        "query": B * T * dm * h * D,
        "key": B * S * dm * h * D,
        "value": B * S * dm * h * D,
        "scores": B * h * T * S * D,
        "values": B * h * T * S * D,
        "output": B * T * h * D * dm,
    }


@pytest.mark.parametrize("point, counters", by_turns(GRID))
def test_counted_is_exact(point, counters):
    exact = sum(terms(**point).values())
    counted, params, ledger = readings(config_at(point), point, counters=counters)
    assert counted == dict.fromkeys(counters, exact)
    expected = 4 * point["dm"] * point["h"] * point["D"] + point["G"] * (point["dm"] + point["h"])
    assert (ledger.macs, ledger.params, params) == (exact, expected, expected)


@pytest.mark.parametrize("point", GRID[::31], ids=point_id)
def test_counted_on_cpu_is_exact(point):
    counted, _, _ = readings(config_at(point), point, "cpu")
    assert counted == dict.fromkeys(registry.NAMES, sum(terms(**point).values()))


def test_the_grid_is_large_enough(figure):
    figure(f"formula consistency: {len(GRID)} MAE points, two of {len(registry.NAMES)} counters each")
    assert len(GRID) >= 100


@pytest.mark.parametrize("point", GRID[-3:], ids=point_id)
def test_a_ledger_without_one_of_its_entries_is_not_the_count(point):
    counted, params, ledger = readings(config_at(point), point)
    for i, entry in enumerate(ledger.entries):
        rest = Ledger(ledger.entries[:i] + ledger.entries[i + 1 :])
        assert (rest.macs != counted["torch"]) == bool(entry.macs)
        assert (rest.params != params) == bool(entry.params)


@pytest.mark.parametrize("name", registry.NAMES)
def test_a_counted_decode_step_is_exact(name):
    B, n, dm, h, D, G = 3, 29, 23, 19, 5, 7
    point = dict(h=h, D=D, G=G, dm=dm, gate="running")
    step = Step(build(config_at(point), device="meta"), B, n)
    reading = registry.counter(name).read(step, {"query": torch.zeros(B, 1, dm, device="meta")}, label="decode")
    assert reading.macs == B * (G * (dm + h) + h * D * (4 * dm + 2 * (n + 1)))


@pytest.mark.parametrize("gate, macs", [("memory", 608_481_280), ("running", 622_858_240)])
def test_the_papers_model_is_counted_in_either_reading(gate, macs):
    case = Case.of("mae-7", {"causal_gate": gate})
    measured = measure(case, registry.NAMES)
    assert measured.disagreements(case.name) == []
    counts = {count.counter: count.macs for count in measured.counts}
    assert counts["torch"] == case.ledger.macs == macs
    assert measured.counted_params == case.ledger.params == 62_923_408
