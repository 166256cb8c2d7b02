"""count_macs and assert_macs as a user's test calls them."""

import pytest
import torch
from torch import nn

from headcount.bench.contractions.count import UNKNOWN, UncountedError, contraction_parts
from headcount.bench.count import assert_macs, count_macs
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x, *, scale=1.0):
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(scale * q @ k.mT, -1) @ v


X = torch.ones(2, 7, 5)
FORM = "3*B*T*d^2 + 2*B*T**2*d"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_module_matches_closed_form(device):
    model = Attention(5).to(device)
    assert count_macs(model, X.to(device)).macs == 3 * 2 * 7 * 5 * 5 + 2 * 2 * 7 * 7 * 5
    assert_macs(model, X.to(device), expected=FORM, B=2, T=7, d=5)
    assert_macs(model, kwargs={"x": X.to(device), "scale": 2.0}, expected=2030)
    assert_macs(model, X.to(device), expected=f"3 * ({FORM})", B=2, T=7, d=5, backward=True)


def test_wrong_form_lists_products():
    with pytest.raises(AssertionError) as raised:
        assert_macs(Attention(5), X, expected="3*B*T*d**2 + B*T**2*d", B=2, T=7, d=5)
    assert str(raised.value).splitlines() == [
        "2,030 multiply-accumulates, expected 1,540 = 3*B*T*d**2 + B*T**2*d (+490)",
        "            1,050  qkv  linear  1 x m=14 i=5 j=15",
        "              490  (model)  scores  1 x b=2 m=7 i=5 j=7",
        "              490  (model)  values  1 x b=2 m=7 i=7 j=5",
    ]


def test_unsupported_operator_raises():
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).abs()

    with pytest.raises(UncountedError, match=r"_fft_r2c on 2x7x5 \(in the model\)"):
        count_macs(Spectrum(), X)
    with pytest.raises(UncountedError, match=r"_fft_r2c on 2x7x5 \(in 0\)"):
        count_macs(nn.Sequential(Spectrum()), X)
    assert count_macs(Spectrum(), X, allow_uncounted=True).uncounted
    assert_macs(Spectrum(), X, expected="B", B=2, formulas={"_fft_r2c": lambda event: event.args[0].shape[0]})


def test_right_parts_raise_for_unsupported():
    trace = record(module(lambda x: torch.fft.rfft(x).real), (torch.zeros(7, 11),))
    with pytest.raises(UncountedError, match=r"_fft_r2c on 7x11 \(in the model\)") as found:
        contraction_parts(trace)
    assert [(line.state, line.calls) for line in found.value.uncounted] == [(UNKNOWN, 1)]


def test_operator_with_contractions_attribute(monkeypatch):
    with torch.library._scoped_library("shelf", "DEF") as library:
        library.define("mix(Tensor a, Tensor b) -> Tensor")
        library.impl("mix", lambda a, b: a.new_empty(a.shape[0]), "CompositeExplicitAutograd")
        mixed = module(lambda a, b: torch.ops.shelf.mix(a, b))
        monkeypatch.setattr(
            torch.ops.shelf.mix, "contractions", lambda a, b: [("linear", {"m": a.shape[0], "i": b.shape[1]}, (1,))],
            raising=False,
        )  # fmt: skip
        assert count_macs(mixed, torch.ones(7, 5), torch.ones(3, 11)).by_kind() == {"linear": 7 * 11}
