"""MoH's two closed forms against sums written out here, and against multi-head attention."""

from fractions import Fraction

import pytest
import sympy

from headcount.formulas import mha, moh, moh_ideal
from headcount.formulas.ledger import Entry, ledger, stack

B, T, S, N, DM, H, SH, R, DH, G = sympy.symbols("B T S n d_m h s r d_h g", positive=True, integer=True)
SIZES = dict(B=2, T=7, S=5, d_m=13, h=11, s=3, r=5, d_h=17, g=11)
FORMS = {"released": moh, "ideal": moh_ideal}


def layer(form="released", **more):
    return FORMS[form].layer("attn", **SIZES | more)


def test_macs_skipped_by_ideal_form():
    released, ideal = layer(), layer(form="ideal")
    idle = 11 - 3 - 5
    assert moh.skipped(released, ideal) == {
        ("attn.q_proj", "linear"): 2 * 7 * 13 * idle * 17,
        ("attn", "scores"): 2 * idle * 7 * 5 * 17,
        ("attn", "values"): 2 * idle * 7 * 5 * 17,
        ("attn.out_proj", "linear"): 2 * 7 * 13 * idle * 17,
    }
    assert released.macs - ideal.macs == sum(moh.skipped(released, ideal).values())


@pytest.mark.parametrize("moh_form", FORMS)
def test_released_is_mha_and_routers(moh_form):
    sizes = dict(B=B, T=T, S=S, d_m=DM, h=H, d_h=DH, g=G)
    form = FORMS[moh_form].layer("", **sizes, s=SH, r=H - SH)
    routers = B * T * DM * (H + 2)
    assert sympy.expand(form.macs - mha.layer("", **sizes, bias=False).macs - routers) == 0
    ideal = moh_ideal.layer("", **sizes, s=SH, r=R)
    k = SH + R
    expected = 2 * B * T * DM * k * DH + 2 * B * S * DM * G * DH + 2 * B * k * T * S * DH + routers
    assert sympy.expand(ideal.macs - expected) == 0


@pytest.mark.parametrize("form", [lambda **z: mha.layer("", **z), lambda **z: moh.layer("", s=3, r=5, **z)])
def test_causal_half(form):
    sizes = dict(B=2, d_m=13, h=11, d_h=17, g=11, bias=False)
    square, half = form(T=7, S=7, **sizes), mha.causal_half(form(T=7, S=7, **sizes))
    kinds = ("scores", "values", "softmax")
    for one, other in zip(square, half, strict=True):
        pairs = (7 * 7, 7 * 8 // 2) if one.kind in kinds and "S" in one.dims and "T" in one.dims else (1, 1)
        assert one.size * pairs[1] == other.size * pairs[0]
    assert square.macs - half.macs == 2 * (2 * 11 * 17) * (49 - 28)
    # queries 4 … 6 of 7 tokens see 5 + 6 + 7 of them
    late = mha.causal_half(form(T=3, S=7, **sizes))
    assert next(e.size for e in late if e.kind == "scores") == 2 * 11 * 17 * (5 + 6 + 7)


def test_decode_steps_sum_to_causal_half():
    sizes = {letter: size for letter, size in SIZES.items() if letter not in "TS"}
    for form in FORMS.values():
        steps = sum(form.layer("", T=1, S=n + 1, n=n, **sizes).macs for n in range(7))
        assert steps == mha.causal_half(form.layer("", T=7, S=7, **sizes)).macs


def test_activated_percent():
    """A layer of 4 heads with 3 on, and one of 8 wider heads with 2 on, repeated 3 times."""

    def forms(moh_form):
        common = dict(B=1, T=7, S=7)
        first = FORMS[moh_form].layer("a", d_m=13, h=4, s=1, r=2, d_h=5, g=4, **common)
        second = FORMS[moh_form].layer("b.*", d_m=13, h=8, s=1, r=1, d_h=17, g=8, **common)
        return first + second.repeat(3)

    released, ideal = forms("released"), forms("ideal")
    assert moh.activated_percent(released, ideal) == Fraction(100 * (3 + 3 * 2), 4 + 3 * 8)
    small, large = (2 * 7 * 13 * d + 2 * 7 * 7 * d for d in (5, 17))
    work = Fraction(100 * (3 * small + 3 * 2 * large), 4 * small + 3 * 8 * large)
    assert moh.activated_macs_percent(released, ideal) == work
    assert moh.activated_percent(released, released) == moh.activated_macs_percent(released, released) == 100


def test_stack_merges_equal_neighbours():
    def block(path, mixer):
        return ledger(Entry(path, "linear", {"T": mixer[0]}, weight={"F": mixer[0]}))

    a, b = [3], [5]
    runs = stack("blocks", [a, a, b, a], block)
    assert [(e.path, e.times, e.params) for e in runs] == [("blocks.0-1", 2, 6), ("blocks.2", 1, 5), ("blocks.3", 1, 3)]
    assert [e.path for e in runs.at_layers()] == [f"blocks.{i}" for i in range(4)]
    assert [e.macs for e in runs.at_layers()] == [3, 3, 5, 3]
    assert [e.path for e in stack("blocks", [a, a], block)] == ["blocks.*"]
    inner = stack("", [a, a, b], lambda path, mixer: block(f"{path}.x", mixer))
    assert [e.path for e in inner.at_layers()] == ["0.x", "1.x", "2.x"]
