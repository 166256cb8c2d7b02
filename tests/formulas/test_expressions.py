"""Closed forms and relations as text: parsed once, evaluated exactly, and never run as Python."""

import re
import time
from fractions import Fraction

import pytest
import sympy

from headcount.formulas.published.expressions import evaluate, expression, relation


def test_arithmetic():
    assert evaluate("-(a - 2) * b / 3 + 2**a", {"a": 5, "b": 7}) == -7 + 32
    assert evaluate("a^2", {"a": 5}) == 25
    assert expression("K * D + 1").value({"K": 3, "D": 5}) == 16
    assert expression("a / 2").value({"a": 5}) == Fraction(5, 2)
    assert expression("(a - b) * 3").letters == {"a", "b"}


def test_costs_at_other_letters():
    costs = {"area": lambda *, a, b: a * b}
    form = expression("area(a=a + 1) - area()")
    assert form.value({"a": 7, "b": 13}, costs) == 13
    assert (form.letters, form.costs) == ({"a"}, {"area"})


def test_symbols():
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
def test_relation_holds(sign, at):
    found = relation(f"2*a {sign} b")
    assert [found.holds({"a": a, "b": 6}) for a in (2, 3, 4)] == [bool(x) for x in at]
    assert (found.left.text, found.operator, found.right.text) == ("2 * a", sign, "b")
    assert str(found) == f"2 * a {sign} b"


def test_unknown_letter_raises():
    for text, message in {
        "a*c": "'a*c' needs a size for c; it has a",
        "f() + 1": "'f() + 1' needs a cost for f; it has g",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            expression(text).value({"a": 5}, {"g": lambda a: a})
    with pytest.raises(ValueError, match="^'a' needs a size for a; it has none$"):
        evaluate("a", {})


REFUSED = (
    "len(a, b)", "f(**a)", "a.b", "a.b()", "f()()", "__import__('os')", "1.5", "True", "'a'", "[a]", "a < b",
    "a if b else c", "lambda: a", "a // b", "a % b", "+a", "a and b", "(a := 1)",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_other_syntax_raises(text):
    with pytest.raises(ValueError, match=r"holds .*: only \+ - \* / \*\* of sizes and whole numbers$"):
        expression(text)


@pytest.mark.parametrize("text", ["a*", "", "import os", "a b"])
def test_unparsable_text_raises(text):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is no expression: "):
        expression(text)


def test_evaluate_needs_whole_number():
    with pytest.raises(ValueError, match="^'a/2' is 5/2, not a whole number$"):
        evaluate("a/2", {"a": 5})
    message = "'len(a=1)' needs a cost for len; it has none"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        evaluate("len(a=1)", {"a": 5})


@pytest.mark.parametrize("text", ["moa_macs()", "1 < K < 3", "K in E", "K is E"])
def test_invalid_relation_raises(text):
    message = f"^{re.escape(repr(text))} is no relation <, <=, ==, >=, > or != between two sides$"
    with pytest.raises(ValueError, match=message):
        relation(text)


TOO_LARGE = {
    "a power of more than 10,000 bits": (
        "9**9**9**9", "K**(K**K)", "2**10001", "2**-(10**400)", "(2/3)^(2^40)", "(-K)**(10**30)",
        "((2**9999)/(3**6000))**9000",
    ),
    "a number of more than 10,000 bits": ("2**9999 * 2**9999", "2**9999 / 3**6000 * K**900", "3**10000"),
    ".*(nested too deep|too many nested).*": ("(" * 5000 + "1" + ")" * 5000, "+".join(["K"] * 900), "1+" * 5000 + "1"),
}  # fmt: skip


@pytest.mark.parametrize("message, text", [(message, text) for message, every in TOO_LARGE.items() for text in every])
def test_huge_expression_raises(message, text):
    started = time.perf_counter()
    with pytest.raises(ValueError, match=f"^{message}$"):
        evaluate(text, {"K": 997})
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "text, value",
    [
        ("4*2**-1", 2), ("1/2 + 1/2", 1), ("(a/2)*2", 7), ("a/3 - 1/3", 2), ("-(a/2)*2", -7), ("(1/2)**-3", 8),
        ("(-2)**3", -8), ("a**0", 1), ("1**(10**400)", 1), ("0**5", 0), ("(-1)**(10**40)", 1),
        ("2**10000", 2**10000),
    ],
)  # fmt: skip
def test_whole_result_is_integer(text, value):
    found = evaluate(text, {"a": 7})
    assert (found, type(found)) == (value, int)
    assert type(expression(text).value({"a": 7})) is int


@pytest.mark.parametrize("text", ["(0-a)**(1/2)", "a**(1/2)", "4**(1/2)", "(1/4)**(a/2)", "(-8)**(1/3)"])
def test_root_raises(text):
    with pytest.raises(ValueError, match=r"^an exponent of \d/\d; exponents are whole numbers$"):
        expression(text).value({"a": 7})


@pytest.mark.parametrize("text", ["1/0", "a/(a - 7)", "0**-1", "(a - 7)**-2"])
def test_division_by_zero_raises(text):
    with pytest.raises(ValueError, match="^.* divides by 0$"):
        expression(text).value({"a": 7})
