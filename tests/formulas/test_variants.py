"""Closed forms of variants at their limits, and the sizes of rotary positions."""

import pytest
import sympy

from headcount.formulas import decoding, mha, mla, mla_ideal, moa, moh, moh_ideal, switchhead
from headcount.formulas.symbols import symbol

LATENT = dict(d_r=3, d_v=19, d_c=23, d_q=29)
ROUTED = dict(s=3, r=5, g=11)


def test_absorbed_projections_at_the_papers_sizes():
    """DeepSeek-V2, 4096 cached tokens: absorbing saves for one query and costs for the whole sequence."""
    sizes = dict(B=1, d_m=5120, h=128, d_h=128, d_r=64, d_v=128, d_c=512, d_q=1536)
    step, sequence = dict(T=1, S=4096, n=4095), dict(T=4096, S=4096)
    assert mla_ideal.layer("", **sizes, **step).macs < mla.layer("", **sizes, **step).macs / 40
    assert mla_ideal.layer("", **sizes, **sequence).macs > mla.layer("", **sizes, **sequence).macs
    assert decoding.cache_elements(mla.layer("", **sizes, **step)) == 4096 * (512 + 64)


def test_switchhead_with_one_expert_is_mha_and_routers():
    sizes = B, T, S, d_m, h, d_h = [symbol(letter) for letter in ("B", "T", "S", "d_m", "h", "d_h")]
    named = {str(size): size for size in sizes}
    dense, form = mha.layer("", **named, g=h, bias=False), switchhead.layer("", **named, E=1, K=1)
    assert sympy.expand(form.macs - dense.macs - B * (T + S) * d_m * h) == 0
    assert sympy.expand(form.params - dense.params - 2 * d_m * h) == 0


@pytest.mark.parametrize(
    "layer, sizes, query, key",  # elements that turn of each query and key token
    [
        (mha.layer, dict(g=11), 11 * 17, 11 * 17),
        (moa.layer, dict(E=19, K=4, D=6, g=3), 4 * 6, 6),
        (moh.layer, ROUTED, 11 * 17, 11 * 17),
        (moh_ideal.layer, ROUTED, 8 * 17, 11 * 17),
        (mla.layer, LATENT, 11 * 3, 3),
        (mla_ideal.layer, LATENT, 11 * 3, 3),
        (switchhead.layer, dict(E=19, K=3), 11 * 17, 11 * 17),
    ],
)
def test_rotary_sizes(layer, sizes, query, key):
    given = dict(B=2, T=7, S=5, d_m=13, n=2) | sizes | ({} if "D" in sizes else dict(h=11, d_h=17))
    ropes = [entry.size for entry in layer("", rotary=True, **given) if entry.kind == "rope"]
    assert ropes == [2 * 7 * query, 2 * 3 * key]
    assert not [entry for entry in layer("", **given) if entry.kind == "rope"]
