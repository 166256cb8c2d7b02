"""What each form lists, typed here: every operation by module path, kind, letters of its size, letters of its weight.

Sums cannot tell two letters of the same size apart, or two paths whose operations are as large. Letters are legend
letters; a frozen parameter is in brackets."""

import pytest

from headcount.formulas import mae, mha, moa, moh, moh_ideal
from tests.formulas.operations import (
    ATTENTION,
    ROTARY,
    SIZES,
    check,
    lines,
    operations,
)


def test_grouped_multi_head_attention():
    check(mha.layer("a", **SIZES, h=6, d_h=5, g=2, bias=False), ATTENTION.format("a", 1))
    check(mha.layer("a", **SIZES, h=6, d_h=5, g=2, bias=False, rotary=True), ROTARY.format("a", 1))
    biased = ATTENTION.format("a", 1)
    for name, sizes in (("q_proj", "B T h d_h"), ("k_proj", "B S g d_h"), ("v_proj", "B S g d_h"), ("out_proj", "")):
        line = next(line for line in biased.splitlines() if f"a.{name}" in line)
        bias = f"a.{name} bias {sizes} | {sizes[4:]} x1" if sizes else "a.out_proj bias B T d_m | d_m x1"
        biased = biased.replace(line, f"{line}\n{bias}")
    check(mha.layer("a", **SIZES, h=6, d_h=5, g=2), biased)


MOA = """
    a.router.proj linear B T d_m E | d_m E x1
    a.router.noise_proj linear B T d_m E | d_m E x1
    a.router softmax B T E x1
    a.q_proj expert_linear B T K d_m D | E d_m D x1
    a.q_proj expert_bias B T K D | E D x1
    a.k_proj linear B S d_m D | d_m D x1
    a.k_proj bias B S D | D x1
    a.v_proj linear B S d_m D | d_m D x1
    a.v_proj bias B S D | D x1
    a scores B K T S D x1
    a softmax B K T S x1
    a values B K T S D x1
    a elementwise B T K D x1
    a.out_proj expert_linear B T K D d_m | E D d_m x1
    a.out_proj expert_bias B T K d_m | E d_m x1
"""


def without(text, *words):
    return "\n".join(line for line in text.splitlines() if not any(word in line for word in words))


@pytest.mark.parametrize("path", ["a", ""], ids=["named", "root"])
def test_mixture_of_attention_heads(path):
    expected = MOA if path else MOA.replace("    a.", "    ").replace("    a ", "    . ")
    form = {"E": 11, "K": 3, "D": 5}
    check(moa.layer(path, **SIZES, **form, bias=True, noisy=True), expected)
    check(moa.layer(path, **SIZES, **form), without(expected, "bias", "noise"))
    own = path or "."
    turned = f"    {own} rope B T K D x1\n    {own} rope B S D x1\n    {own} scores"
    check(
        moa.layer(path, **SIZES, **form, bias=True, noisy=True, rotary=True),
        expected.replace(f"    {own} scores", turned),
    )


MOH = """
    a.q_proj {q} B T d_m {rows} d_h | d_m h d_h x1
    a.q_proj {qb} B T {rows} d_h | h d_h x1
    a.router.routed_proj linear B T d_m E | d_m E x1
    a.router softmax B T E x1
    a.router.shared_proj linear B T d_m s | d_m s x1
    a.router softmax B T s x1
    a.router.group_proj linear B T d_m 2 | d_m 2 x1
    a.router softmax B T 2 x1
    a.k_proj linear B S d_m g d_h | d_m g d_h x1
    a.k_proj bias B S g d_h | g d_h x1
    a.v_proj linear B S d_m g d_h | d_m g d_h x1
    a.v_proj bias B S g d_h | g d_h x1
    a rope B T {heads} d_h x1
    a rope B S g d_h x1
    a scores B {heads} T S d_h x1
    a softmax B {heads} T S x1
    a values B {heads} T S d_h x1
    a elementwise B T {heads} d_h x1
    a.out_proj {out} B T {heads} d_h d_m | h d_h d_m x1
    a.out_proj {outb} B T d_m | d_m x1
"""

DENSE = {"q": "linear", "qb": "bias", "out": "linear", "outb": "bias", "rows": "h", "heads": "h"}

IDEAL = {"q": "expert_linear", "qb": "expert_bias", "out": "expert_linear", "outb": "expert_bias"}

IDEAL |= {"rows": "k", "heads": "k"}


@pytest.mark.parametrize("form, words", [(moh, DENSE), (moh_ideal, IDEAL)], ids=["released", "ideal"])
def test_mixture_of_head_attention(form, words):
    sizes = SIZES | {"h": 6, "s": 2, "r": 3, "d_h": 5, "g": 2}
    expected = MOH.format(**words)
    check(form.layer("a", **sizes, bias=True, rotary=True), expected)
    check(form.layer("a", **sizes), without(expected, "bias", "rope"))
    by_norm = MOH.format(**words | {"q": "linear", "qb": "bias", "rows": "h"})
    norm = "    a.router elementwise B T E d_h x1\n    a.router softmax B T E x1\n    a.k_proj linear"
    by_norm = without(by_norm, "router").replace("    a.k_proj linear", norm)
    check(form.layer("a", **sizes, bias=True, rotary=True, router="query_norm"), by_norm)


@pytest.mark.parametrize(
    "s, r, matrices",
    [
        (2, 3, ["routed", "shared", "group"]),
        (1, 3, ["routed", "group"]),
        (0, 3, ["routed"]),
        (6, 0, ["shared"]),
        (1, 0, []),
    ],
)
def test_a_router_has_the_matrices_that_choose_between_several(s, r, matrices):
    form = moh.layer("a", **SIZES, h=6, s=s, r=r, d_h=5, g=2)
    assert [e.path for e in form if "router" in e.path and e.weight] == [f"a.router.{m}_proj" for m in matrices]
    assert len([e for e in form if e.path == "a.router"]) == len(matrices)
    by_norm = moh.layer("a", **SIZES, h=6, s=s, r=r, d_h=5, g=2, router="query_norm")
    assert [e.kind for e in by_norm if "router" in e.path] == (["elementwise", "softmax"] if r else [])


CACHE = """
    a cache B S {0} x1
    a cache_write B S {0} x1
    a cache_read B S {0} x1
"""


def test_a_decode_step_stands_at_the_path_of_its_layer():
    sizes = {"d_m": 15, "h": 6, "d_h": 5, "g": 2, "bias": False}
    check(mha.layer("a", B=2, T=1, S=8, n=7, **sizes), ATTENTION.format("a", 1) + CACHE.format("2 g d_h"))
    check(
        moa.layer("a", B=2, T=1, S=8, n=7, d_m=15, E=11, K=3, D=5), without(MOA, "bias", "noise") + CACHE.format("2 D")
    )
    step = moh.layer("a", B=2, T=1, S=8, n=7, s=2, r=3, **sizes)
    check(step, without(MOH.format(**DENSE), "bias", "rope") + CACHE.format("2 g d_h"))
    ideal = moh_ideal.layer("a", B=2, T=1, S=8, n=7, s=2, r=3, **sizes)
    check(ideal, without(MOH.format(**IDEAL), "bias", "rope") + CACHE.format("2 g d_h"))
    assert {(entry.dims.get("T", 1), entry.dims.get("S", 8)) for entry in step} == {(1, 8), (1, 1)}


def test_mixture_of_attentive_experts():
    gate = """
        a.gate.fc1 linear B d_m G | d_m G x1
        a.gate.fc1 bias B G | G x1
        a.gate elementwise B G x1
        a.gate.fc2 linear B G h | G h x1
        a.gate.fc2 bias B h | h x1
        a.gate softmax B h x1
    """
    heads = ATTENTION.format("a", 1) + " a elementwise B T h d_h x1"
    form = mae.layer("a", **SIZES, h=3, d_h=5, G=11, bias=False)
    check(form, without(gate, "bias") + heads)
    assert [line for line in operations(mae.layer("a", **SIZES, h=3, d_h=5, G=11)) if "gate" in line] == [
        line for line in lines(gate) if line
    ]
