"""Eq. 18-20 as printed, the exact forms, and what separates them."""

from fractions import Fraction

import sympy

from headcount.formulas import conventions, mha, moa

B, T, S, D, E, K, H, G, DH, DM = sympy.symbols("B T S D E K h g d_h d_m", positive=True, integer=True)


def moa_layer(B=1, T=7, S=7, d_m=13, E=11, K=3, D=5, **options):
    return moa.layer("attn", B=B, T=T, S=S, d_m=d_m, E=E, K=K, D=D, **options)


def mha_layer(B=1, T=7, S=7, d_m=15, h=3, d_h=5, g=3, **options):
    return mha.layer("attn", B=B, T=T, S=S, d_m=d_m, h=h, d_h=d_h, g=g, **options)


def test_equation_18_19_20_as_printed():
    assert moa.macs_eq18(T=7, K=3, D=5, d_m=13) == 3 * 7 * 7 * 5 + 2 * 4 * 7 * 5 * 13
    assert mha.macs_eq19(T=7, d_m=13) == 7 * 7 * 13 + 4 * 7 * 13 * 13
    assert moa.params_eq20(E=11, D=5, d_m=13) == 24 * 5 * 13
    assert mha.params_eq20(d_m=13) == 4 * 13 * 13


def test_appendix_b_ratio_is_exact():
    ratio = moa.params_ratio_appendix_b(E=11, D=5, d_m=13)
    assert ratio == Fraction(24 * 5 * 13, 4 * 13 * 13)
    assert moa.params_ratio_appendix_b(E=7, D=2, d_m=4) == 2
    q = E * D / DM
    symbolic = moa.params_ratio_appendix_b(E=E, D=D, d_m=DM)
    assert sympy.simplify(symbolic - (sympy.Rational(1, 2) + 1 / (2 * E)) * q) == 0


def omitted(ledger):
    return ledger.select(lambda entry: entry.macs != 0 and not conventions.equations_18_19(entry))


def test_equation_18_omits_router_and_values():
    exact = moa_layer(B=1, T=T, S=T, d_m=DM, E=E, K=K, D=D)
    missing = omitted(exact)
    assert [(entry.path, entry.kind) for entry in missing] == [("attn.router.proj", "linear"), ("attn", "values")]
    printed = moa.macs_eq18(T=T, K=K, D=D, d_m=DM)
    assert sympy.expand(printed + missing.macs - exact.macs) == 0
    assert sympy.expand(missing.macs - (T * DM * E + K * T**2 * D)) == 0
    assert sympy.expand(exact.total_under(conventions.equations_18_19) - printed) == 0


def test_equation_19_omits_values():
    exact = mha_layer(B=1, T=T, S=T, d_m=DM, h=H, d_h=DM / H, g=H)
    missing = omitted(exact)
    assert [(entry.path, entry.kind) for entry in missing] == [("attn", "values")]
    assert sympy.expand(mha.macs_eq19(T=T, d_m=DM) + missing.macs - exact.macs) == 0


def test_equation_20_omits_router_and_biases():
    exact = moa_layer(d_m=DM, E=E, K=K, D=D, bias=True)
    missing = exact.select(lambda e: e.path.endswith("router.proj") or "bias" in e.kind)
    assert sympy.expand(moa.params_eq20(E=E, D=D, d_m=DM) + missing.params - exact.params) == 0
    dense = mha_layer(d_m=DM, h=H, d_h=DM / H, g=H)
    biases = dense.select(lambda e: e.kind == "bias")
    assert sympy.expand(mha.params_eq20(d_m=DM) + biases.params - dense.params) == 0


def test_moa_macs_depend_on_e_by_router_only():
    small, large = moa_layer(E=11), moa_layer(E=29)
    assert large.macs - small.macs == 7 * 13 * (29 - 11)
    changed = [a.path for a, b in zip(small, large, strict=True) if a.macs != b.macs]
    assert changed == ["attn.router.proj"]


def test_one_expert_is_one_head_and_router():
    one = moa_layer(E=1, K=1)
    assert one.macs == mha_layer(d_m=13, h=1, d_h=5, g=1).macs + 7 * 13
    assert one.params == one.active_params


def test_all_experts_are_multi_query_and_router():
    full = moa_layer(B=B, T=T, S=S, d_m=DM, E=K, K=K, D=D)
    dense = mha_layer(B=B, T=T, S=S, d_m=DM, h=K, d_h=D, g=1)
    assert sympy.expand(full.macs - dense.macs - B * T * DM * K) == 0


def test_noise_macs_in_training_only():
    plain, noisy = moa_layer(), moa_layer(noisy=True)
    assert noisy.params - plain.params == 13 * 11
    assert noisy.macs == plain.macs
    assert moa_layer(noisy=True, training=True).macs - plain.macs == 7 * 13 * 11
    assert moa_layer(training=True).macs == plain.macs
