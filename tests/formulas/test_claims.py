"""The papers' sentences about cost: typed relations, the costs that they name, searches, verdicts, proofs."""

import re
from dataclasses import replace

import pytest
import sympy

from headcount.formulas.published import claims, proofs
from headcount.formulas.published.costs import costs
from headcount.formulas.published.expressions import expression, relation
from headcount.formulas.published.proofs import Search, search, verdict

FOUND = claims.load()
BY_NAME = {claim.name: claim for claim in FOUND.claims}


def searches(name, largest_sum=12):
    claim = BY_NAME[name]
    return [search(claim, one, largest_sum) for one in (claim.as_printed, claim.as_executed)]


def value(text, letters):
    return expression(text).value(letters, costs())


def test_a_value_takes_letters_and_costs_at_other_letters():
    letters = {"T": 7, "K": 3, "E": 11, "D": 5, "d_m": 13}
    assert value("K * D + 1", letters) == 16
    assert value("moa_macs(E=E + 1) - moa_macs()", letters) == 7 * 13
    assert value("moa_macs_eq18()", letters) == 3 * 7 * 7 * 5 + 2 * 4 * 7 * 5 * 13
    assert value("mha_macs_eq19()", letters) == 7 * 7 * 13 + 4 * 7 * 13 * 13
    assert value("mha_macs()", letters) == 2 * 7 * 7 * 13 + 4 * 7 * 13 * 13
    router, experts, shared, core = 7 * 13 * 11, 2 * 3 * 7 * 13 * 5, 2 * 7 * 13 * 5, 2 * 3 * 7 * 7 * 5
    assert value("moa_macs()", letters) == router + experts + shared + core
    assert value("moa_params_eq20()", letters) == 24 * 5 * 13
    assert value("moa_params()", letters) == 24 * 5 * 13 + 13 * 11
    assert value("mha_params_eq20()", letters) == value("mha_params()", letters) == 4 * 13 * 13


def test_the_routers_projections_and_both_forms_of_moh_are_costs():
    moa = {"T": 7, "K": 3, "E": 11, "D": 5, "d_m": 13}
    assert value("moa_router_macs()", moa) == 7 * 13 * 11
    assert value("moa_projection_macs()", moa) == 2 * 3 * 7 * 13 * 5 + 2 * 7 * 13 * 5
    moh = {"T": 7, "h": 11, "s": 3, "r": 2, "d_h": 5, "g": 11, "d_m": 13}
    routers = 13 * (11 - 3 + 3 + 2)
    projections, core = 4 * 7 * 13 * 11 * 5, 2 * 11 * 7 * 7 * 5
    assert value("moh_macs()", moh) == projections + core + 7 * routers
    # of queries, outputs and the core 5 of 11 heads
    assert value("moh_ideal_macs()", moh) == 2 * 7 * 13 * (11 + 5) * 5 + 2 * 5 * 7 * 7 * 5 + 7 * routers
    assert value("moh_params()", moh) == 4 * 13 * 11 * 5 + routers


@pytest.mark.parametrize("text", ["moa_macs()", "1 < K < 3", "K > 3", "K != 3"])
def test_a_sentence_says_less_at_most_or_equal(text):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is no relation "):
        claims.statement(text)


@pytest.mark.parametrize("text", ["K < 3", "K == 3", "K + 1 > 3", "3 > K", "f() > K"])
def test_a_bound_is_a_lower_one_of_a_letter(text):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is no lower bound of a letter$"):
        claims.bound(text)
    assert claims.bound("E >= K + 1") == relation("E >= K + 1")


def test_the_premise_gives_the_other_letters_in_order():
    claim = replace(BY_NAME["fewer-params"], premise={"K": expression("E"), "d_m": expression("K * D")})
    assert claim.complete({"E": 3, "D": 5}) == {"E": 3, "D": 5, "K": 3, "d_m": 15}


def test_fewer_macs_holds_as_printed_and_fails_where_the_router_is_large():
    printed, executed = searches("fewer-macs")
    assert printed.counterexample is None
    # E = 2 D (K - 1) is where both cost the same
    assert executed == Search({"T": 1, "K": 2, "E": 2, "D": 1, "d_m": 2}, 1)
    assert verdict(printed, executed) == "holds only as printed"


def test_the_search_tries_every_point_once():
    claim = BY_NAME["fewer-macs"]
    printed = search(claim, claim.as_printed, 10)
    sizes = range(1, 8)
    points = [(t, k, e, d) for t in sizes for k in sizes for e in sizes for d in sizes]
    assert printed.tried == sum(k > 1 and e >= k and t + k + e + d <= 10 for t, k, e, d in points)


def test_the_search_finds_the_smallest_sum_first():
    claim = replace(BY_NAME["params-without-macs"], letters=("T", "K"), assume=())
    # 2 T + K < 8 fails at sum 5 first, where T = 3 and K = 2; before it are T = 1 and T = 2
    found = search(claim, relation("2 * T + K < 8"), 9)
    assert found.counterexample == {"T": 3, "K": 2}
    assert found.tried == 1 + 2 + 3 + 3
    assert search(claim, relation("T + K < 9"), 9).tried == search(claim, relation("T + K < 9"), 10).tried == 29
    assert search(claim, relation("T + K < 9"), 8) == Search(None, 28)


def test_a_search_over_one_letter_starts_at_1():
    claim = replace(BY_NAME["fewer-params"], letters=("D",), premise={}, assume=())
    assert search(claim, relation("D < 7"), 11) == Search({"D": 7}, 7)
    assert search(claim, relation("D > 1"), 11) == Search({"D": 1}, 1)


def test_with_one_expert_the_sentence_fails_at_once():
    printed, executed = searches("fewer-macs-with-one-expert")
    assert printed.counterexample == executed.counterexample == {"T": 1, "E": 1, "D": 1, "K": 1, "d_m": 1}
    assert verdict(printed, executed) == "fails"


@pytest.mark.parametrize(
    "name, smallest",
    [
        ("fewer-params", {"E": 2, "D": 1, "K": 2, "d_m": 2, "T": 1}),
        ("params-without-macs", {"T": 1, "K": 1, "E": 1, "D": 1, "d_m": 1}),
    ],
)
def test_smallest_counterexamples_of_what_holds_as_printed(name, smallest):
    printed, executed = searches(name)
    assert (printed.counterexample, executed.counterexample) == (None, smallest)


@pytest.mark.parametrize(
    "name, smallest",
    [
        ("no-more-parameters", {"h": 2, "s": 1, "r": 1, "d_h": 1, "g": 2, "d_m": 2, "T": 1}),
        ("part-of-the-heads", {"h": 3, "s": 1, "r": 1, "d_h": 1, "T": 1, "g": 3, "d_m": 3}),
        ("inference-efficiency", {"h": 3, "s": 1, "r": 1, "d_h": 1, "T": 1, "g": 3, "d_m": 3}),
    ],
)
def test_mohs_sentences_fail_at_the_smallest_layer_that_selects(name, smallest):
    printed, executed = searches(name)
    assert printed.counterexample == executed.counterexample == smallest
    assert verdict(printed, executed) == "fails"


@pytest.mark.parametrize("h, s, r, saves", [(32, 16, 8, True), (16, 4, 4, True), (3, 1, 1, True), (3, 2, 1, False)])
def test_skipping_heads_saves_at_the_papers_width_where_a_head_is_skipped(h, s, r, saves):
    claim = BY_NAME["inference-efficiency"]
    assert claim.as_printed.holds(claim.complete({"h": h, "s": s, "r": r, "d_h": 64, "T": 7}), costs()) == saves


def test_the_first_point_is_what_the_search_tries_first():
    assert proofs.first_point(BY_NAME["fewer-params"]) == {"E": 2, "D": 1, "K": 2, "d_m": 2, "T": 1}
    assert search(BY_NAME["fewer-params"], relation("E < 2")).counterexample == proofs.first_point(
        BY_NAME["fewer-params"]
    )


def test_the_cases_of_a_claim_cover_every_value_of_their_letter():
    for claim in FOUND.claims:
        for letter in {case.left.text for case in claim.cases}:
            for size in range(1, 7):
                assert sum(case.holds({letter: size}) for case in claim.cases) == 1


def test_a_threshold_is_where_both_sides_are_equal():
    # E = 2 (K + 1) D
    letters = {"T": 7, "K": 3, "D": 5, "d_m": 13}
    claim = BY_NAME["params-without-macs"]
    both = claim.threshold.relation
    assert [both.holds({**letters, "E": E}, costs()) for E in (39, 40, 41)] == [False, True, False]
    assert proofs.equal_at(claim) == {"T": 1, "K": 1, "E": 4, "D": 1, "d_m": 1}
    K, D = (sympy.Symbol(letter, positive=True, integer=True) for letter in "KD")
    assert sympy.expand(proofs.threshold(claim)[None] - 2 * (K + 1) * D) == 0


def test_verdicts_take_both_searches():
    none, some = Search(None, 3), Search({"T": 1}, 1)
    assert verdict(none, none) == "holds"
    assert verdict(none, some) == "holds only as printed"
    assert verdict(some, none) == verdict(some, some) == "fails"


def test_with_symbols_the_difference_is_the_condition():
    claim = BY_NAME["fewer-macs"]
    T, K, E, D = sympy.symbols("T K E D", positive=True, integer=True)
    assert sympy.expand(proofs.margin(claim, claim.as_executed) - T * K * D * (2 * D * (K - 1) - E)) == 0


def test_the_default_search_covers_sums_up_to_20():
    claim = replace(BY_NAME["fewer-params"], assume=())
    assert search(claim, relation("T == 1")).tried == 20 * 19 // 2


def test_every_claim_names_place_and_sentence_and_has_relations():
    numbers = {"moa": "arXiv 2210.05144v1", "moh": "arXiv 2410.11842"}
    assert {name: paper.source.rpartition(", ")[2] for name, paper in FOUND.papers.items()} == numbers
    assert [model.name for model in FOUND.named_models] == ["16K32E512D"]
    for sentence in FOUND.all:
        assert sentence.paper in FOUND.papers
        assert sentence.place and sentence.sentence
    assert len({sentence.name for sentence in FOUND.all}) == len(FOUND.all)


def test_loading_again_gives_the_same_claims():
    # inside a test, so that a mutant of the loading is seen: the modules' own loading happens before it
    assert claims.load() == FOUND


@pytest.mark.parametrize(
    "text, sure",
    [
        ("moa_macs_eq18() < mha_macs_eq19()", True),
        ("moa_macs() < mha_macs()", False),
        ("T <= T + K - 2", True),
        ("T < T + K - 2", False),
        ("E + K == K + E", True),
        ("K <= E", True),
        ("K < E", False),
        ("1 <= 1", True),
    ],
)
def test_a_proof_takes_the_assumptions(text, sure):
    assert proofs.proved(BY_NAME["fewer-macs"], relation(text)) == sure


@pytest.mark.parametrize(
    "name, text, never",
    [
        ("fewer-macs", "moa_macs() < mha_macs()", False),
        ("fewer-macs", "E + 1 <= K", True),
        ("fewer-macs", "E <= K", False),
        ("fewer-macs", "E < K", True),
        ("fewer-macs", "E == E + T", True),
        ("fewer-macs", "E + T == E", True),
        ("fewer-macs", "E == K", False),
        ("no-more-parameters", "moh_params() <= mha_params()", True),
        ("inference-efficiency", "moh_ideal_macs() < mha_macs()", False),
        ("inference-efficiency", "moh_macs() < mha_macs()", True),
        ("inference-efficiency", "h <= s + r + 1", False),
        ("inference-efficiency", "h <= s + r", True),
    ],
)
def test_a_refutation_takes_the_assumptions_and_every_case(name, text, never):
    assert proofs.refuted(BY_NAME[name], relation(text)) == never


PLAIN = replace(BY_NAME["params-without-macs"], letters=("T", "K"), premise={}, assume=(), cases=())


def test_a_proof_is_of_every_point_within_its_bounds():
    assert proofs.proved(PLAIN, relation("T < T + K"))
    assert not proofs.proved(PLAIN, relation("T <= K"))
    assert proofs.proved(PLAIN, relation("T <= K"), [claims.bound("K >= T")])
    assert not proofs.proved(PLAIN, relation("T < K"), [claims.bound("K >= T")])
    assert proofs.proved(PLAIN, relation("2 * T + K == T + K + T"))
    # 0 at some points alone, and of no sign
    assert not proofs.proved(PLAIN, relation("T == K"))
    assert not proofs.proved(PLAIN, relation("T + K == T + 2 * K"))


def test_a_proof_holds_in_each_case_with_the_case_put_in():
    by_case = replace(PLAIN, cases=(relation("K == 1"), claims.bound("K > 1")))
    # K (K - 1) is 0 in the first case, and at least 2 in the second
    assert proofs.proved(by_case, relation("K <= K * K"))
    assert not proofs.proved(by_case, relation("K < K * K"))
    assert not proofs.proved(PLAIN, relation("2 * K <= K * K + 1 - 1"))
    only_large = replace(PLAIN, cases=(claims.bound("K > 1"),))
    assert proofs.proved(only_large, relation("K + 1 < K * K + 1"))


def test_what_fails_everywhere_is_refuted():
    assert proofs.refuted(PLAIN, relation("T + K < T"))
    assert proofs.refuted(PLAIN, relation("T + K == T"))
    assert not proofs.refuted(PLAIN, relation("T < K"))
    assert not proofs.refuted(PLAIN, relation("T <= T"))
    assert proofs.refuted(PLAIN, relation("T < T"))
    # what holds everywhere fails nowhere
    assert not proofs.refuted(PLAIN, relation("T < T + K"))
    assert not proofs.refuted(PLAIN, relation("T <= T + K"))


def test_a_letter_is_shifted_after_those_that_it_bounds():
    """a >= 1 and b >= a leave a + b >= 2, whichever letter comes first and is named first."""
    for letters in (("a", "b"), ("b", "a")):
        for low, high in ("ab", "ba"):
            claim = replace(PLAIN, letters=letters, assume=(claims.bound(f"{high} >= {low}"),))
            assert proofs.proved(claim, relation("1 < a + b"))
            assert proofs.refuted(claim, relation("a + b <= 1"))
            assert not proofs.proved(claim, relation("2 < a + b"))
