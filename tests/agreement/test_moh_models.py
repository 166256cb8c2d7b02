"""Closed forms of the language and the diffusion model against sums written out here."""

import pytest

from headcount.bench.case import ideal_form, ledger_of, resolve_lengths
from headcount.formulas import dit, llama, mha, moh
from headcount.models.configs.presets import preset


def gqa(path, **sizes):
    return mha.layer(path, d_m=13, h=6, d_h=4, g=2, bias=False, **sizes)


def test_llama():
    b, t, d, f, v = 2, 7, 13, 17, 29
    form = llama.model([gqa] * 3, B=b, T=t, d_m=d, F=f, V=v)
    attention = b * t * d * (2 * 6 * 4 + 2 * 2 * 4) + 2 * b * 6 * t * t * 4
    assert form.macs == 3 * (attention + 3 * b * t * d * f) + b * t * d * v
    assert form.params == 2 * v * d + d + 3 * (d * (2 * 6 * 4 + 2 * 2 * 4) + 3 * d * f + 2 * d)
    sizes = form.group(lambda e: e.kind, "size")
    assert sizes["rms_norm"] == (3 * 2 + 1) * b * t * d
    assert sizes["rope"] == 3 * b * t * (6 + 2) * 4
    assert sizes["elementwise"] == 3 * b * t * (f + 2 * d)
    assert not any("bias" in e.kind for e in form)


def test_dit():
    b, t, d, f, p, c, w, y = 2, 25, 15, 19, 3, 4, 22, 8

    def attention(path, *, B, T, S):
        return mha.layer(path, B=B, T=T, S=S, d_m=d, h=3, d_h=4, g=3)

    form = dit.model([attention] * 3, B=b, T=t, d_m=d, F=f, p=p, C_in=c, C_out=2 * c, d_t=w, N_y=y)
    block = b * t * (4 * d * 12 + 2 * d * f) + 2 * b * 3 * t * t * 4 + 6 * b * d * d
    ends = b * t * d * p * p * (c + 2 * c) + b * d * (w + d) + 2 * b * d * d
    assert form.macs == 3 * block + ends
    weights = 4 * d * 12 + 3 * 12 + d + 2 * d * f + f + d + 6 * d * d + 6 * d
    patches = p * p * c * d + d + d * p * p * 2 * c + p * p * 2 * c
    conditions = w * d + d + d * d + d + y * d + 2 * d * d + 2 * d
    assert form.params == 3 * weights + patches + conditions + t * d
    assert form.frozen_params == t * d
    sizes = form.group(lambda e: e.kind, "size")
    assert not any(e.weight for e in form if e.kind == "norm")
    # per block two modulations and two gated residuals of two operations each; table, label, final modulation
    assert sizes["elementwise"] == 3 * 8 * b * t * d + b * t * d + b * d + 2 * b * t * d


@pytest.mark.parametrize(
    "name, heads",  # of all heads of all layers, from the table of s and r per layer
    [
        ("moh-dit-s2-90", 8 * 5 + 4 * 6),
        ("moh-dit-s2-75", 2 * 3 + 4 * 4 + 4 * 5 + 2 * 6),
        ("moh-dit-b2-90", 5 * 10 + 5 * 11 + 2 * 12),
        ("moh-dit-b2-75", 2 * 6 + 8 * 9 + 2 * 12),
        ("moh-dit-l2-90", 8 * 8 + 8 * 16 + 8 * 19),
        ("moh-dit-l2-75", 8 * 8 + 8 * 12 + 8 * 16),
        ("moh-dit-xl2-90", 9 * 8 + 10 * 16 + 9 * 19),
        ("moh-dit-xl2-75", 9 * 8 + 10 * 12 + 9 * 16),
        ("moh-llm-s-75", 12 * 9),
        ("moh-llm-b-50", 24 * 8),
        ("moh-llama3-8b", 32 * 24),
    ],
)
def test_active_heads_and_params_of_presets(name, heads):
    config = preset(name)
    lengths = resolve_lengths(config, {})
    released, ideal = ledger_of(config, lengths), ledger_of(ideal_form(config), lengths)
    total = sum(layer.num_heads for layer in config.layers)
    assert moh.activated_percent(released, ideal) * total == 100 * heads
    one = config.layers[0]
    rows = 1 if one.router == "query_norm" else 2
    unused = (total - heads) * one.head_dim * (rows * config.d_model + one.bias)
    assert ideal.params - ideal.active_params == unused
    assert ideal.params == released.params == released.active_params
    # every head costs the same here, so weighing by work changes nothing
    assert moh.activated_macs_percent(released, ideal) == moh.activated_percent(released, ideal)
    assert sum(moh.skipped(released, ideal).values()) == released.macs - ideal.macs
