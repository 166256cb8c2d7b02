"""Aggregated attention and TransNeXt against sums written out here."""

import pytest

from headcount.formulas import aggregated, moh, moh_aggregated

SIZES = dict(B=2, d_m=33, h=11, d_h=3, T=49, N_pos=121, d_pos=17)


def positions(h):
    return 121 * 17 * (2 + h), 17 * (2 + 1 + h) + h


def test_pooling_layer():
    form = aggregated.layer("a", M=5, **SIZES)
    bias_macs, bias_params = positions(11)
    projections = 2 * 33 * 33 * (49 + 2 * (49 + 5) + 49 + 49)
    assert form.macs == projections + bias_macs + 2 * 11 * 49 * 3 * (3 * 9 + 2 * 5)
    weights = 5 * (33 * 33 + 33) + 2 * 33 + 33 + 11 + 11 * 9 * (3 + 2)
    assert form.params == form.active_params == weights + bias_params
    sizes = form.group(lambda e: e.kind, "size")
    assert sizes["softmax"] == 2 * 11 * 49 * (9 + 5)
    assert sizes["activation"] == 121 * 17 + 2 * 49 * 33
    assert sizes["pooling"] == 2 * 49 * 33
    assert sizes["norm"] == 2 * 5 * 33


def test_global_layer():
    form = aggregated.layer("a", M=0, **SIZES)
    bias_macs, bias_params = positions(11)
    assert form.macs == 4 * 2 * 49 * 33 * 33 + bias_macs + 2 * 2 * 11 * 49 * 49 * 3
    assert form.params == 4 * (33 * 33 + 33) + 33 + 11 + bias_params
    assert not {"pooling", "norm"} & {e.kind for e in form}


@pytest.mark.parametrize("pooled", [0, 5])
@pytest.mark.parametrize("s, r", [(4, 2), (1, 3), (0, 5), (11, 0)])
def test_routed_heads_in_both_forms(s, r, pooled):
    sizes = SIZES | dict(M=pooled)
    dense = aggregated.layer("a", **sizes)
    released, ideal = (moh_aggregated.layer("a", s=s, r=r, form=form, **sizes) for form in moh_aggregated.FORMS)
    columns = (11 - s if r else 0) + (s if s > 1 else 0) + (2 if s and r else 0)
    assert released.macs - dense.macs == 2 * 49 * 33 * columns
    assert released.params - dense.params == ideal.params - dense.params == 33 * columns
    unused = 11 - s - r
    of_head = 3 * (33 + 33 + (3 * 9 + 2 * 5 if pooled else 2 * 49))
    assert released.macs - ideal.macs == 2 * 49 * unused * of_head
    idle = 3 * (2 * 33 + 1 + 1) + 1 + (9 * (3 + 2) if pooled else 0)
    assert ideal.params - ideal.active_params == unused * idle
    assert moh.activated_percent(released, ideal) * 11 == 100 * (s + r)
    assert sum(moh.skipped(released, ideal).values()) == released.macs - ideal.macs
