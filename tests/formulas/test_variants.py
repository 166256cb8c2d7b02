"""Closed forms of all attention variants: elements that rotary positions rotate."""

import pytest

from headcount.formulas import mha, mla, moa, moh, switchhead

LATENT = dict(d_r=3, d_v=19, d_c=23, d_q=29)
ROUTED = dict(s=3, r=5, g=11)


@pytest.mark.parametrize(
    "layer, sizes, query, key",  # rotated elements of a query and of a key token
    [
        (mha.layer, dict(g=11), 11 * 17, 11 * 17),
        (moa.layer, dict(E=19, K=4, D=6, g=3), 4 * 6, 6),
        (moh.layer, ROUTED, 11 * 17, 11 * 17),
        (moh.layer, ROUTED | dict(form="ideal"), 8 * 17, 11 * 17),
        (mla.layer, LATENT, 11 * 3, 3),
        (mla.layer, LATENT | dict(form="ideal"), 11 * 3, 3),
        (switchhead.layer, dict(E=19, K=3), 11 * 17, 11 * 17),
    ],
)
def test_rotary_sizes(layer, sizes, query, key):
    given = dict(B=2, T=7, S=5, d_m=13, n=2) | sizes | ({} if "D" in sizes else dict(h=11, d_h=17))
    ropes = [entry.size for entry in layer("", rotary=True, **given) if entry.kind == "rope"]
    assert ropes == [2 * 7 * query, 2 * 3 * key]
    assert not [entry for entry in layer("", **given) if entry.kind == "rope"]
