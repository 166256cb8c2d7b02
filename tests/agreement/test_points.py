"""Counters that take turns on a grid: what each of them still meets."""

from itertools import combinations

import pytest

from headcount.bench.counters import registry
from tests.agreement import (
    test_mae_consistency,
    test_mixture_consistency,
    test_mla_consistency,
    test_moh_consistency,
    test_switchhead_consistency,
)
from tests.agreement.points import by_turns

GRIDS = {
    "MoH": test_moh_consistency.GRID,
    "MLA": test_mla_consistency.GRID,
    "MAE": test_mae_consistency.GRID,
    "SwitchHead": test_switchhead_consistency.GRID,
    "mixture": test_mixture_consistency.BLOCKS,
    "attention experts": test_mixture_consistency.LAYERS,
}


def together(points):
    """Every three sizes that meet at one of the points."""
    return {three for point in points for three in combinations(point.items(), 3)}


@pytest.mark.parametrize("grid", GRIDS.values(), ids=list(GRIDS))
def test_each_counter_meets_every_three_sizes_together(grid):
    turns = [param.values for param in by_turns(grid)]
    assert [point for point, _ in turns] == grid
    for name in registry.NAMES:
        assert together(point for point, counters in turns if name in counters) == together(grid)
