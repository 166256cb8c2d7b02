"""Decode steps without a counted module: gate caches and relative positions, by hand."""

from functools import partial

from headcount.formulas import decoder, mae, mha

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
