"""Closed forms and relations as text: parsed once, evaluated exactly, and never run as Python."""

import re
import time
from fractions import Fraction

import pytest
import sympy

from headcount.formulas.published.expressions import Relation, evaluate, expression, relation


def test_an_expression_holds_arithmetic_of_letters():
    assert evaluate("-(a - 2) * b / 3 + 2**a", {"a": 5, "b": 7}) == -7 + 32
    assert evaluate("a^2", {"a": 5}) == 25
    assert expression("K * D + 1").value({"K": 3, "D": 5}) == 16
    assert expression("a / 2").value({"a": 5}) == Fraction(5, 2)
    assert expression("(a - b) * 3").letters == {"a", "b"}


def test_a_cost_is_taken_at_the_letters_or_at_others():
    costs = {"area": lambda *, a, b: a * b}
    form = expression("area(a=a + 1) - area()")
    assert form.value({"a": 7, "b": 13}, costs) == 13
    assert (form.letters, form.costs) == ({"a"}, {"area"})


def test_with_symbols_the_value_is_the_formula():
    a, b = sympy.symbols("a b")
    assert expression("(a + 1) * cost() / 2").value({"a": a, "b": b}, {"cost": lambda *, a, b: b}) == (a + 1) * b / 2


@pytest.mark.parametrize(
    "sign, at",
    [
        ("<", [1, 0, 0]),
        ("<=", [1, 1, 0]),
        ("==", [0, 1, 0]),
        (">=", [0, 1, 1]),
        (">", [0, 0, 1]),
        ("!=", [1, 0, 1]),
    ],  # fmt: skip
)
def test_a_relation_holds_where_its_sign_says(sign, at):
    found = relation(f"2*a {sign} b")
    assert [found.holds({"a": a, "b": 6}) for a in (2, 3, 4)] == [bool(x) for x in at]
    assert (found.left.text, found.operator, found.right.text) == ("2 * a", sign, "b")
    assert str(found) == f"2 * a {sign} b"


def test_a_relation_can_be_made_of_sides():
    made = Relation(expression("a"), "!=", expression("f(b=1)"))
    assert made == relation("a != f(b=1)")
    assert made.costs == {"f"}
    assert made.holds({"a": 3}, {"f": lambda *, a, b: a + b}) and not made.holds({"a": 3}, {"f": lambda **_: 3})


def test_what_is_unknown_is_named_with_what_there_is():
    for text, message in {
        "a*c": "'a*c' needs a size for c; it has a",
        "f() + 1": "'f() + 1' needs a cost for f; it has g",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            expression(text).value({"a": 5}, {"g": lambda a: a})
    with pytest.raises(ValueError, match="^'a' needs a size for a; it has none$"):
        evaluate("a", {})


def test_what_is_unknown_inside_another_part_is_named_with_the_whole_text():
    for text, message in {
        "a * -c": "'a * -c' needs a size for c; it has a, b",
        "g(a=c)": "'g(a=c)' needs a size for c; it has a, b",
        "-f()": "'-f()' needs a cost for f; it has g, h",
        "g(a=f())": "'g(a=f())' needs a cost for f; it has g, h",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            expression(text).value({"a": 5, "b": 7}, {"g": lambda a, b: a, "h": lambda a, b: b})


def test_costs_stand_wherever_a_size_does():
    costs = {"area": lambda a, b: a * b, "side": lambda a, b: a}
    assert expression("-area()").value({"a": 5, "b": 7}, costs) == -35
    assert expression("area(a=side() + 1)").value({"a": 5, "b": 7}, costs) == 42
    assert expression("area(b=-side(a=b))").value({"a": 5, "b": 7}, costs) == -35


@pytest.mark.parametrize("text", ["-1.5", "area(a=1.5)", "a + area(a=-1.5)"])
def test_what_is_refused_inside_another_part_is_named_with_the_whole_text(text):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} holds '1.5': "):
        expression(text)


REFUSED = (
    "len(a, b)", "f(**a)", "a.b", "a.b()", "f()()", "__import__('os')", "1.5", "True", "'a'", "[a]", "a < b",
    "a if b else c", "lambda: a", "a // b", "a % b", "+a", "a and b", "(a := 1)",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_nothing_else_is_an_expression(text):
    with pytest.raises(ValueError, match=r"holds .*: only \+ - \* / \*\* of sizes and whole numbers, and costs with"):
        expression(text)


@pytest.mark.parametrize("text", ["a*", "", "import os", "a b"])
def test_a_text_that_cannot_be_parsed_is_no_expression(text):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is no expression: "):
        expression(text)


def test_an_expected_count_is_whole_and_knows_no_costs():
    with pytest.raises(ValueError, match="^'a/2' is 5/2, not a whole number$"):
        evaluate("a/2", {"a": 5})
    message = "'len(a=1)' holds 'len(a=1)': only + - * / ** of sizes and whole numbers"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        evaluate("len(a=1)", {"a": 5})


@pytest.mark.parametrize("text", ["moa_macs()", "1 < K < 3", "K in E", "K is E"])
def test_a_relation_has_two_sides_and_one_sign(text):
    message = f"^{re.escape(repr(text))} is no relation <, <=, ==, >=, > or != between two sides$"
    with pytest.raises(ValueError, match=message):
        relation(text)


def test_a_text_is_parsed_once():
    assert expression("a + 1") is expression("a + 1") and relation("a < 1") is relation("a < 1")


def test_an_error_shows_the_text_as_it_was_typed():
    with pytest.raises(ValueError, match=r"^'T\^' is no expression: "):
        evaluate("T^", {"T": 7})


def test_what_is_called_by_name_without_positions_is_a_cost():
    # parsed anew: what was parsed before is kept
    made = expression.__wrapped__("twice(T=K) + 1")
    assert made.costs == {"twice"} and made.value({"T": 7, "K": 5}, {"twice": lambda *, T, K: 2 * T}) == 11
    for text in ("twice(K)", "[twice][0]()", "T.real()"):
        with pytest.raises(ValueError, match="only "):
            expression.__wrapped__(text)


@pytest.mark.parametrize(
    "text", ["9**9**9**9", "2^100000", "K**(K**K)", "(" * 5000 + "1" + ")" * 5000, "1+" * 5000 + "1"]
)
def test_a_text_that_no_memory_holds_the_value_of_is_refused_at_once(text):
    started = time.perf_counter()
    with pytest.raises(ValueError, match="a power of more than 10,000 bits|nested too deep|too many nested"):
        evaluate(text, {"K": 997})
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("signs", [1200, 30_000], ids=["too deep to be asked", "too deep to be read"])
def test_of_a_text_that_is_nested_too_deep_the_begin_is_said(signs):
    with pytest.raises(ValueError) as raised:
        evaluate("7" + "+1" * signs, {})
    # 1 + 2 * 19 characters and one more
    assert str(raised.value) == f"'7{'+1' * 19}+'… is nested too deep"


def test_a_power_that_somebody_means_is_a_number():
    assert evaluate("2**10000", {}) == 2**10000
    with pytest.raises(ValueError, match="^a power of more than 10,000 bits$"):
        evaluate("2**10001", {})
    assert evaluate("K^2", {"K": 10**40}) == 10**80
