"""Costs over arrays match the closed form of each model, for every searched variant."""

import itertools

import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.budget import candidates as module
from headcount.bench.budget.candidates import METRICS, candidates, costs
from headcount.bench.budget.search import preset_for
from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import variant, variants_with
from headcount.models.configs.presets import PRESETS, preset


@pytest.mark.parametrize("name", variants_with("search"))
def test_array_costs_match_each_model(name):
    one, given = variant(name), Assumptions()
    example = one.search.example
    around = Case.of(one.search.preset, {**one.search.defaults, **one.fields(example)}, {"batch_size": 3})
    # even sizes suit rotary positions, and sizes divide one another where they must; each case has its own polynomials
    ranges = {
        letter: (*one.search.cases.get(letter, ()), size, size + 2 if size % 2 == 0 else size + 1)
        for letter, size in example.items()
    }
    found = candidates(one, ranges, around, given)
    points = [dict(zip(ranges, sizes, strict=True)) for sizes in found[list(ranges)].tolist()]
    every = [dict(zip(ranges, sizes, strict=True)) for sizes in itertools.product(*ranges.values())]
    existing = [point for point in every if all(one.search.conditions(point, around.config.attention).values())]
    assert sorted(map(str, points)) == sorted(map(str, existing)) and len(points) > 2
    for index, point in enumerate(points):
        case = Case.of(one.search.preset, {**one.search.defaults, **one.fields(point)}, {"batch_size": 3})
        assert dict(zip(METRICS, found[[*METRICS]][index].tolist(), strict=True)) == costs(case, given)


def test_counts_above_63_bits_raise(monkeypatch):
    one = variant("moa")
    around = Case.of(one.search.preset, one.fields(one.search.example))
    ranges = {letter: (size,) for letter, size in one.search.example.items()}
    monkeypatch.setattr(module, "costs", lambda *_: {"macs": 2**63 - 1})
    assert candidates(one, ranges, around, Assumptions())["macs"].tolist() == [2**63 - 1]
    monkeypatch.setattr(module, "costs", lambda *_: {"macs": 2**63})
    with pytest.raises(UsageError, match="^the largest candidate's counts do not fit into 63 bits; give smaller"):
        candidates(one, ranges, around, Assumptions())


AROUND = [
    (name, like)
    for name, one in variants_with("search").items()
    for like in ("transformer-base", "mlm-transformer", "llm-s", "dit-s2")
    if one.config.rotary or PRESETS[like]["model"] != "llama"
]


@pytest.mark.parametrize("name, like", AROUND)
def test_search_around_any_model(name, like):
    one, model = variant(name), preset(like)
    base, overrides = preset_for(name, like, model)
    found = preset(base, {**overrides, **one.search.defaults, **one.fields(one.search.example)})
    assert (found.attention.variant, found.d_ff) == (name, model.d_ff)
    # the preset's own biases are used
    exchanged = base == like and hasattr(found.attention, "bias")
    assert not exchanged or found.attention.bias == model.attention.bias
