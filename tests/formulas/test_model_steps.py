"""Models and forms of other papers in numbers worked out by hand: what a step keeps, and what is shared."""

from functools import partial

from headcount.formulas import convolution, decoding, jetmoe, mae, mha, moh, moh_ideal

MAE = partial(mae.layer, "a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7, n=16)


def kept(form):
    """What is stored beside keys and values, as (path, kind, dims)."""
    return [
        (e.path, e.kind, dict(e.dims)) for e in form if "cache" in e.kind and "S" not in e.dims and "T" not in e.dims
    ]


def test_sequence_gate_is_cached():
    stored = {"B": 2, "h": 5}
    assert kept(MAE()) == [("a", "cache", stored), ("a", "cache_read", stored)]
    assert kept(mae.layer("a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7)) == []


def test_running_gate_caches_sum_and_count():
    total, number = {"B": 2, "d_m": 13}, {"B": 2}
    kinds = ("cache", "cache_write", "cache_read")
    assert kept(MAE(gate="running")) == [("a", kind, of) for of in (total, number) for kind in kinds]


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


CONVOLVED = {"B": 2, "S": 19, "d_m": 14, "F": 11, "V": 29, "h_w": 7, "decoder_kernels": (3, 31), "dynamic": True}


def test_convolution_step():
    cross = partial(mha.layer, h=2, d_h=7, g=2, d_m=14, bias=True)
    step = convolution.step(cross, new=1, stored=17, **CONVOLVED)
    first, second, *_ = step
    rows = {"B": 2, "T": 1, "d_m": 14}
    assert (first.path, first.kind, dict(first.dims)) == ("embedding", "embedding", rows)
    # scaling and positions
    assert (second.path, second.kind, dict(second.dims)) == ("", "elementwise", {"2": 2, **rows})
    windows = [entry for entry in step if "N_w" in entry.dims]
    assert [(entry.kind, entry.dims["N_w"]) for entry in windows] == [
        ("cache", 2), ("cache_write", 1), ("cache_read", 2), ("cache", 17), ("cache_write", 1), ("cache_read", 16)
    ]  # fmt: skip
    assert all(list(entry.dims) == ["B", "N_w", "d_m"] for entry in windows)


def test_shared_percent():
    layer = partial(moh_ideal.layer, "a", B=2, T=7, S=7, d_m=13, h=11, d_h=5, g=11)
    assert moh.shared_percent(layer(s=3, r=1)) == 75
    assert moh.shared_percent(layer(s=0, r=4)) == 0
    dense = mha.layer("a", B=2, T=7, S=7, d_m=13, h=11, d_h=5, g=11)
    assert moh.shared_percent(dense) == 0
