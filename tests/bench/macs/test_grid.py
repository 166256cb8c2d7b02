"""``headcount grid``: printed equation and exact count of one layer at every combination of sizes."""

import pytest

from headcount.bench.macs.grid import count_grid, parse


def test_printed_equation_plus_omitted_is_exact():
    rows = count_grid(parse("K=3 E=5 D=7 d_m=11 T=13,17 B=2")).rows
    assert len(rows) == 2
    for row in rows:
        assert row.printed_equation_macs + sum(row.omitted_macs.values()) == row.count.ledger.macs
        t = row.point["T"]
        assert row.eq19_macs == 2 * (t * t * 11 + 4 * t * 11 * 11)
        assert row.mha_same_d_model_macs == 2 * (2 * t * t * 11 + 4 * t * 11 * 11)
        assert row.mha_same_inner_width_macs == 2 * (2 * t * t * 21 + 4 * t * 11 * 21)


def test_active_params_exclude_skipped_heads():
    (row,) = count_grid(parse("h=7 s=2 r=3 d_h=5 d_m=11 T=13")).rows
    assert row.active_params - row.ideal_active_params == (7 - 5) * 2 * 11 * 5


@pytest.mark.parametrize("sizes", ["h=3 d_h=7 d_m=30", "h=4 g=2 d_m=32"])
def test_equation_19_only_where_it_applies(sizes):
    (row,) = count_grid(parse(f"{sizes} T=13")).rows
    assert row.printed_equation_macs is None and row.count.ledger.macs
