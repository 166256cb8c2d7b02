"""Keywords that only **kwargs of a forward takes: an option that is misspelt is refused, an input is not."""

from inspect import Parameter, signature
from typing import TypedDict, Unpack

import pytest
import torch
from torch import nn

import headcount as hc
from headcount.bench.api.count import OPTIONS
from headcount.bench.counting.other_tools import ARGUMENTS

B, D, H = 3, 5, 7
MACS = B * D * H
X = torch.ones(B, D)
PEAK = "H100 SXM"


class Typed(TypedDict, total=False):
    output_attentions: bool


class Loose(nn.Module):
    """Takes any keyword, as models of transformers do."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner or nn.Linear(D, H)
        self.seen = []

    def forward(self, x, flag=False, **kwargs: Unpack[Typed]):
        """Project.

        Args:
            use_cache (`bool`, *optional*):
                Keep what was computed.
        """
        if kwargs and isinstance(self.inner, Loose):
            return self.inner(x, **kwargs)
        return self.inner(x)


class Bare(Loose):
    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


def calls(name, value=8):
    """Yield the ways to give a keyword to a module."""
    keyword = {name: value}
    yield lambda model: hc.count(model, X, **keyword)
    yield lambda model: hc.summary(model, X, **keyword)
    yield lambda model: hc.MFU(model, X, sample_tokens=B, peak=PEAK, **keyword)
    yield lambda model: hc.assert_macs(model, X, expected=MACS, **keyword)


def misspelt():
    names = {*OPTIONS, *(one for one in signature(hc.MFU).parameters if one not in ("self", "model", "sample"))}
    names -= {"forward", "peak"}
    taken = {*OPTIONS, *signature(hc.MFU).parameters, *signature(hc.summary).parameters}
    return sorted({f"{name}s" for name in names} | {name[:-1] for name in names} - taken)


OTHERS = sorted(ARGUMENTS.keys() - signature(hc.summary).parameters.keys() - {"mode", "cache_forward_pass"})


@pytest.mark.parametrize("name", OTHERS)
def test_options_of_other_tools_are_refused(name):
    for way, call in enumerate(calls(name)):
        with pytest.raises(TypeError, match=rf"takes no {name}\b") as error:
            call(Loose())
        assert "\n" not in str(error.value), way


@pytest.mark.parametrize("name", misspelt())
def test_misspelt_options_are_refused(name):
    for call in list(calls(name))[:3]:
        with pytest.raises(TypeError, match=rf"takes no {name}\b"):
            call(Loose())


@pytest.mark.parametrize("call, meant", [
    (lambda: hc.MFU(Loose(), X, peak=PEAK, num_devices=8), "did you mean devices?"),
    (lambda: hc.MFU(Loose(), X, peak=PEAK, device=8), "did you mean devices?"),
    (lambda: hc.MFU(Loose(), X, peak=PEAK, activ_params=8), "did you mean active_params"),
    (lambda: hc.count(Loose(), X, backwards=True), "did you mean backward"),
    (lambda: hc.summary(Loose(), X, colnames=["num_params"]), "did you mean col_names?"),
    (lambda: hc.summary(Loose(), X, dtype=torch.float16), "dtypes"),
    (lambda: hc.summary(Loose(), X, device="cuda"), "model.to(device)"),
    (lambda: hc.assert_macs(Loose(), X, expected=MACS, tolerance=0.01), "'1.8G'"),
    (lambda: hc.count(lambda x, **kwargs: Loose()(x), X, backwards=True), "did you mean backward"),
    (lambda: hc.count(Loose(), X, foo=1), "kwargs={'foo': …}"),
])  # fmt: skip
def test_refusal_names_what_is_meant(call, meant):
    with pytest.raises(TypeError) as error:
        call()
    assert meant in str(error.value)


@pytest.mark.parametrize("given", [
    {"flag": True}, {"output_attentions": True}, {"use_cache": False}, {"mask": X}, {"batch": {"ids": [X]}},
    {"kwargs": {"foo": 1, "device": "cuda"}}, {"device": None}, {"dtype": None, "batch_size": None},
])  # fmt: skip
def test_inputs_and_named_keywords_are_taken(given):
    assert hc.count(Loose(), X, **given).macs == MACS
    assert hc.summary(Loose(), X, **given).macs == MACS


def test_wrappers_take_what_the_module_inside_names():
    assert hc.count(Bare(Loose()), X, use_cache=False, flag=True).macs == MACS
    with pytest.raises(TypeError, match="takes no foo"):
        hc.count(Bare(Loose()), X, foo=True)


def test_functions_pass_on_what_is_no_option():
    def generate(x, **kwargs):
        assert kwargs == {"max_new_tokens": 2}
        return X @ X.T

    assert hc.count(generate, X, max_new_tokens=2).macs == B * D * B


def test_options_that_are_none_are_absent_everywhere():
    assert hc.count(nn.Linear(D, H), X, device=None).macs == MACS
    assert hc.count(lambda x: x @ x.T, X, device=None).macs == B * D * B


@pytest.mark.parametrize("make", ["BertModel", "GPT2Model", "LlamaForCausalLM"])
def test_keywords_of_transformers(make):
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    kind = getattr(transformers, make)
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "bos_token_id": 0, "eos_token_id": 0}
    model = kind(kind.config_class(**sizes))
    ids = torch.zeros(1, 4, dtype=torch.long)
    plain = hc.count(model, ids).macs
    forward = signature(kind.forward).parameters
    assert any(one.kind is Parameter.VAR_KEYWORD for one in forward.values())
    for name in ("use_cache", "output_hidden_states", "return_dict"):
        assert hc.count(model, ids, **{name: False}).macs == plain
    for name in OTHERS:
        with pytest.raises(TypeError, match=rf"takes no {name}\b"):
            hc.count(model, ids, **{name: 8})
