"""Models and forms of other papers in numbers worked out by hand: what a step keeps, and what is shared."""

from functools import partial

import sympy

from headcount.formulas import conventions, convolution, decoding, jetmoe, mae, mha, moh, moh_ideal
from headcount.formulas.ledger import least
from headcount.formulas.published import columns
from headcount.formulas.published.rounding import Printing
from headcount.formulas.symbols import by_letter

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
    assert in_the_legend(step)


def in_the_legend(form):
    """Whether every letter of a form is one that the legend explains; KeyError names one that is not."""
    letters = {letter for entry in form for letter in (*entry.dims, *entry.weight)}
    return all(by_letter(letter) for letter in letters)


CONVOLVED = {"B": 2, "S": 19, "d_m": 14, "F": 11, "V": 29, "h_w": 7, "decoder_kernels": (3, 31), "dynamic": True}


def test_a_step_of_convolutions_embeds_the_new_tokens_and_keeps_as_many_inputs_as_a_window_has():
    cross = partial(mha.layer, h=2, d_h=7, g=2, d_m=14, bias=True)
    step = convolution.step(cross, new=1, stored=17, **CONVOLVED)
    assert in_the_legend(step)
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


def test_the_lesser_of_two_sizes_is_one_of_them_or_says_so_in_symbols():
    assert least(3, 7) == 3 and type(least(3, 7)) is int and type(least(7, 3)) is int
    n = sympy.Symbol("n", positive=True)
    assert least(n, 7).subs(n, 5) == 5 and least(7, n).subs(n, 11) == 7


def test_a_sum_of_steps_bends_where_it_is_told():
    def macs(stored):
        return 100 if stored <= 1 else 3 * stored

    assert decoding.total(macs, 5, (1,)) == 100 + 3 * (2 + 3 + 4 + 5)
    assert decoding.total(macs, 1, (1,)) == 100


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
