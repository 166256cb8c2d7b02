"""The ledger of the backward pass."""

from dataclasses import replace

from headcount.formulas.backward import backward
from headcount.formulas.ledger import Entry, Ledger
from headcount.formulas.mha import layer

MHA = layer("", B=2, T=7, S=17, d_m=35, h=5, d_h=7, g=5)
PROJECTIONS, ATTENTION = 2 * 35 * 35 * (7 + 17 + 17 + 7), 2 * 5 * 7 * 17 * 7
"""By hand: four projections, and one of the two products of attention."""


def test_backward_is_twice_the_forward():
    assert MHA.macs == PROJECTIONS + 2 * ATTENTION
    assert backward(MHA).macs == 2 * MHA.macs
    assert [entry.weight for entry in backward(MHA)] == [{}] * len(backward(MHA))


def test_fused_attention_recomputes_scores():
    again = backward(MHA, recompute=lambda entry: entry.kind == "scores")
    assert again.macs == 2 * MHA.macs + ATTENTION
    assert again.group(lambda e: e.kind)["scores_recompute"] == ATTENTION


def test_no_gradient_costs_nothing():
    frozen = Ledger((Entry("a", "linear", {"T": 7, "d_m": 5, "F": 3}, trainable=False),))
    assert backward(frozen).macs == 7 * 5 * 3
    assert backward(Ledger((replace(frozen.entries[0], from_input=True),))).macs == 0
