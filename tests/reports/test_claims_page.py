"""Verdicts on the papers' claims, and the counts that confirm them."""

import pytest

from headcount.reports import claim_verdicts, papers
from headcount.reports.facts import Facts
from headcount.reports.pages import claims

FACTS = Facts(largest_sum=8)
SENTENCES = {sentence.name: sentence for sentence in FACTS.claims.all}


def test_disagreeing_count_raises():
    class Wrong(Facts):
        def cost(self, side, letters):
            return 7

    with pytest.raises(ArithmeticError, match=r"fewer-macs at T=1 .*: counted \[7, 7\], by the closed form \[20, 20\]"):
        claims.paragraph(SENTENCES["fewer-macs"], Wrong(largest_sum=8))


@pytest.mark.parametrize(
    "name, own, everywhere, released",
    [
        ("fewer-macs", "holds", "holds only as printed", "holds"),
        # K = E only in Base, whose E D is 2 d_m
        ("fewer-params", "no layer meets the premise", "holds only as printed, at degenerate sizes alone",
         "no layer meets the premise"),
        ("params-without-macs", "holds", "holds only as printed", "fails"),
        ("no-more-parameters", "holds in 4 of 12", "fails", "fails"),
        ("inference-efficiency", "holds", "fails", "fails"),
        ("wider-at-no-cost", "holds in 2 of 4", "fails", "fails"),
        ("shared-keys-space", "holds", "holds", "holds"),
        ("half-the-computation", "holds in 1 of 5", "fails at some length for 5 of 5", "holds in 1 of 5"),
        ("three-settings", "holds", "fails at every length", "fails"),
        ("comparable-to-mae", None, "fails at some length for 1 of 1", "holds"),
        ("five-percent-of-the-tokens", "fails", None, None),
        ("five-percent-of-the-choices", "holds", None, None),
        ("the-best-coefficients", "holds in 1 of 3", None, None),
    ],
)  # fmt: skip
def test_sentence_has_verdicts(name, own, everywhere, released):
    found = claim_verdicts.verdicts(SENTENCES[name], FACTS)
    assert (found.own, found.everywhere, found.released) == (own, everywhere, released)


def test_crossover_changes_sign():
    length = papers.last_crossover(FACTS, papers.BIG, papers.TRANSFORMER_BIG)

    def macs(t, d_m, f, attention):
        encoder, decoder = attention(t) + 2 * t * d_m * f, 2 * attention(t) + 2 * t * d_m * f
        return 6 * (encoder + decoder) + t * d_m * 32000

    def moa_macs(t):
        return t * 512 * 32 + 2 * 17 * t * 512 * 256 + 2 * 16 * t * t * 256

    def mha_macs(t):
        return 4 * t * 1024 * 1024 + 2 * t * t * 1024

    for t, dearer in ((length, True), (length - 1, False)):
        assert (macs(t, 512, 2048, moa_macs) > macs(t, 1024, 4096, mha_macs)) == dearer
    with pytest.raises(ValueError, match="^no length makes transformer-big dearer than moa-16K32E256D$"):
        papers.last_crossover(FACTS, papers.TRANSFORMER_BIG, papers.BIG)
