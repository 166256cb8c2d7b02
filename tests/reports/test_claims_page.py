"""The page that judges the papers' claims: each part follows its facts, and a changed number changes it."""

from dataclasses import replace

import pytest

from headcount.bench.table import Row, Section
from headcount.formulas.published.expressions import relation
from headcount.reports import claims, printed
from headcount.reports.facts import Facts

FACTS = Facts(largest_sum=8)
BY_NAME = {claim.name: claim for claim in FACTS.claims.claims}


def judged(name, facts=FACTS, **changes):
    claim = replace(BY_NAME[name], **changes)
    return claims.paragraph(claim, *facts.search(claim), facts)


def test_a_claim_is_judged_by_symbols_search_and_count():
    text = judged("fewer-macs")
    assert "*Holds only as printed.*" in text
    assert "$d_m = D K$" in text and r"$E \ge K$" in text
    assert "It holds at every point" in text
    assert r"$D K T \left(2 D K - 2 D - E\right)$" in text
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
    assert "- As printed and as released, `moh_params() <= mha_params()`: " in text
    assert r"$- d_{h} h \left(h + 1\right)$ where $s = 1$ and $- d_{h} h \left(h + 2\right)$ where $s > 1$" in text
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
    equal = r"$d_h = \frac{- 2 T h + 2 T k + h^{2} + 2 h}{2 h \left(h - k\right)}$ where $s > 1$"
    assert equal in text and "counted there: `moh_ideal_macs()` is 72 and `mha_macs()` is 72" in text


def test_the_router_of_moa_is_counted_at_its_threshold():
    text = judged("params-without-macs")
    assert r"`moa_router_macs()` equals `moa_projection_macs()` at $E = 2 D \left(K + 1\right)$" in text
    assert "T=1 K=1 E=4 D=1 d_m=1, counted there: `moa_router_macs()` is 4 and `moa_projection_macs()` is 4" in text


def test_what_holds_is_counted_at_the_first_point():
    text = judged("inference-efficiency", as_printed=relation("mha_macs() < moh_macs()"))
    assert (
        "It holds at every point" in text and "`mha_macs()` is 42 and `moh_macs()` is 54, so the relation holds" in text
    )


class MadeUp(Facts):
    """The two rows of the ratio with these MACs in every account, and one of them printed otherwise."""

    def __init__(self, macs, printed=None):
        super().__init__()
        (ratio,) = self.claims.ratios
        values = zip((ratio.row, ratio.against), macs, strict=True)
        self.made = [Row({"row": n, "macs": size, "macs_under_rule": size, "torch": size}) for n, size in values]
        if printed:
            table = self.tables[ratio.table]
            rows = tuple(replace(r, cells={"macs": printed}) if r.name == ratio.row else r for r in table.rows)
            self.tables = {**self.tables, ratio.table: replace(table, rows=rows)}

    def counted(self, name):
        return Section(None, self.made)


def test_a_changed_number_changes_the_ratio():
    text = printed.ratios(MadeUp((584, 1000)))
    assert "is printed 0.584, under the table's rule 0.584, exact 0.584, counted by torch 0.584" in text
    assert "*Fails*" in text
    text = printed.ratios(MadeUp((584, 1000), printed="1045M"))
    assert "is printed 0.500, " in text and "*Fails*" in text
    assert "*Holds*" in printed.ratios(MadeUp((500, 1000), printed="1045M"))


def test_the_premise_is_met_by_the_rows_whose_widths_say_so():
    text = printed.premises(FACTS)
    for row in FACTS.tables["moa-table3"].rows:
        top_k, _, width = (int(part) for part in row.preset.removeprefix("moa-").translate(LETTERS).split())
        quotient = top_k * width // 512
        assert any(line.startswith(f"| {row.name} ") and line.endswith(f" {quotient} |") for line in text.splitlines())
    assert text.startswith("k d_h equals d_m in 1 of the 8 rows of Table 3 (C: 8K32E64D)")


LETTERS = str.maketrans({"K": " ", "E": " ", "D": ""})


def test_the_unlisted_model_is_in_no_table():
    text = printed.unlisted(FACTS)
    assert "`16K32E512D` is named in Table 4, Figure 4, and no table of the paper holds it" in text
    facts = Facts()
    table = facts.tables["moa-table3"]
    rows = (replace(table.rows[0], preset="moa-16K32E512D"), *table.rows[1:])
    facts.tables = {**facts.tables, "moa-table3": replace(table, rows=rows)}
    assert "and a table holds it" in printed.unlisted(facts)


def test_the_length_where_two_models_cost_the_same_is_a_change_of_sign():
    one, other = (FACTS.ledger(name) for name in (printed.BIG, printed.TRANSFORMER_BIG))
    length = printed.crossing(one, other)

    def macs(t, d_m, f, attention):
        encoder, decoder = attention(t) + 2 * t * d_m * f, 2 * attention(t) + 2 * t * d_m * f
        return 6 * (encoder + decoder) + t * d_m * 32000

    def moa_macs(t):
        return t * 512 * 32 + 2 * 17 * t * 512 * 256 + 2 * 16 * t * t * 256

    def mha_macs(t):
        return 4 * t * 1024 * 1024 + 2 * t * t * 1024

    for t, dearer in ((length, True), (length - 1, False)):
        assert (macs(t, 512, 2048, moa_macs) > macs(t, 1024, 4096, mha_macs)) == dearer
    with pytest.raises(ValueError, match="^no length up to 9 makes the first model dearer$"):
        printed.crossing(one, other, longest=9)


def test_the_footnote_is_answered_by_the_vocabulary_projection():
    text = printed.convolutions(FACTS)
    kernels = sum((3, 7, 15, 31, 31, 31, 31)) + sum((3, 7, 15, 31, 31, 31))
    assert f"{10 * 1024 * kernels:,}" in text
    assert text.count(f"{10 * 1024 * 32000:,}") == 2
    assert "prints 1750M. All" in text and "without it the row prints 1750M" in text
