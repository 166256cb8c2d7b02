"""The papers' claims about cost: the costs that relations name, searches, verdicts and proofs."""

from dataclasses import replace

import pytest
import sympy

from headcount.formulas.published import claims, proofs
from headcount.formulas.published.costs import COSTS
from headcount.formulas.published.expressions import expression, relation
from headcount.formulas.published.proofs import Search, search, verdict

FOUND = claims.load()
BY_NAME = {claim.name: claim for claim in FOUND.claims}


def searches(name, largest_sum=12):
    claim = BY_NAME[name]
    return [search(claim, one, largest_sum) for one in (claim.as_printed, claim.as_executed)]


def value(text, letters):
    return expression(text).value(letters, COSTS)


def test_costs_of_moa_and_mha():
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
    assert value("moa_own_keys_macs() - moa_macs()", letters) == 10 * 2 * 7 * 13 * 5
    assert value("moa_own_keys_params() - moa_params()", letters) == 10 * 2 * 13 * 5
    assert value("mha_params_eq20()", letters) == value("mha_params()", letters) == 4 * 13 * 13


def test_costs_of_moh():
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


@pytest.mark.parametrize(
    "name, as_printed, as_executed, status",
    [
        # E = 2 D (K - 1): both cost the same
        ("fewer-macs", "", "T1 K2 E2 D1 d_m2", "holds only as printed"),
        ("fewer-macs-with-one-expert", "T1 E1 D1 K1 d_m1", "T1 E1 D1 K1 d_m1", "fails"),
        ("fewer-params", "", "E2 D1 K2 d_m2 T1", "holds only as printed"),
        ("params-without-macs", "", "T1 K1 E1 D1 d_m1", "holds only as printed"),
        ("no-more-parameters", *["h2 s1 r1 d_h1 g2 d_m2 T1"] * 2, "fails"),
        ("part-of-the-cost", *["h3 s1 r1 d_h1 T1 g3 d_m3"] * 2, "fails"),
        ("inference-efficiency", *["h3 s1 r1 d_h1 T1 g3 d_m3"] * 2, "fails"),
        # 2 (E + 1) d_m D - 2 (E' + 1) d_m D' is 2 d_m, more than the router's d_m
        ("fewer-parameters-with-more-experts", "", "", "holds"),
        ("same-parameters-with-one-expert", "", "D1 E1 K1 T1 d_m1", "holds only as printed"),
        ("more-information", *["K1 D1 d_m1"] * 2, "fails"),
        ("wider-costs-more", "", "", "holds"),
    ],
)
def test_smallest_counterexamples(name, as_printed, as_executed, status):
    found = searches(name)
    expected = [{one[:-1]: int(one[-1]) for one in text.split()} or None for text in (as_printed, as_executed)]
    assert [one.counterexample for one in found] == expected
    assert verdict(*found) == status


def test_search_finds_smallest_sum():
    claim = replace(BY_NAME["params-without-macs"], letters=("T", "K"), assume=())
    # 2 T + K < 8 fails at sum 5 first, where T = 3 and K = 2; before it are T = 1 and T = 2
    found = search(claim, relation("2 * T + K < 8"), 9)
    assert found.counterexample == {"T": 3, "K": 2}
    assert found.tried == 1 + 2 + 3 + 3
    assert search(claim, relation("T + K < 9"), 9).tried == search(claim, relation("T + K < 9"), 10).tried == 29
    assert search(claim, relation("T + K < 9"), 8) == Search(None, 28)


@pytest.mark.parametrize("h, s, r, saves", [(32, 16, 8, True), (16, 4, 4, True), (3, 1, 1, True), (3, 2, 1, False)])
def test_skipping_heads_saves(h, s, r, saves):
    claim = BY_NAME["inference-efficiency"]
    assert claim.as_printed.holds(claim.complete({"h": h, "s": s, "r": r, "d_h": 64, "T": 7}), COSTS) == saves


def test_cases_cover_every_value():
    for claim in FOUND.claims:
        for letter in {case.left.text for case in claim.cases}:
            for size in range(1, 7):
                assert sum(case.holds({letter: size}) for case in claim.cases) == 1


def test_threshold_is_where_sides_are_equal():
    # E = 2 (K + 1) D
    letters = {"T": 7, "K": 3, "D": 5, "d_m": 13}
    claim = BY_NAME["params-without-macs"]
    both = claim.threshold.relation
    assert [both.holds({**letters, "E": E}, COSTS) for E in (39, 40, 41)] == [False, True, False]
    assert proofs.equal_at(claim) == {"T": 1, "K": 1, "E": 4, "D": 1, "d_m": 1}
    K, D = (sympy.Symbol(letter, positive=True, integer=True) for letter in "KD")
    assert sympy.expand(proofs.threshold(claim)[None] - 2 * (K + 1) * D) == 0


def test_claims_state_what_proofs_decide():
    for claim in FOUND.claims:
        assert {one.operator for one in (claim.as_printed, claim.as_executed)} <= {"<", "<=", "=="}
        for bound in (*claim.assume, *claim.only_without):
            assert bound.operator in (">", ">=") and {bound.left.text} == bound.left.letters
    for sentence in (*FOUND.claims, *FOUND.sentences, *FOUND.timed):
        for check in sentence.checks:
            if isinstance(check, claims.Cell):
                continue
            relations = check.relations if isinstance(check, claims.Entries) else (check.relation,)
            assert {one.operator for one in relations} <= {"<", "<=", "=="}
        assert sentence.quoted in ("verbatim", "read as")
        judged = sentence.checks or isinstance(sentence, claims.Claim) or sentence in FOUND.timed
        assert judged or sentence.not_tested


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
def test_refuted_under_assumptions(name, text, never):
    assert proofs.refuted(BY_NAME[name], relation(text)) == never


PLAIN = replace(BY_NAME["params-without-macs"], letters=("T", "K"), premise={}, assume=(), cases=())


def test_proof_within_bounds():
    assert proofs.proved(PLAIN, relation("T < T + K"))
    assert not proofs.proved(PLAIN, relation("T <= K"))
    assert proofs.proved(PLAIN, relation("T <= K"), [relation("K >= T")])
    assert not proofs.proved(PLAIN, relation("T < K"), [relation("K >= T")])
    assert proofs.proved(PLAIN, relation("2 * T + K == T + K + T"))
    # the difference is 0 at some points only, and has both signs
    assert not proofs.proved(PLAIN, relation("T == K"))
    assert not proofs.proved(PLAIN, relation("T + K == T + 2 * K"))


def test_proof_by_cases():
    by_case = replace(PLAIN, cases=(relation("K == 1"), relation("K > 1")))
    # K (K - 1) is 0 in the first case, and at least 2 in the second
    assert proofs.proved(by_case, relation("K <= K * K"))
    assert not proofs.proved(by_case, relation("K < K * K"))
    assert not proofs.proved(PLAIN, relation("2 * K <= K * K + 1 - 1"))
    only_large = replace(PLAIN, cases=(relation("K > 1"),))
    assert proofs.proved(only_large, relation("K + 1 < K * K + 1"))


def test_shift_order_of_bounded_letters():
    # a >= 1 and b >= a imply a + b >= 2, in any order of the letters
    for letters in (("a", "b"), ("b", "a")):
        for low, high in ("ab", "ba"):
            claim = replace(PLAIN, letters=letters, assume=(relation(f"{high} >= {low}"),))
            assert proofs.proved(claim, relation("1 < a + b"))
            assert proofs.refuted(claim, relation("a + b <= 1"))
            assert not proofs.proved(claim, relation("2 < a + b"))
