"""MLA's two closed forms against sums written out here, as integers and as symbols, and against each other."""

import pytest
import sympy

from headcount.formulas import mla, mla_ideal

SYMBOLS = {
    letter: sympy.Symbol(letter, positive=True, integer=True)
    for letter in ("B", "T", "S", "d_m", "h", "d_h", "d_r", "d_v", "d_c", "d_q")
}
SIZES = dict(B=2, T=7, S=5, d_m=13, h=11, d_h=17, d_r=3, d_v=19, d_c=23, d_q=29)
FORMS = {"released": mla.layer, "ideal": mla_ideal.layer}
every_form = pytest.mark.parametrize("form", FORMS)


def by_path(form, of="macs"):
    return {path: size for path, size in form.group(lambda entry: entry.path, of).items() if size}


def test_macs_match_docstrings():
    B, T, S, d_m, h, d_h, d_r, d_v, d_c, d_q = SYMBOLS.values()
    both = B * T * d_q * (d_m + h * (d_h + d_r)) + B * S * d_m * (d_c + d_r) + B * T * h * d_v * d_m
    released = both + B * S * d_c * h * (d_h + d_v) + B * h * T * S * (d_h + d_r + d_v)
    ideal = both + B * T * h * d_c * (d_h + d_v) + B * h * T * S * (2 * d_c + d_r)
    assert sympy.expand(mla.layer("", **SYMBOLS).macs - released) == 0
    assert sympy.expand(mla_ideal.layer("", **SYMBOLS).macs - ideal) == 0


def test_absorbed_projections_at_the_papers_sizes():
    """DeepSeek-V2's sizes, 4096 tokens stored: absorbed for one query, not for the whole sequence."""
    sizes = dict(B=1, d_m=5120, h=128, d_h=128, d_r=64, d_v=128, d_c=512, d_q=1536)
    step, whole = dict(T=1, S=4096, n=4095), dict(T=4096, S=4096)
    assert mla_ideal.layer("", **sizes, **step).macs < mla.layer("", **sizes, **step).macs / 40
    assert mla_ideal.layer("", **sizes, **whole).macs > mla.layer("", **sizes, **whole).macs
    stored = [entry.dims for entry in mla.layer("", **sizes, **step) if entry.kind == "cache"]
    elements = sum(sympy.prod(dims.values()) for dims in stored)
    assert elements == 4096 * (512 + 64)


@every_form
def test_step_projects_new_tokens_only(form):
    step = by_path(FORMS[form]("", **SIZES | dict(T=1, S=31), n=30))
    assert (step["kv_down_proj"], step["k_rotary_proj"]) == (2 * 13 * 23, 2 * 13 * 3)
    assert step["k_proj"] == 2 * (1 if form == "ideal" else 31) * 23 * 11 * 17


@every_form
def test_rotary_sizes(form):
    ropes = [entry.size for entry in FORMS[form]("", **SIZES, n=2, rotary=True) if entry.kind == "rope"]
    assert ropes == [2 * 7 * 11 * 3, 2 * 3 * 3]
    assert not [entry for entry in FORMS[form]("", **SIZES) if entry.kind == "rope"]


@every_form
def test_norm_sizes(form):
    sizes = {entry.path: entry.size for entry in FORMS[form]("", **SIZES, n=2) if entry.kind == "rms_norm"}
    assert sizes == {"q_norm": 2 * 7 * 29, "kv_norm": 2 * 3 * 23}
