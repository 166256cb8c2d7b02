"""Terms of a ledger that each rule of training FLOPs counts."""

from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.formulas import conventions, mha, moe_ffn
from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.formulas.ledger import Entry, ledger

B, T, d, h, d_h, g, F, V, E, K = 3, 7, 11, 5, 13, 1, 17, 23, 19, 2
TOKENS = B * T
WIDTH = {"d_m": d}
MODEL = ledger(
    Entry("embedding", "embedding", {"B": B, "T": T, **WIDTH}, weight={"V": V, **WIDTH}),
    mha.layer("self_attn", B=B, T=T, S=T, d_m=d, h=h, d_h=d_h, g=g, bias=False),
    moe_ffn.layer("feed_forward", B=B, T=T, d_m=d, F=F, E=E, K=K, gated=True),
    Entry("norm", "rms_norm", {"B": B, "T": T, **WIDTH}, weight=WIDTH),
    Entry("output_proj", "linear", {"B": B, "T": T, **WIDTH, "V": V}, weight={**WIDTH, "V": V}),
)
ATTENTION = 2 * d * h * d_h + 2 * d * g * d_h
"""Weights that a token uses, by hand."""
ROUTER, USED, ALL = d * E, 3 * K * d * F, 3 * E * d * F
LOGITS = d * V
SQUARE = 2 * h * d_h * T
"""MACs of both T x T products a token, the whole square."""
CAUSAL, HALF = h * d_h * (T + 1), h * d_h * T
PRODUCTS = ATTENTION + USED + LOGITS


@pytest.mark.parametrize(
    "rule, macs",
    [
        ("6n", 3 * (2 * LOGITS + ATTENTION + ROUTER + USED + d)),
        ("6n_no_embedding", 3 * (ATTENTION + ROUTER + USED + d)),
        ("kaplan", 3 * (ATTENTION + USED + h * d_h * T)),
        ("palm", 3 * (2 * LOGITS + ATTENTION + ROUTER + USED + d + SQUARE)),
        ("megatron2021", 4 * (ATTENTION + USED + ROUTER + SQUARE) + 3 * LOGITS),
        ("megatron_model", 3 * (PRODUCTS + ROUTER + SQUARE)),
        ("megatron_hardware", 3 * (PRODUCTS + ROUTER) + 6 * SQUARE),
        ("megatron_lm", 3 * (PRODUCTS + HALF)),
        ("deepseek_causal", 3 * (PRODUCTS + CAUSAL)),
        ("deepseek_whole", 3 * (PRODUCTS + SQUARE)),
        ("chinchilla", 3 * (PRODUCTS + ROUTER + SQUARE + LOGITS) + Fraction(9 * h * T, 2)),
        ("chinchilla_used", 3 * (PRODUCTS + ROUTER + SQUARE - LOGITS) + Fraction(9 * h * T, 2)),
        ("torchtitan", 3 * (LOGITS + ATTENTION + ROUTER + USED + d + SQUARE)),
        ("maxtext_before_644", 3 * (2 * LOGITS + ATTENTION + ROUTER + ALL + d + HALF)),
        ("maxtext_644", 3 * (PRODUCTS + ROUTER + SQUARE)),
        ("maxtext", 3 * (PRODUCTS + ROUTER + HALF)),
    ],
)
def test_rule_counts(rule, macs):
    assert CONVENTIONS[rule].flops(MODEL, TOKENS) == 2 * TOKENS * macs


def test_every_training_rule_is_tested():
    tested = test_rule_counts.pytestmark[0].args[1]
    assert [name for name, _ in tested] == list(TRAINING)


def test_kaplan_is_equations_18_19():
    vocabulary = 3 * MODEL.total_under(conventions.vocabulary_projection)
    assert CONVENTIONS["kaplan"].flops(MODEL, TOKENS) == 2 * (
        3 * MODEL.total_under(conventions.equations_18_19) - vocabulary
    )


def test_relative_positions_are_no_product_of_chinchilla():
    position = Entry("layers.*.self_attn.position_proj", "linear", {"T": T, "d_m": d}, weight={"d_m": d})
    assert [CONVENTIONS[name].macs(position, T) for name in ("chinchilla", "chinchilla_used")] == [0, 0]
    assert CONVENTIONS["6n"].macs(position, T) == 3 * T * d


@pytest.mark.parametrize("rule", TRAINING)
def test_frozen_weight_has_no_gradient(rule):
    def freeze(entry):
        return replace(entry, trainable=False) if entry.kind == "linear" else entry

    still = ledger(*map(freeze, MODEL))
    counted = CONVENTIONS[rule]
    # the same part of the same entries in a forward pass
    forward = replace(counted.without_recomputation, backward=0)
    weights = sum(forward.macs(entry, TOKENS) for entry in MODEL if entry.kind == "linear")
    assert counted.flops(still, TOKENS) == counted.flops(MODEL, TOKENS) - 2 * weights
    assert forward.flops(still, TOKENS) == forward.flops(MODEL, TOKENS)
