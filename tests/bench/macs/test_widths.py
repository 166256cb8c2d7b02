"""Rows that are printed while others are counted: columns have room for what is to come, so that lines stay lines."""

import pytest

from headcount.bench.macs import grid
from headcount.bench.macs.published import ReproducedTable
from headcount.formulas.published import tables


def too_narrow(columns, rows):
    """The columns with a cell that is wider than what they reserve."""
    cells = {one.key: [one.text(row.values[one.key]) for row in rows if one.key in row.values] for one in columns}
    return [
        one.key
        for one in columns
        if max(map(len, cells[one.key]), default=0) > max(one.width, *map(len, one.head_lines))
    ]


@pytest.mark.parametrize("name", tables.names())
def test_published_table_columns_fit(name):
    again = ReproducedTable(tables.load(name))
    rows = [again.row(row, again.measured(row, [])) for row in again.cases]
    assert too_narrow(again.section(("torch",), ()).table.columns, rows) == []


@pytest.mark.parametrize(
    "sizes",
    [
        # routers of 2 GMACs, a layer of more than a billion parameters, and far less work than Eq. 19's
        "K=8 E=64 D=128 d_m=4096 T=8192",
        "K=1 E=1,1024 D=256 d_m=8192 T=1,2",
        "K=1,2 E=3 D=5 d_m=4096 T=7,8192",
        "h=32 s=5 r=7 d_h=128 d_m=4096 T=65536",
    ],
)
def test_grid_columns_fit(sizes):
    section = grid.section(grid.parse(sizes), [], None)
    assert too_narrow(section.table.columns, section.rows) == []
