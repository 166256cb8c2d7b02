"""The papers' sentences about cost: typed relations, the costs that they name, searches, verdicts, proofs."""

from dataclasses import replace

import pytest
import sympy

from headcount.formulas.published import claims, proofs
from headcount.formulas.published.costs import costs
from headcount.formulas.published.expressions import relation
from headcount.formulas.published.proofs import Search, search

FOUND = claims.load()
BY_NAME = {claim.name: claim for claim in FOUND.claims}


def test_search_finds_smallest_sum():
    claim = replace(BY_NAME["params-without-macs"], letters=("T", "K"), assume=())
    # 2 T + K < 8 fails at sum 5 first, where T = 3 and K = 2; before it are T = 1 and T = 2
    found = search(claim, relation("2 * T + K < 8"), 9)
    assert found.counterexample == {"T": 3, "K": 2}
    assert found.tried == 1 + 2 + 3 + 3
    assert search(claim, relation("T + K < 9"), 9).tried == search(claim, relation("T + K < 9"), 10).tried == 29
    assert search(claim, relation("T + K < 9"), 8) == Search(None, 28)


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
    assert [both.holds({**letters, "E": E}, costs()) for E in (39, 40, 41)] == [False, True, False]
    assert proofs.equal_at(claim) == {"T": 1, "K": 1, "E": 4, "D": 1, "d_m": 1}
    K, D = (sympy.Symbol(letter, positive=True, integer=True) for letter in "KD")
    assert sympy.expand(proofs.threshold(claim)[None] - 2 * (K + 1) * D) == 0


def test_claims_state_what_proofs_decide():
    for claim in FOUND.claims:
        assert {one.operator for one in (claim.as_printed, claim.as_executed)} <= {"<", "<=", "=="}
        for bound in (*claim.assume, *claim.only_without):
            assert bound.operator in (">", ">=") and {bound.left.text} == bound.left.letters
    for sentence in FOUND.all:
        for check in sentence.checks:
            if isinstance(check, claims.Cell):
                continue
            relations = check.relations if isinstance(check, claims.Entries) else (check.relation,)
            assert {one.operator for one in relations} <= {"<", "<=", "=="}
        assert sentence.quoted in ("verbatim", "read as")
        judged = sentence.checks or isinstance(sentence, claims.Claim) or sentence in FOUND.timed
        assert judged or sentence.not_reproducible


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
    # 0 at some points alone, and of no sign
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
    """a >= 1 and b >= a leave a + b >= 2, whichever letter comes first and is named first."""
    for letters in (("a", "b"), ("b", "a")):
        for low, high in ("ab", "ba"):
            claim = replace(PLAIN, letters=letters, assume=(relation(f"{high} >= {low}"),))
            assert proofs.proved(claim, relation("1 < a + b"))
            assert proofs.refuted(claim, relation("a + b <= 1"))
            assert not proofs.proved(claim, relation("2 < a + b"))
