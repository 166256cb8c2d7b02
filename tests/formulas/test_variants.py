"""Closed forms of attention variants: equations as printed, routed heads, rotary positions, against sums by hand."""

from fractions import Fraction

import pytest
import sympy

from headcount.formulas import aggregated, conventions, mha, mla, moa, moh, moh_aggregated, switchhead

T, D, E, K, DM = sympy.symbols("T D E K d_m", positive=True, integer=True)


def moa_layer(B=1, T=7, S=7, d_m=13, E=11, K=3, D=5, **options):
    return moa.layer("attn", B=B, T=T, S=S, d_m=d_m, E=E, K=K, D=D, **options)


def test_appendix_b_ratio_is_exact():
    assert moa.params_ratio_appendix_b(E=11, D=5, d_m=13) == Fraction(24 * 5 * 13, 4 * 13 * 13)


def test_equation_18_omits_router_and_values():
    exact = moa_layer(B=1, T=T, S=T, d_m=DM, E=E, K=K, D=D)
    missing = exact.select(lambda entry: entry.macs != 0 and not conventions.equations_18_19(entry))
    assert [(entry.path, entry.kind) for entry in missing] == [("attn.router.proj", "linear"), ("attn", "values")]
    printed = moa.macs_eq18(T=T, K=K, D=D, d_m=DM)
    assert sympy.expand(printed + missing.macs - exact.macs) == 0
    assert sympy.expand(missing.macs - (T * DM * E + K * T**2 * D)) == 0
    assert sympy.expand(exact.total_under(conventions.equations_18_19) - printed) == 0


def test_noise_macs_in_training_only():
    plain, noisy = moa_layer(), moa_layer(noisy=True)
    assert noisy.params - plain.params == 13 * 11
    assert noisy.macs == plain.macs
    assert moa_layer(noisy=True, training=True).macs - plain.macs == 7 * 13 * 11
    assert moa_layer(training=True).macs == plain.macs


def test_activated_percent():
    """A layer of 4 heads with 3 on, and one of 8 wider heads with 2 on, repeated 3 times."""

    def forms(form):
        common = dict(B=1, T=7, S=7, form=form)
        first = moh.layer("a", d_m=13, h=4, s=1, r=2, d_h=5, g=4, **common)
        second = moh.layer("b.*", d_m=13, h=8, s=1, r=1, d_h=17, g=8, **common)
        return first + second.repeat(3)

    released, ideal = forms("released"), forms("ideal")
    assert moh.activated_percent(released, ideal) == Fraction(100 * (3 + 3 * 2), 4 + 3 * 8)
    assert (moh.shared_percent(ideal), moh.shared_percent(released)) == (Fraction(100 * (1 + 3 * 1), 3 + 3 * 2), 0)
    small, large = (2 * 7 * 13 * d + 2 * 7 * 7 * d for d in (5, 17))
    work = Fraction(100 * (3 * small + 3 * 2 * large), 4 * small + 3 * 8 * large)
    assert moh.activated_macs_percent(released, ideal) == work
    assert moh.activated_percent(released, released) == moh.activated_macs_percent(released, released) == 100


AGGREGATED = dict(B=2, d_m=33, h=11, d_h=3, T=49, N_pos=121, d_pos=17)


@pytest.mark.parametrize("pooled", [0, 5])
@pytest.mark.parametrize("s, r", [(4, 2), (1, 3), (0, 5), (11, 0)])
def test_routed_heads_in_both_forms(s, r, pooled):
    sizes = AGGREGATED | dict(M=pooled)
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
