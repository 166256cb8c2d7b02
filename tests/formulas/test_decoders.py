"""Parameters and MACs of dense decoders and of DeepSeek's mixtures, by hand."""

from functools import partial

import pytest

from headcount.bench.case import Case
from headcount.formulas import decoder, mha
from headcount.models.configs.presets import PRESETS, preset

B, T, L, d, F, V, P, h, d_h = 2, 7, 3, 13, 17, 29, 11, 5, 3
PLAIN = {"bias": False, "gated": False, "tied": True, "parallel": False, "positions": "rotary"}
MATRICES = 4 * d * h * d_h + 2 * d * F


def test_relative_positions():
    mixer = partial(mha.layer, h=h, d_h=d_h, g=h, d_m=d, bias=False)
    sizes = {"B": B, "T": T, "d_m": d, "F": F, "V": V, "P": P, "h": h, "d_h": d_h}
    form = decoder.model([mixer] * L, **sizes, **{**PLAIN, "positions": "relative"})
    # a projection of T positions in each layer
    assert form.macs == B * T * (L * (MATRICES + 2 * h * d_h * T) + d * V) + T * L * d * h * d_h
    assert form.params == L * (MATRICES + d * h * d_h + 2 * d) + d + V * d


@pytest.mark.parametrize(
    "name, params",
    [
        # 12 L d^2 + 13 L d + 2 d + (V + T) d
        ("gpt3-175b", 12 * 96 * 12288**2 + (13 * 96 + 2 + 50257 + 2048) * 12288),
        ("megatron-1t", 12 * 128 * 25600**2 + (13 * 128 + 2 + 51200 + 2048) * 25600),
        ("llama3-405b", 126 * 16384 * (2 * 16384 + 2 * 1024 + 3 * 53248 + 2) + (2 * 128256 + 1) * 16384),
    ],
)
def test_preset_params(name, params):
    assert Case.of(name).ledger.params == params


def test_relative_positions_are_closed_form_only():
    assert [name for name in PRESETS if preset(name).module is None] == ["chinchilla-70b"]
