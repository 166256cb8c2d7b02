"""Costs of decode steps, against sums written out here."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
import sympy

from headcount.formulas import decoder, decoding, encoder_decoder, layer, mae, mha, moa, moh
from headcount.formulas.ledger import Entry


def mha_form(path, **sizes):
    return mha.layer(path, **sizes, d_m=13, h=6, d_h=5, g=2)


def moh_form(path, **sizes):
    return moh.layer(path, **({"d_m": 13, "h": 6, "s": 1, "r": 2, "d_h": 5, "g": 3} | sizes))


def ideal_form(path, **sizes):
    return moh_form(path, **sizes, form="ideal")


def test_translation_step():
    attention = partial(moa.layer, d_m=13, E=11, K=3, D=5)
    step = encoder_decoder.model(attention, B=2, S=17, T=1, n=6, d_m=13, F=19, V=29, N_enc=3, N_dec=2)
    routed = 13 * 11 + 2 * 3 * 13 * 5
    layer = routed + 2 * 13 * 5 + 2 * 3 * 7 * 5 + routed + 2 * 3 * 17 * 5 + 2 * 13 * 19
    assert step.macs == 2 * (2 * layer + 13 * 29)
    sizes = step.group(lambda entry: entry.kind, "size")
    assert sizes["cache_write"] == 2 * 2 * 2 * 5
    assert sizes["cache"] == sizes["cache_read"] == 2 * 2 * 2 * (7 + 17) * 5
    assert sizes["embedding"] == 2 * 13
    # gates of both layers, residuals, scaling and positions of the new token
    assert sizes["elementwise"] == 2 * (2 * 2 * 3 * 5 + 2 * 3 * 13 + 2 * 13)


def test_total_is_sum_of_steps():
    def macs(stored):
        return layer.model(mha_form, B=2, S=17, T=1, n=stored - 1).macs

    for steps in (1, 2, 7):
        assert decoding.total(macs, steps) == sum(macs(stored) for stored in range(1, steps + 1))

    def capped_cost(stored):
        return 7 * (stored > 1) + min(stored, 4) + 3 * min(stored - 1, 4) + stored

    turns = 5, 4, 9, 5, 0, 1
    for steps in range(1, 12):
        assert decoding.total(capped_cost, steps, turns) == sum(capped_cost(stored) for stored in range(1, steps + 1))
    n = sympy.Symbol("n")
    assert sympy.expand(decoding.total(lambda stored: stored, n) - n * (n + 1) / 2) == 0


def test_weights_read():
    routed = Entry(
        "a", "expert_linear", {"B": 2, "T": 1, "K": 3, "d_m": 13, "D": 5}, weight={"E": 11, "d_m": 13, "D": 5}
    )
    assert decoding.weights_read(routed) == decoding.reachable_params(routed) == 6 * 13 * 5
    # key tokens select too
    of_keys = replace(routed, dims={"S" if letter == "T" else letter: size for letter, size in routed.dims.items()})
    assert decoding.reachable_params(of_keys) == 6 * 13 * 5
    assert decoding.weights_read(routed.with_dims(B=7)) == 11 * 13 * 5
    assert decoding.weights_read(routed.with_dims(B=1, T=3)) == 9 * 13 * 5
    router = Entry("r", "linear", {"B": 2, "T": 1, "d_m": 13, "E": 11}, weight={"d_m": 13, "E": 11})
    assert decoding.weights_read(router) == decoding.reachable_params(router) == 13 * 11
    tied = Entry("o", "linear", {"B": 2, "T": 7, "S": 3, "d_m": 13, "V": 29}, times=5)
    assert decoding.weights_read(tied) == 5 * 13 * 29
    embedding = Entry("e", "embedding", {"B": 2, "T": 7, "d_m": 13}, weight={"V": 29, "d_m": 13})
    assert decoding.weights_read(embedding) == 2 * 7 * 13
    unused = Entry("a.k_proj", "linear", {"B": 2, "S": 0, "d_m": 13, "D": 5}, weight={"d_m": 13, "D": 5})
    assert decoding.weights_read(unused) == 0
    assert decoding.weights_read(Entry("n", "norm", {"T": 7}, weight={"2": 2, "d_m": 13})) == 2 * 13
    assert decoding.weights_read(Entry("s", "softmax", {"T": 7})) == 0


def test_step_elements_of_selected_heads():
    step = layer.model(moh_form, B=1, S=17, T=1, n=6)
    routers, keys = 13 * 5 + 13 * 2, 2 * 13 * 3 * 5
    assert decoding.step_elements(step) == routers + keys + 2 * 13 * 6 * 5 + 2 * 7 * 3 * 5 + 2 * 3 * 5
    ideal = ideal_form("", B=1, T=1, S=7, n=6, g=6)
    assert decoding.cache_elements(ideal) == 2 * 7 * 6 * 5
    keys = 2 * 13 * 6 * 5
    assert decoding.step_elements(ideal) == routers + keys + 2 * 13 * 3 * 5 + 2 * 7 * 3 * 5 + 2 * 6 * 5
    inside = ideal_form("layers.*.self_attn", B=1, T=1, S=7, n=6, g=6)
    assert decoding.step_elements(inside) == decoding.step_elements(ideal)
    by_norm = ideal_form("", B=1, T=1, S=7, n=6, g=6, router="query_norm", bias=True)
    weights = keys + 13 * 6 * 5 + 13 * 3 * 5 + 3 * 6 * 5 + 13
    assert decoding.step_elements(by_norm) == weights + 2 * 7 * 3 * 5 + 2 * 6 * 5


SELECTIONS = [(4, 2, 1, 1), (4, 2, 2, 1), (6, 3, 1, 2), (6, 3, 3, 1), (6, 6, 1, 2), (6, 2, 0, 2), (4, 1, 0, 3)]
SELECTIONS += [(4, 2, 2, 0)]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("h, g, s, r", SELECTIONS, ids=lambda size: str(size))
def test_reads_match_brute_force_routing(h, g, s, r, batch):
    """Compare with every choice of routed heads by every sequence."""
    form = ideal_form("", B=batch, T=1, S=7, n=6, h=h, g=g, s=s, r=r, bias=True)
    choices = [set(range(s)) | set(routed) for routed in itertools.combinations(range(s, h), r)]
    heads = read = 0
    for tokens in itertools.product(choices, repeat=batch):
        heads = max(heads, len(set.union(*tokens)))
        read = max(read, sum(len({head * g // h for head in token}) for token in tokens))
    assert sum(entry.size for entry in form if entry.kind == "cache_read") == read * 2 * 7 * 5
    assert decoding.cache_elements(form) == batch * g * 2 * 7 * 5
    selected = form.select(lambda e: e.kind.startswith("expert_"))
    reached = {(e.path, e.kind): decoding.reachable_params(e) for e in selected}
    assert reached == {
        ("q_proj", "expert_linear"): 13 * heads * 5,
        ("q_proj", "expert_bias"): heads * 5,
        ("out_proj", "expert_linear"): heads * 5 * 13,
        ("out_proj", "expert_bias"): 13,
    }


MAE = partial(mae.layer, "a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7, n=16)


def other_cache_entries(form):
    """Return the (path, kind, dims) of cache entries that are neither keys nor values."""
    return [
        (e.path, e.kind, dict(e.dims)) for e in form if "cache" in e.kind and "S" not in e.dims and "T" not in e.dims
    ]


def test_sequence_gate_is_cached():
    stored = {"B": 2, "h": 5}
    assert other_cache_entries(MAE()) == [("a", "cache", stored), ("a", "cache_read", stored)]
    assert other_cache_entries(mae.layer("a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7)) == []


def test_running_gate_caches_sum_and_count():
    total, number = {"B": 2, "d_m": 13}, {"B": 2}
    kinds = ("cache", "cache_write", "cache_read")
    assert other_cache_entries(MAE(gate="running")) == [("a", kind, of) for of in (total, number) for kind in kinds]


def test_step_with_relative_positions():
    sizes = {"B": 2, "d_m": 13, "F": 11, "V": 29, "P": 19, "h": 3, "d_h": 5}
    flags = dict(bias=False, gated=True, tied=True, parallel=True)
    mixer = partial(mha.layer, d_m=13, h=3, d_h=5, g=1, bias=False)
    step = decoder.model([mixer] * 4, T=1, n=16, positions="relative", **flags, **sizes)
    layer = 13 * 5 * (3 + 1 + 1 + 3) + 2 * 3 * 17 * 5 + 3 * 13 * 11
    # each layer projects the positions of 17 stored tokens, once for the batch
    assert step.macs == 2 * (4 * layer + 13 * 29) + 4 * 17 * 13 * 3 * 5
