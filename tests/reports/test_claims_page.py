"""The page that judges the papers' claims: each part follows its facts, and a changed number changes it."""

from dataclasses import replace

import pytest

from headcount.formulas.published.proofs import search
from headcount.reports import claim_verdicts, papers
from headcount.reports.facts import Facts
from headcount.reports.pages import claims

FACTS = Facts(largest_sum=8)
BY_NAME = {claim.name: claim for claim in FACTS.claims.claims}


def judged(name, facts=FACTS, **changes):
    claim = replace(BY_NAME[name], **changes)
    found = (search(claim, one, facts.largest_sum) for one in (claim.as_printed, claim.as_executed))
    return claims.paragraph(claim, *found, facts)


def test_disagreeing_count_raises():
    class Wrong(Facts):
        def cost(self, side, letters):
            return 7

    with pytest.raises(ArithmeticError, match=r"fewer-macs at T=1 .*: counted \[7, 7\], by the closed form \[20, 20\]"):
        judged("fewer-macs", Wrong(largest_sum=8))


SENTENCES = {sentence.name: sentence for sentence in FACTS.claims.all}


class MadeUp(Facts):
    """One printed cell of Table 1 is another."""

    def __init__(self, row, **cells):
        super().__init__(largest_sum=8)
        table = self.tables["moa-table1"]
        rows = tuple(replace(r, cells={**r.cells, **cells}) if r.name == row else r for r in table.rows)
        self.tables = {**self.tables, "moa-table1": replace(table, rows=rows)}


def three(name, facts=FACTS):
    found = claim_verdicts.verdicts(SENTENCES[name], facts)
    return found.own, found.everywhere, found.released


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
def test_sentence_has_three_verdicts(name, own, everywhere, released):
    assert three(name) == (own, everywhere, released)


def test_ratios_follow_printed_cells():
    text = claims.of_rows(SENTENCES["half-the-computation"], FACTS)
    assert text.startswith('**half-the-computation** (section 1), "surpasses many large models or ')
    for ratio in ("0.478, holds", "0.584, fails", "0.682, fails", "0.697, fails", "0.819, fails"):
        assert f" = {ratio}; executed" in text
    assert "*At its own sizes: holds in 1 of 5.*" in text
    changed = claims.of_rows(SENTENCES["half-the-computation"], MadeUp("Admin 18L-18L (Liu 2020b)", macs="2440M"))
    assert "1,220,000,000 / 2,440,000,000 = 0.500, holds" in changed and "holds in 2 of 5" in changed


def test_each_big_model_has_a_crossover():
    text = claims.of_rows(SENTENCES["lowest-of-the-big"], FACTS)
    for model, length in (("Admin 18L-18L", "287"), ("LightConv", "637"), ("DynamicConv", "670"),
                          ("Transformer big", "786"), ("Admin 60L-12L", "2,172")):  # fmt: skip
        (line,) = (line for line in text.splitlines() if line.startswith(f"- {model},"))
        assert line.endswith(f"it holds at T = 1; it fails from T = {length} on.")


def test_crossover_changes_sign():
    length = papers.dearer_from(FACTS, papers.BIG, papers.TRANSFORMER_BIG)

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
        papers.dearer_from(FACTS, papers.TRANSFORMER_BIG, papers.BIG)
