"""Decode steps of models and layers of other papers, in numbers worked out by hand."""

from functools import partial

from headcount.formulas import decoder, decoding, deepseek, mae, mha, mla

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


def test_deepseek_step():
    sizes = {"B": 2, "d_m": 13, "F": 11, "V": 29, "E_ff": 5, "K_ff": 3, "N_dense": 1, "F_e": 7, "E_s": 2}
    mixer = partial(mla.layer, d_m=13, h=3, d_h=5, d_r=2, d_v=7, d_c=11, d_q=None)
    step = deepseek.step([mixer] * 3, new=1, stored=17, **sizes)
    # keys and values of all 17 latents are made again
    attention = 13 * 3 * (5 + 2) + 13 * (11 + 2) + 17 * 11 * 3 * (5 + 7) + 3 * 17 * (5 + 2 + 7) + 3 * 7 * 13
    mixture = 3 * (2 + 3) * 13 * 7 + 13 * 5
    assert step.macs == 2 * (3 * attention + 3 * 13 * 11 + 2 * mixture + 13 * 29)
    assert decoding.cache_elements(step) == 2 * 3 * 17 * (11 + 2)


def test_decoder_step():
    form = dict(bias=False, gated=True, tied=True, parallel=True)
    sizes = {"B": 2, "d_m": 13, "F": 11, "V": 29, "P": 19, "h": 3, "d_h": 5}
    mixer = partial(mha.layer, d_m=13, h=3, d_h=5, g=1, bias=False)
    macs = 2 * (4 * (13 * 5 * (3 + 1 + 1 + 3) + 2 * 3 * 17 * 5 + 3 * 13 * 11) + 13 * 29)
    for positions, more in (("rotary", 0), ("learned", 0), ("relative", 4 * 17 * 13 * 3 * 5)):
        step = decoder.step([mixer] * 4, new=1, stored=17, positions=positions, **form, **sizes)
        assert step.macs == macs + more
        assert decoding.cache_elements(step) == 2 * 4 * 2 * 17 * 5
