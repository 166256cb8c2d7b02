"""One run with symbols for sizes, asked for directly."""

import pytest
import torch
from torch import nn

from headcount.bench.derive.symbolic import NotSymbolic, run
from headcount.formulas.symbols import symbol
from tests.bench.contractions.written import module


def widened(T, D, E):
    """A layer that asks for its widths as numbers."""
    return module(lambda x: nn.functional.linear(x, torch.ones(int(E), int(D)))), (torch.ones(T, D),), {}


def test_every_size_that_is_needed_as_a_number_is_named():
    with pytest.raises(NotSymbolic, match="^it pins .*D = 5") as caught:
        run(widened, {"T": 11, "D": 5, "E": 7})
    assert caught.value.pinned == ("D", "E")


def test_the_others_stay_symbols():
    found = run(lambda T, **numbers: widened(T, **numbers), {"T": 11}, {"D": 5, "E": 7})
    assert found.by_kind == {"contraction": 35 * symbol("T")}


def test_a_count_without_a_symbol_is_a_number():
    def fixed(T):
        return module(lambda x: torch.ones(3, 5) @ torch.ones(5, 7)), (torch.ones(T),), {}

    assert run(fixed, {"T": 11}).by_kind == {"contraction": 3 * 5 * 7}
