"""Decode steps of models and layers of other papers, in numbers worked out by hand."""

from functools import partial

from headcount.formulas import decoding, jetmoe, mae, mha

MAE = partial(mae.layer, "a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7, n=16)


def other_cache_entries(form):
    """Return cache entries other than keys and values, as (path, kind, dims)."""
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


def test_jetmoe_step():
    sizes = {"B": 2, "d_m": 13, "F": 11, "V": 29, "E_ff": 5, "K_ff": 3}
    mixer = partial(mha.layer, h=2, d_h=7, g=1, d_m=13, bias=False)
    step = jetmoe.step([mixer] * 3, new=1, stored=17, **sizes)
    attention = 13 * 7 * (2 + 2 + 1 + 1) + 2 * 2 * 17 * 7
    # gate, up and down of each selected expert, and the router
    feed_forward = 3 * 3 * 13 * 11 + 13 * 5
    assert step.macs == 2 * (3 * (attention + feed_forward) + 13 * 29)
    assert decoding.cache_elements(step) == 2 * 3 * 2 * 17 * 7
    assert decoding.cache_writes(step) == 2 * 3 * 2 * 7
