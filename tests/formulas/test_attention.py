"""Eq. 18 and the ratio of Appendix B as printed against the exact form, and noise in training."""

from fractions import Fraction

import sympy

from headcount.formulas import conventions, moa

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
