"""Counts of one run with symbols for the sizes."""

import re

import pytest
import sympy
import torch
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Mod

from headcount.bench.derive import guards
from headcount.bench.derive.derivation import derive
from headcount.bench.derive.interpolate import Grid
from headcount.bench.derive.symbolic import CannotBuild, NotSymbolic, count_symbolic
from headcount.formulas.symbols import symbol
from tests.bench.contractions.function_modules import module


def layer_of_integers(T, D, E):
    """Return a layer that converts its widths to integers, and its inputs."""
    return module(lambda x: nn.functional.linear(x, torch.ones(int(E), int(D)))), (torch.ones(T, D),), {}


def test_pinned_sizes_are_named():
    with pytest.raises(NotSymbolic, match="^the module fixes .*D = 5") as caught:
        count_symbolic(layer_of_integers, {"T": 11, "D": 5, "E": 7}, {})
    assert caught.value.pinned == ("D", "E")


@pytest.mark.parametrize(
    "equal, reason, pinned",
    [
        (lambda T, D: T * T == 121, "the module requires T = 11", ("T",)),
        (lambda T, D: T * D == 55, "the module requires D*T = 55", ()),
        (lambda T, D: T == D + 6, "the module fixes T = D + 6", ("T",)),
    ],
    ids=["one", "two", "by the other"],
)
def test_equation_between_sizes_is_named(equal, reason, pinned):
    def build(T, D, E):
        assert equal(T, D)
        return nn.Linear(D, E), (torch.ones(T, D),), {}

    with pytest.raises(NotSymbolic) as caught:
        count_symbolic(build, {"T": 11, "D": 5, "E": 7}, {})
    assert (str(caught.value), caught.value.pinned) == (reason, pinned)


def test_build_without_symbols_uses_a_grid():
    def numbers(T, D):
        if not isinstance(T, int):
            raise TypeError("T is no number")
        return nn.Linear(D, 7), (torch.ones(T, D),), {}

    found = derive(numbers, Grid({"T": 11, "D": 5}, {"T": 1, "D": 2}))
    assert found.by_kind == {"linear": 7 * symbol("T") * symbol("D")}
    method = (
        "interpolation over T = 11, 12, …; D = 5, 7, …, because with symbols for its sizes TypeError: T is no number"
    )
    method += r": exact through \d+ runs, confirmed by counting at T=\d+ D=\d+; T=\d+ D=\d+; "
    assert re.fullmatch(f"{method}sizes at which the module takes another path would be missed", found.method)


def test_values_of_tensors_are_a_plain_reason():
    def rows(T):
        return module(lambda x: nn.functional.linear(x[: int(x.sum())], torch.ones(4, 4))), (torch.ones(T, 4),), {}

    with pytest.raises(NotSymbolic, match="^the module decides by values of tensors$"):
        count_symbolic(rows, {"T": 11}, {})


def test_one_cause_is_told_once():
    def heads(T, d, h):
        if d % h:
            raise ValueError(f"{d} is no multiple of {h}")
        return nn.Linear(d, d), (torch.ones(T, d),), {}

    with pytest.raises(CannotBuild) as caught:
        derive(heads, Grid({"T": 11, "d": 7, "h": 6}, {"T": 1, "d": 1, "h": 1}))
    assert str(caught.value).count("is no multiple of") == 1 and "take their quotient" in str(caught.value)


def test_error_names_the_last_points_of_the_fit():
    """Of the sizes that a run needs as integers, all of them here."""

    def chosen(e, k):
        if int(k) > int(e):
            raise ValueError(f"{k} > {e}")
        return nn.Linear(int(e), int(k)), (torch.ones(2, int(e)),), {}

    with pytest.raises(CannotBuild) as caught:
        derive(chosen, Grid({"e": 8, "k": 2}, {"e": 3, "k": 1}))
    text = "cannot be built at e=8 k=9: 9 > 8; the fit needs 10 points of e from 8 to 35, 10 points of k from 2 to 11; "
    assert str(caught.value).startswith(text)
    # where the last points can be built, it is no error
    assert not derive(chosen, Grid({"e": 11, "k": 2}, {"e": 3, "k": 1})).witness


def test_reason_is_short():
    """No sentence holds an expression of hundreds of characters."""

    def convolutions(H, W, C):
        return nn.Sequential(nn.Conv2d(3, C, 3, stride=2), nn.Conv2d(C, C, 3)), (torch.ones(1, 3, H, W),), {}

    found = derive(convolutions, Grid({"H": 11, "W": 23, "C": 29}, dict.fromkeys("HWC", 1)))
    assert found.witness and "rounded quotients" in found.method and len(found.method) < 240


def test_quotient_needs_a_grid():
    found = derive(lambda T: (nn.Linear(8, 8), (torch.ones(T // 2, 8),), {}), Grid({"T": 11}, {"T": 1}))
    assert found.witness and "because the cost of linear has rounded quotients, 64*((T//2)) (" in found.method


def test_guards_have_the_size_first():
    t, s = sympy.symbols("T S", positive=True, integer=True)
    compared = [sympy.Ge(5, t), sympy.Lt(7, t), sympy.Ne(3, t), t < s, sympy.Eq(Mod(t, 3), 0)]
    assert [guards.format_guard(guard) for guard in compared] == ["T <= 5", "T > 7", "T != 3", "T < S", "3 divides T"]
    assert guards.format_guard((t > 7) & (s > 5)) == "(S > 5) & (T > 7)"


def test_layouts_of_sizes_from_two():
    t, k = sympy.symbols("T K", positive=True, integer=True)
    proved = [sympy.Ne(t, 1), t >= 2, sympy.Ge(t * k, 2), sympy.Ne(t * k, 1), sympy.Ne(Mod(t, k * t), 0)]
    assert all(map(guards.holds_from_two, proved))
    # none holds at T = K = 2
    others = [sympy.Ne(t, k), t >= 3, sympy.Ne(FloorDiv(t + 1, 2), 1), sympy.Ne(Mod(t, k), 0)]
    assert not any(map(guards.holds_from_two, others))


def test_equal_starts_are_different_symbols():
    found, _ = count_symbolic(lambda T, D: (nn.Linear(D, 3), (torch.ones(T, D),), {}), {"T": 7, "D": 7}, {})
    assert found == {"linear": 3 * symbol("T") * symbol("D")}
