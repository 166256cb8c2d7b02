"""Verdicts on the papers' claims, and the counts that confirm them."""

import re
from fractions import Fraction

import pytest

from headcount.reports import papers
from headcount.reports.blocks import claims
from headcount.reports.facts import Facts

FACTS = Facts(largest_sum=8)
SENTENCES = {one.name: one for one in (*FACTS.claims.claims, *FACTS.claims.sentences)}


def test_disagreeing_count_raises():
    class Wrong(Facts):
        def cost(self, side, letters):
            return 7

    with pytest.raises(ArithmeticError, match=r"fewer-macs at T=1 .*: counted \[7, 7\], by the closed form \[20, 20\]"):
        claims.paragraph(SENTENCES["fewer-macs"], Wrong(largest_sum=8))


@pytest.mark.parametrize(
    "name, own, everywhere, released",
    [
        # K = E only in Base, whose E D is 2 d_m
        ("fewer-params", "no layer meets the premise", "holds only as printed, at degenerate sizes alone",
         "no layer meets the premise"),
        ("no-more-parameters", "holds in 4 of 12", "fails", "fails"),
        ("half-the-computation", "holds in 1 of 5", "fails at some length for 5 of 5", "holds in 1 of 5"),
        ("three-settings", "holds", "fails at every length", "fails"),
        ("comparable-to-mae", None, "fails at some length for 1 of 1", "holds"),
        ("five-percent-of-the-tokens", "fails", None, None),
        # printed 7.27 G of 6.55 G is 1.11, and 1.041 executed
        ("without-adding-in-table-2", "holds in 1 of 2", "fails at some length for 1 of 1", "holds"),
        ("macs-grow-with-k", "holds", "holds at every length", "holds"),
        # 28.4 - 27.7 and 42.5 - 41.5 are the least
        ("base-ahead-by-at-least", "holds", None, "not tested here"),
        ("training-run", "not tested here", None, "not tested here"),
    ],
)  # fmt: skip
def test_sentence_has_verdicts(name, own, everywhere, released):
    found = claims.verdicts(SENTENCES[name], FACTS)
    assert [found[name] for name in ("own sizes", "all sizes", "as released")] == [own, everywhere, released]


def macs(t, d_m, f, attention):
    encoder, decoder = attention(t) + 2 * t * d_m * f, 2 * attention(t) + 2 * t * d_m * f
    return 6 * (encoder + decoder) + t * d_m * 32000


def moa_macs(t, K=16, E=32, D=256):
    return macs(t, 512, 2048, lambda t: t * 512 * E + 2 * (K + 1) * t * 512 * D + 2 * K * t * t * D)


def mha_macs(t, d_m):
    return macs(t, d_m, 4 * d_m, lambda t: 4 * t * d_m * d_m + 2 * t * t * d_m)


def typed_macs(row):
    sizes = re.search(r"(\d+)K(\d+)E(\d+)D$", row)
    return moa_macs(10, *map(int, sizes.groups())) if sizes else mha_macs(10, 1024 if "big" in row else 512)


@pytest.mark.parametrize(
    "name, holding",
    [
        ("low-macs", [False, False]),
        ("macs-grow-with-k", [True] * 2),
        ("row-e-at-less-than-half", [True]),
        ("wider-costs-more", [True] * 2),
    ],
)
def test_executed_macs_match_typed_formula(name, holding):
    checks = [one for one in SENTENCES[name].checks if one.of == "macs"][: len(holding)]
    found = [[one for one in FACTS.findings(check) if one.form == "executed"][0] for check in checks]
    assert [one.values for one in found] == [
        {letter: typed_macs(row) for letter, (_, row) in check.rows.items()} for check in checks
    ]
    assert [one.holds for one in found] == holding


def test_parameters_stay_over_k():
    layer = 512 * 32 + 2 * (32 + 1) * 512 * 256
    for check in SENTENCES["parameters-stay-over-k"].checks:
        few, many = [one for one in FACTS.findings(check) if one.form == "executed"][0].values.values()
        # 18 attention layers, 12 of feed-forward with biases, 30 norms, the shared embedding
        assert (
            check.relation.operator == "=="
            and few == many == 18 * layer + 12 * (2 * 512 * 2048 + 512 + 2048) + 30 * 2 * 512 + 32000 * 512
        )


def test_shares_of_heads_are_means_over_layers():
    shares = {one.label: FACTS.findings(one)[1].values["share"] for one in SENTENCES["part-of-the-heads"].checks}
    assert len(shares) == 17
    assert shares["MoH-DiT-S/2 90 %"] == Fraction(100 * (8 * 5 + 4 * 6), 12 * 6)
    assert shares["MoH-DiT-L/2 90 %"] == Fraction(100 * 8 * (8 + 16 + 19), 8 * (8 + 16 + 24))


def test_numbers_of_quality_are_differences():
    lines = claims.paragraph(SENTENCES["same-model-same-bleu"], FACTS)
    assert "one minus again:\n  - 8K8E128D, Table 1, printed 28.4 - 28.94 = -0.54, fails.\n  - 8K8E" in lines
    assert "- Not tested here: no model" in lines


def test_crossover_changes_sign():
    length = papers.last_crossover(FACTS, papers.BIG, papers.TRANSFORMER_BIG)
    for t, dearer in ((length, True), (length - 1, False)):
        assert (moa_macs(t) > mha_macs(t, 1024)) == dearer
    with pytest.raises(ValueError, match="^no length makes transformer-big dearer than moa-16K32E256D$"):
        papers.last_crossover(FACTS, papers.TRANSFORMER_BIG, papers.BIG)
