"""Proofs that no counting convention gives the printed numbers of a set of rows."""

from dataclasses import replace

import pytest

from headcount.formulas.ledger import Entry, ledger
from headcount.formulas.published.impossible import PrintedRow, no_common_rule


def make_row(name, number, sizes, step=10):
    entries = [Entry(path, "linear", {"T": size}) for path, size in sizes.items()]
    return PrintedRow(name, number, step, ledger(Entry("x", "linear", {"T": 7}), *entries))


def two_rows(delta_a, delta_b, printed_a, printed_b):
    return [make_row("a", printed_a, {"y.z": delta_a}), make_row("b", printed_b, {"y.z": delta_b})]


def test_printable_rows_are_not_contradicted():
    assert no_common_rule(two_rows(100, 200, 500, 600)) == {}
    assert no_common_rule(two_rows(100, 200, 500, 591)) == {}
    assert no_common_rule(two_rows(100, 200, 500, 500)) == {}
    assert no_common_rule(two_rows(100, 200, 500, 709)) == {}


@pytest.mark.parametrize("gap", [10, 90, 110, 190], ids=lambda gap: f"gap{gap}")
def test_gap_between_multiples_is_contradiction(gap):
    found = no_common_rule(two_rows(100, 200, 500, 500 + gap))
    assert set(found) == {"a", "b"} and found["a"] == found["b"]
    below = gap // 100
    for text in (f"print {gap} apart", "y.z linear", f"{below} x 100 = {below * 100} ", f"{below + 1} x 100 = "):
        assert text in found["a"]


def test_different_multiples_are_contradiction():
    (a, b), (_, c) = two_rows(100, 200, 500, 600), two_rows(100, 300, 500, 900)
    found = no_common_rule([a, b, replace(c, name="c")])
    assert set(found) == {"a", "b", "c"}
    for text in ("a and b by 100, printed 100 apart", "a and c by 200, printed 400 apart", "2 times"):
        assert text in found["c"]


def test_negative_multiple_is_contradiction():
    (a, b), (_, c) = two_rows(300, 200, 500, 600), two_rows(300, 100, 500, 700)
    found = no_common_rule([a, b, replace(c, name="c")])
    assert "counted no whole number of times" in found["a"]


def test_other_contractions_are_not_compared():
    a, _ = two_rows(100, 200, 500, 555)
    other = make_row("c", 555, {})
    assert no_common_rule([a, other]) == {}


def test_contractions_may_have_different_multiples():
    a = make_row("a", 500, {"y": 100, "z": 100})
    assert no_common_rule([a, make_row("b", 600, {"y": 200, "z": 100}), make_row("c", 700, {"y": 100, "z": 200})]) == {}


def test_contradiction_names_every_contraction():
    sizes = {"encoder.layers.*.router.proj": 100, "output_proj": 300}
    a, b = make_row("a", 500, sizes), make_row("b", 550, {name: size + 200 for name, size in sizes.items()})
    assert "(router.proj linear, output_proj linear) does so by a multiple of 200" in no_common_rule([a, b])["a"]
