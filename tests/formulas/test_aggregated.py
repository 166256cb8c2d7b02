"""Closed forms of routed heads in aggregated attention, against sums written out here."""

import pytest

from headcount.formulas import aggregated, moh, moh_aggregated

SIZES = dict(B=2, d_m=33, h=11, d_h=3, T=49, N_pos=121, d_pos=17)


@pytest.mark.parametrize("pooled", [0, 5])
@pytest.mark.parametrize("s, r", [(4, 2), (1, 3), (0, 5), (11, 0)])
def test_routed_heads_in_both_forms(s, r, pooled):
    sizes = SIZES | dict(M=pooled)
    dense = aggregated.layer("a", **sizes)
    released, ideal = (moh_aggregated.layer("a", s=s, r=r, form=form, **sizes) for form in ("released", "ideal"))
    columns = (11 - s if r else 0) + (s if s > 1 else 0) + (2 if s and r else 0)
    assert released.macs - dense.macs == 2 * 49 * 33 * columns
    assert released.params - dense.params == ideal.params - dense.params == 33 * columns
    unused = 11 - s - r
    of_head = 3 * (33 + 33 + (3 * 9 + 2 * 5 if pooled else 2 * 49))
    assert released.macs - ideal.macs == 2 * 49 * unused * of_head
    idle = 3 * (2 * 33 + 1 + 1) + 1 + (9 * (3 + 2) if pooled else 0)
    assert ideal.params - ideal.active_params == unused * idle
    assert moh.activated_percent(released, ideal) * 11 == 100 * (s + r)
