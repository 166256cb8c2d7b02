"""The page that judges the papers' claims: each part follows its facts, and a changed number changes it."""

from dataclasses import replace

import pytest

from headcount.bench.table import Row, Section
from headcount.formulas.published.expressions import relation
from headcount.formulas.published.proofs import search
from headcount.reports import claim_verdicts, papers, tables
from headcount.reports.facts import Facts
from headcount.reports.pages import claims, moa

FACTS = Facts(largest_sum=8)
BY_NAME = {claim.name: claim for claim in FACTS.claims.claims}


def judged(name, facts=FACTS, **changes):
    claim = replace(BY_NAME[name], **changes)
    found = (search(claim, one, facts.largest_sum) for one in (claim.as_printed, claim.as_executed))
    return claims.paragraph(claim, *found, facts)


def test_a_claim_is_judged_by_symbols_search_and_count():
    text = judged("fewer-macs")
    assert "*Holds only as printed.*" in text
    assert "$d_m = D K$" in text and r"$E \ge K$" in text
    assert "It holds at every point" in text
    assert r"holds where $D K T \left(2 D K - 2 D - E\right) > 0$" in text
    assert r"MoA costs less where $E < 2 D \left(K - 1\right)$" in text
    # 2 * 64 * 7 = 896
    assert "At the paper's own layers MoA costs less up to E = 895; theirs have E = 32." in text
    assert "T=1 K=2 E=2 D=1 d_m=2" in text
    # router 4, two expert projections 8, shared ones 4, core 4; MHA: four projections 16, core 4
    assert "`moa_macs()` is 20 and `mha_macs()` is 20, so the relation fails" in text


def test_a_changed_claim_changes_the_page():
    assert "*Holds.*" in judged("fewer-macs", as_executed=relation("moa_macs_eq18() < mha_macs()"))
    assert "*Fails.*" in judged("fewer-macs", as_printed=relation("moa_macs_eq18() < mha_macs_eq19() - 4"))


def test_a_claim_that_counts_otherwise_is_an_error():
    class Wrong(Facts):
        def cost(self, side, letters):
            return 7

    with pytest.raises(ArithmeticError, match=r"fewer-macs at T=1 .*: counted \[7, 7\], by the closed form \[20, 20\]"):
        judged("fewer-macs", Wrong(largest_sum=8))


def test_a_claim_of_moh_has_a_formula_for_each_case():
    text = judged("no-more-parameters")
    assert "*Fails.*" in text and r"Assuming $h \ge r + s$" in text
    assert "- As printed and as released, `moh_params() <= mha_params()` holds where " in text
    assert (
        r"$- d_{h} h \left(h + 1\right) \ge 0$ where $s = 1$ and $- d_{h} h \left(h + 2\right) \ge 0$ where $s > 1$"
        in text
    )
    assert "It fails at every point" in text
    # four projections 2 * 2 each; one routed head and two groups of width 2
    assert "`moh_params()` is 22 and `mha_params()` is 16, so the relation fails" in text


def test_both_forms_of_moh_are_counted_and_the_equality_too():
    text = judged("inference-efficiency")
    # h = 3, d_m = 3: MHA 4 * 9 + 6; routers 3 * (3 + 1); of three heads one is skipped: 2 * 3 + 2
    assert f"`moh_ideal_macs()` is {42 + 12 - 8} and `mha_macs()` is 42, so the relation fails" in text
    assert f"`moh_macs()` is {42 + 12} and `mha_macs()` is 42, so the relation fails" in text
    assert "Written with $r = k - s$" in text
    # where s > 1: (h^2 + 2h - 2T(h - k)) / (2h(h - k))
    beyond = r"$d_h > \frac{- 2 T h + 2 T k + h^{2} + 2 h}{2 h \left(h - k\right)}$ where $s > 1$"
    assert beyond in text and "counted there: `moh_ideal_macs()` is 72 and `mha_macs()` is 72" in text


def test_the_router_of_moa_is_counted_at_its_threshold():
    text = judged("params-without-macs")
    assert r"`moa_router_macs()` equals `moa_projection_macs()` at $E = 2 D \left(K + 1\right)$" in text
    assert "T=1 K=1 E=4 D=1 d_m=1, counted there: `moa_router_macs()` is 4 and `moa_projection_macs()` is 4" in text


def test_what_holds_is_counted_at_the_first_point():
    text = judged("inference-efficiency", as_printed=relation("mha_macs() < moh_macs()"))
    assert (
        "It holds at every point" in text and "`mha_macs()` is 42 and `moh_macs()` is 54, so the relation holds" in text
    )


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
def test_a_sentence_has_three_verdicts(name, own, everywhere, released):
    assert three(name) == (own, everywhere, released)


def test_the_ratios_of_section_1_follow_the_printed_cells():
    text = claims.of_rows(SENTENCES["half-the-computation"], FACTS)
    assert text.startswith('**half-the-computation** (section 1), "surpasses many large models or ')
    for ratio in ("0.478, holds", "0.584, fails", "0.682, fails", "0.697, fails", "0.819, fails"):
        assert f" = {ratio}; executed" in text
    assert "*At its own sizes: holds in 1 of 5.*" in text
    changed = claims.of_rows(SENTENCES["half-the-computation"], MadeUp("Admin 18L-18L (Liu 2020b)", macs="2440M"))
    assert "1,220,000,000 / 2,440,000,000 = 0.500, holds" in changed and "holds in 2 of 5" in changed


def test_the_lowest_of_the_big_is_passed_by_each_at_some_length():
    text = claims.of_rows(SENTENCES["lowest-of-the-big"], FACTS)
    for model, length in (("Admin 18L-18L", "287"), ("LightConv", "637"), ("DynamicConv", "670"),
                          ("Transformer big", "786"), ("Admin 60L-12L", "2,172")):  # fmt: skip
        (line,) = (line for line in text.splitlines() if line.startswith(f"- {model},"))
        assert line.endswith(f"it holds at T = 1; it fails from T = {length} on.")


def test_two_sections_print_one_length():
    assert papers.dearer_from(FACTS, papers.BIG, papers.TRANSFORMER_BIG) == 786
    assert "costs more than Transformer big from T = 786 on" in moa.savings(FACTS)


def test_both_sides_are_shown_at_the_largest_layer_of_the_paper():
    text = judged("shared-keys-computation")
    assert "At Big: 16K32E256D (T=10 K=16 E=32 D=256 d_m=512)" in text
    # 31 times two projections of ten tokens to 256
    assert f"`moa_own_keys_macs()` is {45_547_520 + 31 * 2 * 10 * 512 * 256:,}" in text
    assert "It holds at every point" in text


def test_a_claim_that_fails_at_degenerate_sizes_alone_says_so():
    assert "It fails at degenerate sizes alone: with $D > 1$ no coefficient is negative." in judged("fewer-params")
    without = judged("fewer-params", only_without=())
    assert "degenerate" not in without


def test_the_premise_is_met_by_the_rows_whose_widths_say_so():
    text = moa.premises(FACTS)
    for row in FACTS.tables["moa-table3"].rows:
        top_k, _, width = (int(part) for part in row.preset.removeprefix("moa-").translate(LETTERS).split())
        quotient = top_k * width // 512
        assert any(line.startswith(f"| {row.name} ") and line.endswith(f" {quotient} |") for line in text.splitlines())
    assert text.startswith("k d_h equals d_m in 1 of the 8 rows of Table 3 (C: 8K32E64D)")


LETTERS = str.maketrans({"K": " ", "E": " ", "D": ""})


def test_the_unlisted_model_is_in_no_table():
    text = moa.unlisted(FACTS)
    assert "`16K32E512D` is named in Table 4, Figure 4, and no table of the paper holds it" in text
    facts = Facts()
    table = facts.tables["moa-table3"]
    rows = (replace(table.rows[0], preset="moa-16K32E512D"), *table.rows[1:])
    facts.tables = {**facts.tables, "moa-table3": replace(table, rows=rows)}
    assert "and a table holds it" in moa.unlisted(facts)


def test_the_length_where_two_models_cost_the_same_is_a_change_of_sign():
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


def test_the_footnote_is_answered_by_the_vocabulary_projection():
    text = moa.convolutions(FACTS)
    kernels = sum((3, 7, 15, 31, 31, 31, 31)) + sum((3, 7, 15, 31, 31, 31))
    assert f"{10 * 1024 * kernels:,}" in text
    # as many taps as tokens in each of 13 layers
    assert text.count(f"or {13 * 10 * 10 * 1024:,} where they are written as products of band matrices") == 2
    assert text.count(f"{10 * 1024 * 32000:,}") == 2
    assert "prints 1750M. All" in text and "without it the row prints 1750M" in text


def test_appendix_b_is_the_ratio_of_eq_20_without_the_stray_factor():
    text = moa.equations(FACTS)
    assert r"$\frac{M_{MoA}}{M_{MHA}} = \frac{2 (E + 1) d_h d_m}{4 d_m^2}$" in text
    assert r"is $\frac{q}{2} + \frac{q}{2 E}$. The paper's right-hand side has a stray factor K" in text


class Closed(Facts):
    """No row is counted."""

    def counted(self, name):
        made = [Row({"verdict": verdict.status}) for verdict in self.verdicts(name).values()]
        return Section(None, made)


def test_the_totals_name_all_tables_and_every_row_that_is_unexplained():
    facts = Closed()
    text = tables.verdicts(facts)
    assert all(f"| {name} " in text for name in facts.tables)
    total = [int(cell) for cell in text.splitlines()[-1].split("|")[2:-1]]
    assert total[0] == sum(total[1:]) == sum(len(table.rows) for table in facts.tables.values())
    assert total[4] == 0
    table = facts.tables["moh-llm"]
    first = replace(table.rows[0], cells={**table.rows[0].cells, "params": {"params": "1M"}})
    facts = Closed()
    facts.tables = {**facts.tables, "moh-llm": replace(table, rows=(first, *table.rows[1:]))}
    text = tables.verdicts(facts)
    assert "- moh-llm, LLM-S: " in text and "not 1M" in text
