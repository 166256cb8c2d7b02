"""Polynomials fitted to counts on a grid, and guards simplified to a domain."""

from itertools import product
from types import SimpleNamespace

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Mod

from headcount.bench.derive.guards import format_guard, simplify_guards
from headcount.bench.derive.interpolate import LINE, MOST_POINTS, Grid, NoPolynomial, fit_polynomial, validate_at
from headcount.formulas.symbols import symbol

POINTS = Grid({"x": 11, "y": 5}, {"x": 1, "y": 3})


def test_interpolation_finds_every_coefficient():
    x, y = symbol("x"), symbol("y")
    forms = {"a": 7 * x**3 * y + x / 2 * (x + 1) + 3, "b": y**2}
    found, _ = fit_polynomial(
        lambda p: {k: int(f.subs({x: p["x"], y: p["y"]})) for k, f in forms.items()}, POINTS, LINE
    )
    assert all(sympy.expand(found[kind] - form) == 0 for kind, form in forms.items())
    assert all(point["x"] > 20 and point["y"] > 5 for point in POINTS.outside())


@pytest.mark.parametrize(
    "count, message",
    [
        (lambda p: {"a": p["x"] // 7}, "a at x=15 y=5 counts 2; the polynomial gives 5"),
        (lambda p: {"a": 2 ** p["y"]}, "a at x=11 y=17 counts 131,072; the polynomial gives 54,240"),
        (
            lambda p: {"a": p["x"] if p["y"] == 5 or p["x"] < 20 else 0},
            r"a at x=\d+ y=\d+ counts 0; the polynomial gives ",
        ),
        (lambda p: {"b": p["y"]} if p["x"] < 30 else {}, r"b at x=\d+ y=(\d+) counts 0; the polynomial gives \1$"),
    ],
    ids=["rounded", "exponential", "outside", "missing"],
)
def test_no_polynomial_is_found(count, message):
    with pytest.raises(NoPolynomial, match=f"^{message}"):
        validate_at(count, fit_polynomial(count, POINTS, LINE)[0], POINTS.outside())


def test_counts_may_be_expressions():
    x, z = symbol("x"), symbol("z")
    found, points = fit_polynomial(lambda p: {"a": p["x"] ** 2 * z + z**3}, Grid({"x": 1}, {"x": 2}), 5)
    assert sympy.expand(found["a"] - (x**2 * z + z**3)) == 0 and points == 5
    with pytest.raises(NoPolynomial, match=r"a at x=9 counts 81\*z; the polynomial gives 9\*z"):
        fit_polynomial(lambda p: {"a": (p["x"] ** 2 if p["x"] == 9 else p["x"]) * z}, Grid({"x": 1}, {"x": 2}), 5)


def test_missing_kind_counts_0():
    x, y = symbol("x"), symbol("y")
    found, _ = fit_polynomial(lambda p: {"a": p["x"]} | ({"b": p["y"] - 5} if p["y"] > 5 else {}), POINTS, LINE)
    assert found == {"a": x, "b": y - 5}


def domain(*guards):
    """Return the simplified conditions of the guards that the module's own code causes, as texts."""
    own = [SimpleNamespace(expr=guard, sloc=SimpleNamespace(framework_loc=None)) for guard in guards]
    return [format_guard(guard) for guard in simplify_guards(own, {})[0].conditions]


T, h, s, r, g = map(symbol, "T h s r g".split())


@pytest.mark.parametrize(
    "guards, expected",
    [
        ([s <= h, r <= h - s], ["r + s <= h"]),
        ([sympy.Gt(T, 2), sympy.Ge(T, 3)], ["T >= 3"]),
        ([sympy.Gt(T, 3), sympy.Ge(T, 3)], ["T > 3"]),
        ([sympy.Le(-T, -7)], ["T >= 7"]),
        ([sympy.Lt(4 * T, 20 * T * h)], []),
        ([sympy.Ge(T * h, T * s)], ["h >= s"]),
        ([sympy.Eq(Mod(h, g), 0), sympy.Le(FloorDiv(h, g) * g, h)], ["g divides h"]),
        ([sympy.Eq(Mod(T * h, g), 0), sympy.Eq(Mod(h, g), 0)], ["g divides h"]),
        ([sympy.Eq(Mod(h, g), 0), sympy.Ge(T, 5)], ["g divides h", "T >= 5"]),
        ([sympy.Eq(Mod(T * h, g), 0), sympy.Eq(Mod(h, s), 0)], ["g divides T*h", "s divides h"]),
        ([sympy.Eq(Mod(h + T, g), 0), sympy.Eq(Mod(h, g), 0)], ["g divides T + h", "g divides h"]),
        ([sympy.Le(h, 2 * FloorDiv(h + 1, 2))], []),
        ([sympy.Le(h, 2 * FloorDiv(h, 2))], ["h <= 2*((h//2))"]),
        ([sympy.Eq(Mod(h, 2), 0), sympy.Le(h, 2 * FloorDiv(h, 2))], ["2 divides h"]),
        ([sympy.Eq(Mod(h, 2), 0), sympy.Ge(FloorDiv(h, 2), 1)], ["2 divides h"]),
        ([sympy.Eq(Max(T, h), T)], ["T >= h"]),
        ([sympy.Eq(3 * Max(T, 5), 3 * T)], ["T >= 5"]),
        ([sympy.Ge(FloorDiv(h + 4, 3), 2)], ["((h + 4)//3) >= 2"]),
        ([sympy.Ge(FloorDiv(h + 5, 3), 2)], []),
        ([sympy.Le(Mod(h, 3), 2)], []),
        ([sympy.Eq(FloorDiv(7 * T - 1, T), 6)], []),
        ([sympy.Eq(FloorDiv(7 * T - 5, T), 6)], ["((7*T - 5)//T) == 6"]),
    ],
    ids=str,
)
def test_domain_leaves_out_implied_guards(guards, expected):
    assert domain(*guards) == expected


def test_total_degree_limits_number_of_points():
    powers = {"a": 3, "b": 3, "c": 3, "d": 3, "e": 2}
    grid = Grid(dict.fromkeys(powers, 5), dict.fromkeys(powers, 1))
    found, points = fit_polynomial(lambda p: {"x": sum(p[name] ** power for name, power in powers.items())}, grid, 4)
    assert sympy.expand(found["x"] - sum(symbol(name) ** power for name, power in powers.items())) == 0
    every = [sum(steps) for steps in product(*(range(power + 1) for power in powers.values()))]
    sizes = [sum(total <= most for total in every) for most in range(15)]
    assert sizes[-1] > MOST_POINTS
    # the line of 4 points along e, of degree 2, has one point more than the fit
    assert points == max(size for size in sizes if size <= MOST_POINTS) + 1
