"""Models and forms of other papers in numbers worked out by hand: what a step keeps, and what is shared."""

from functools import partial

from headcount.formulas import conventions, decoding, jetmoe, mae, mha, moh, moh_ideal
from headcount.formulas.published import columns
from headcount.formulas.published.rounding import Printing

MAE = partial(mae.layer, "a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7, n=16)


def kept(form):
    """What is stored beside keys and values, as (path, kind, dims)."""
    return [
        (e.path, e.kind, dict(e.dims)) for e in form if "cache" in e.kind and "S" not in e.dims and "T" not in e.dims
    ]


def test_a_gate_of_the_whole_sequence_keeps_its_weights():
    stored = {"B": 2, "h": 5}
    assert kept(MAE()) == [("a", "cache", stored), ("a", "cache_read", stored)]
    assert kept(mae.layer("a", B=2, T=1, S=17, d_m=13, h=5, d_h=3, G=7)) == []


def test_a_running_gate_keeps_a_sum_and_a_number_and_writes_both_anew():
    total, number = {"B": 2, "d_m": 13}, {"B": 2}
    kinds = ("cache", "cache_write", "cache_read")
    assert kept(MAE(gate="running")) == [("a", kind, of) for of in (total, number) for kind in kinds]


def test_a_step_of_jetmoe_is_its_model_on_new_tokens_after_those_in_the_cache():
    sizes = {"B": 2, "d_m": 13, "F": 11, "V": 29, "E_ff": 5, "K_ff": 3}
    mixer = partial(mha.layer, h=2, d_h=7, g=1, d_m=13, bias=False)
    step = jetmoe.step([mixer] * 3, new=1, stored=17, **sizes)
    attention = 13 * 7 * (2 + 2 + 1 + 1) + 2 * 2 * 17 * 7
    # gate, up and down of each selected expert, and the router
    feed_forward = 3 * 3 * 13 * 11 + 13 * 5
    assert step.macs == 2 * (3 * (attention + feed_forward) + 13 * 29)
    assert decoding.held(step) == 2 * 3 * 2 * 17 * 7
    assert decoding.written(step) == 2 * 3 * 2 * 7


def test_shared_heads_are_a_share_of_those_that_a_token_uses():
    layer = partial(moh_ideal.layer, "a", B=2, T=7, S=7, d_m=13, h=11, d_h=5, g=11)
    assert moh.shared_percent(layer(s=3, r=1)) == 75
    assert moh.shared_percent(layer(s=0, r=4)) == 0
    dense = mha.layer("a", B=2, T=7, S=7, d_m=13, h=11, d_h=5, g=11)
    assert moh.shared_percent(dense) == 0


def test_conventions_and_quantities_are_entered_under_their_names():
    def made_up(entry):
        return 0

    class MadeUp:
        quantity = "made-up"

    try:
        assert conventions.convention(made_up) is made_up and conventions.CONVENTIONS["made_up"] is made_up
        assert columns.quantity(MadeUp) is MadeUp and columns.QUANTITIES["made-up"] is MadeUp
    finally:
        del conventions.CONVENTIONS["made_up"], columns.QUANTITIES["made-up"]


def test_a_rule_of_rounding_in_words():
    said = {decimals: Printing("M", "half-up", decimals=decimals).statement() for decimals in (-1, 0, 1, 2)}
    assert said == {
        -1: "rounded half up to as many decimals of M as are printed",
        0: "rounded half up to whole M",
        1: "rounded half up to 1 decimal of M",
        2: "rounded half up to 2 decimals of M",
    }
    assert Printing("G", "truncate", significant=3).statement() == "truncated to 3 significant digits"
    assert Printing("G", "truncate", multiple=5).statement() == "truncated to steps of 5 G"
