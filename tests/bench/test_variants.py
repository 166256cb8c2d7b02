"""The capabilities of each variant agree with its configurations."""

import pytest

from headcount.bench.case import Case, ideal_form
from headcount.bench.latency.implementations import impls_by_variant
from headcount.bench.variants.variant import variant, variants_with
from headcount.models.configs.layers import LAYERS, layer
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset
from headcount.models.configs.registry import ATTENTIONS


@pytest.mark.parametrize("name", variants_with("grid"))
def test_grid_and_search_letters_exist(name):
    one = variant(name)
    known = one.config.fields_by_letter
    assert set(one.grid.letters) <= known.keys() and set(one.grid.required) <= set(one.grid.letters)
    assert set(one.grid.may_be_zero) <= set(one.grid.letters)
    assert set(one.search.letters) == set(one.search.example) <= known.keys()
    assert set(one.search.cases) <= set(one.search.coupled) <= one.search.letters.keys()
    # 0 where possible, so that no more heads are selected than exist
    point = {letter: 2 * (letter not in one.grid.may_be_zero[1:]) for letter in one.grid.required}
    layer = make_config({"attention": name, "d_model": 12, **one.fields(point)})
    assert one.dense(layer).d_model == 12


@pytest.mark.parametrize("name", variants_with("search"))
def test_search_example_is_valid(name):
    search = variant(name).search
    assert PRESETS[search.preset]["attention"] == name
    config = preset(search.preset, {**search.defaults, **variant(name).fields(search.example)}).attention
    assert {letter: config.letters()[letter] for letter in search.example} == dict(search.example)
    assert all(search.conditions(search.example, config).values())


@pytest.mark.parametrize("router", ["linear", "query_norm"])
@pytest.mark.parametrize("form", ["released", "ideal"])
def test_search_cases_separate_polynomials(form, router):
    """Third differences in h, s and r are 0 for polynomials of degree 2."""
    base = {"attention": "moh", "d_model": 7, "head_dim": 3, "num_kv_heads": 1, "form": form, "router": router}

    def macs(h, s, r):
        sizes = {"num_heads": h, "num_shared_heads": s, "top_k": r}
        return Case("x", make_config({**base, **sizes}), {"batch_size": 1, "tgt_len": 2, "src_len": 2}).ledger.macs

    def curvature(values):
        for _ in range(2):
            values = [b - a for a, b in zip(values, values[1:], strict=False)]
        return set(values)

    cases = variant("moh").search.cases
    inside = range(max(cases["s"]) + 1, max(cases["s"]) + 7)
    assert curvature([macs(20, s, 3) for s in inside]) == {0}
    inside = range(max(cases["r"]) + 1, max(cases["r"]) + 7)
    assert curvature([macs(20, 3, r) for r in inside]) == {0}
    if router == "linear":
        assert curvature([macs(20, s, 3) for s in range(1, 7)]) != {0}
        assert curvature([macs(20, 3, r) for r in range(7)]) != {0}


@pytest.mark.parametrize("name", variants_with("routed"))
def test_active_experts_match_closed_form(name):
    routed = variant(name).routed
    config = next(layer(name_) for name_ in LAYERS if layer(name_).variant == name)
    form = Case("x", ideal_form(config) or config, {"batch_size": 1, "tgt_len": 3, "src_len": 5}).ledger
    used = {entry.dims[routed.used] for entry in form if routed.used in entry.dims}
    assert used == {routed.active(config)}
    assert routed.active(config) == routed.shared(config) + config.top_k


def test_every_layer_has_its_baseline():
    for name in LAYERS:
        config = layer(name)
        assert ("mha" in variant(config.variant).baselines(config)) == (config.variant != "mha")
    assert set(impls_by_variant()) == {name for name, config in ATTENTIONS.items() if config.module}


@pytest.mark.parametrize("d_model", [1, 8, 63, 64, 512])
@pytest.mark.parametrize("name", variants_with("search"))
def test_baselines_of_any_width_can_be_built(name, d_model):
    one = variant(name)
    layer = make_config({"attention": name, "d_model": d_model, **one.fields(one.search.example)})
    assert {dense.d_model for dense in one.baselines(layer).values()} <= {d_model}
