"""One run with symbols for sizes, asked for directly."""

import re
from contextlib import nullcontext

import pytest
import sympy
import torch
from torch import nn
from torch.torch_version import TorchVersion
from torch.utils._sympy.functions import Mod

from headcount.bench.derive import guards, symbolic
from headcount.bench.derive.derivation import derive
from headcount.bench.derive.interpolate import Grid
from headcount.bench.derive.symbolic import NotSymbolic, count_symbolic
from headcount.formulas.symbols import symbol
from tests.bench.contractions.written import module


def widened(T, D, E):
    """A layer that asks for its widths as numbers."""
    return module(lambda x: nn.functional.linear(x, torch.ones(int(E), int(D)))), (torch.ones(T, D),), {}


def test_every_size_that_is_needed_as_a_number_is_named():
    with pytest.raises(NotSymbolic, match="^it pins .*D = 5") as caught:
        count_symbolic(widened, {"T": 11, "D": 5, "E": 7})
    assert caught.value.pinned == ("D", "E")


@pytest.mark.parametrize(
    "equal, said, pinned",
    [
        (lambda T, D: T * T == 121, "it needs T = 11", ("T",)),
        (lambda T, D: T * D == 55, "it needs D*T = 55", ()),
        (lambda T, D: T == D + 6, "it pins T = D + 6", ("T",)),
    ],
    ids=["one", "two", "by the other"],
)
def test_an_equation_between_sizes_is_said_and_the_one_that_it_leaves_no_choice_is_named(equal, said, pinned):
    def build(T, D, E):
        assert equal(T, D)
        return nn.Linear(D, E), (torch.ones(T, D),), {}

    with pytest.raises(NotSymbolic) as caught:
        count_symbolic(build, {"T": 11, "D": 5, "E": 7})
    assert (str(caught.value), caught.value.pinned) == (said, pinned)


def test_the_others_stay_symbols():
    found = count_symbolic(lambda T, **numbers: widened(T, **numbers), {"T": 11}, {"D": 5, "E": 7})
    assert found.by_kind == {"contraction": 35 * symbol("T")}


def test_what_takes_no_symbols_is_counted_on_a_grid_and_says_why_where_and_what_that_leaves_open():
    def numbers(T, D):
        if not isinstance(T, int):
            raise TypeError("T is no number")
        return nn.Linear(D, 7), (torch.ones(T, D),), {}

    found = derive(numbers, Grid({"T": 11, "D": 5}, {"T": 1, "D": 2}))
    assert found.by_kind == {"linear": 7 * symbol("T") * symbol("D")}
    said = "an interpolation, because with symbols it raises TypeError: T is no number: exact through "
    said += r"\d+ counted points \(T = 11 \+ 1n, D = 5 \+ 2n\), confirmed by counting at T=\d+ D=\d+; T=\d+ D=\d+; "
    assert re.fullmatch(f"{said}sizes at which the module takes another path are not found in this way", found.method)


def test_a_count_without_a_symbol_is_a_number():
    def fixed(T):
        return module(lambda x: torch.ones(3, 5) @ torch.ones(5, 7)), (torch.ones(T),), {}

    assert count_symbolic(fixed, {"T": 11}).by_kind == {"contraction": 3 * 5 * 7}


def test_a_size_stands_before_the_number_that_it_is_compared_with():
    t, s = sympy.symbols("T S", positive=True, integer=True)
    compared = [sympy.Ge(5, t), sympy.Lt(7, t), sympy.Ne(3, t), t < s, sympy.Eq(Mod(t, 3), 0)]
    assert [guards.format_guard(guard) for guard in compared] == ["T <= 5", "T > 7", "T != 3", "T < S", "3 divides T"]
    assert guards.format_guard((t > 7) & (s > 5)) == "(S > 5) & (T > 7)"


@pytest.mark.parametrize(("version", "by_us"), [("2.12.1", True), ("2.13.0", False), ("2.14.0+cpu", False)])
def test_only_a_torch_that_takes_no_symbols_for_sizes_itself_is_helped(version, by_us, monkeypatch):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    assert (not isinstance(symbolic.decompose_matmul(), nullcontext)) is by_us


def test_sizes_that_start_at_the_same_number_are_told_apart():
    found = count_symbolic(lambda T, D: (nn.Linear(D, 3), (torch.ones(T, D),), {}), {"T": 7, "D": 7})
    assert found.by_kind == {"linear": 3 * symbol("T") * symbol("D")}
