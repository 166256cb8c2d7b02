"""Cost comparisons that the papers' sentences state: whether they hold at given sizes, and where they flip."""

from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.formulas.ledger import Entry, ledger
from headcount.formulas.published import claims, sentences, tables
from headcount.formulas.published.claims import Rows
from headcount.formulas.published.costs import COSTS
from headcount.formulas.published.expressions import relation

FOUND = claims.load()


def make_ledger(linear, square):
    return ledger(Entry("x", "linear", {"T": 10, "d_m": linear}), Entry("x", "scores", {"T": 10, "S": 10, "h": square}))


CHECK = Rows("made-up", relation("one <= other"), {"one": ("moa-table1", "a"), "other": ("moa-table1", "b")})


@pytest.mark.parametrize(
    "text, one, other, expected",
    [
        # 7 T + 3 T^2 against 100 T + T^2: equal at 46.5
        ("one <= other", (7, 3), (100, 1), [47]),
        # equal at 31 exactly: less up to 30, not more up to 31
        ("one < other", (7, 3), (69, 1), [31]),
        ("one <= other", (7, 3), (69, 1), [32]),
        ("one == other", (7, 3), (69, 1), [31, 32]),
        ("one < other", (7, 1), (7, 1), []),
        ("2 * one <= other", (7, 3), (100, 7), []),
        # equal at 1.5
        ("one <= other", (1, 3), (4, 1), [2]),
        ("one <= other", (2, 3), (4, 1), [2]),
        ("one <= other", (3, 3), (4, 1), []),
    ],
)
def test_crossovers_match_brute_force(text, one, other, expected):
    check, forms = replace(CHECK, relation=relation(text)), {"one": make_ledger(*one), "other": make_ledger(*other)}
    costs = ({"one": one[0] * t + one[1] * t**2, "other": other[0] * t + other[1] * t**2} for t in range(1, 60))
    every = list(map(check.relation.holds, costs))
    assert expected == [t for t in range(2, 60) if every[t - 1] != every[t - 2]]
    assert sentences.results_by_length(check, forms) == {t: every[t - 1] for t in (1, *expected)}


def test_rows_printed_and_executed():
    typed = tables.load_tables()
    check = Rows("x", relation("2 * big <= other"), {
        "big": ("moa-table1", "MoA Big 16K32E256D"), "other": ("moa-table1", "Admin 60L-12L (Liu 2020b)"),
    })  # fmt: skip
    printed, executed = sentences.of_rows(check, typed, {"big": 370, "other": 370})
    assert printed.label == executed.label == "x"
    assert (printed.form, printed.values) == ("printed", {"big": 1220 * 10**6, "other": 2550 * 10**6})
    assert printed.holds and not executed.holds
    assert executed.values == {"big": 370, "other": 370}
    # a row without a printed number has no printed finding
    check = replace(check, rows={**check.rows, "other": ("moa-table1", "MAE-7 (Peng 2020)")})
    (only,) = sentences.of_rows(check, typed, {"big": 370, "other": 370})
    assert only.form == "executed"


def test_entries_must_meet_all_relations():
    best = next(sentence for sentence in FOUND.sentences if sentence.name == "the-best-coefficients")
    (check,) = best.checks
    found = {one.label: one for one in sentences.of_entries(check, tables.load_data()[check.table].labelled())}
    assert {name: one.holds for name, one in found.items()} == {
        "8K8E128D": False, "8K16E128D": True, "8K32E128D": False
    }  # fmt: skip
    assert [str(one) for one in found["8K32E128D"].failing] == ["a <= both", "small_z <= both", "both_large <= both"]
    assert found["8K8E128D"].values["a"] == Fraction(2895, 100)
    assert {one.form for one in found.values()} == {"printed"}


@pytest.mark.parametrize(
    "name, sizes, admitted",
    [
        ("fewer-macs", {"T": 7, "K": 3, "E": 5, "D": 11, "d_m": 33}, True),
        ("fewer-macs", {"T": 7, "K": 3, "E": 5, "D": 11, "d_m": 34}, False),
        ("fewer-macs", {"T": 7, "K": 1, "E": 5, "D": 11, "d_m": 11}, False),
        ("fewer-params", {"T": 7, "K": 5, "E": 5, "D": 11, "d_m": 55}, True),
        ("fewer-params", {"T": 7, "K": 3, "E": 5, "D": 11, "d_m": 55}, False),
        ("inference-efficiency", {"T": 7, "h": 5, "s": 1, "r": 0, "d_h": 3, "g": 5, "d_m": 15}, False),
        ("inference-efficiency", {"T": 7, "h": 5, "s": 1, "r": 2, "d_h": 3, "g": 1, "d_m": 15}, False),
        ("inference-efficiency", {"T": 7, "h": 5, "s": 1, "r": 2, "d_h": 3, "g": 5, "d_m": 15}, True),
    ],
)
def test_layer_must_meet_premise(name, sizes, admitted):
    claim = next(claim for claim in FOUND.claims if claim.name == name)
    assert (claim.admitted(sizes) is not None) == admitted


def test_layers_where_relation_holds():
    claim = next(claim for claim in FOUND.claims if claim.name == "fewer-macs")
    # E < 2 D (K - 1) is 44
    below, at = ({"T": 7, "K": 3, "E": E, "D": 11, "d_m": 33} for E in (43, 44))
    assert [claim.as_executed.holds(point, COSTS) for point in (below, at)] == [True, False]
    assert [claim.as_printed.holds(point, COSTS) for point in (below, at)] == [True, True]


@pytest.mark.parametrize("name", [claim.name for claim in FOUND.claims if claim.threshold and claim.threshold.holds])
def test_claim_holds_on_named_side_of_threshold(name):
    from headcount.formulas.published import proofs
    from headcount.formulas.symbols import symbol

    claim = next(claim for claim in FOUND.claims if claim.name == name)
    both = claim.threshold.relation
    strict = relation(f"{both.left} < {both.right}")
    solved, tried = proofs.threshold(claim), 0
    for letters in proofs._admitted(claim, 11):
        case = next(case for case in solved if case is None or case.holds(letters))
        at = solved[case].subs({symbol(letter): size for letter, size in letters.items()})
        beyond = letters[claim.threshold.letter] - at
        assert strict.holds(letters, COSTS) == (beyond > 0 if claim.threshold.holds == "above" else beyond < 0)
        tried += 1
    assert tried > 20
