"""Modules and inputs that hc.count, hc.assert_macs and hc.lock accept."""

import copy
import inspect
import json
import pickle
import re
from collections import UserDict
from fractions import Fraction
from functools import partial

import numpy
import pytest
import torch
from torch import nn

import headcount as hc
from headcount.__main__ import main
from headcount.bench.case import Case
from headcount.bench.counting.other_tools import ARGUMENTS, ATTRIBUTES, ELSEWHERE
from headcount.bench.errors import UsageError
from headcount.models.configs.base import ConfigError
from headcount.models.configs.targets import read

B, D, H = 3, 5, 7
MACS = B * D * H
X = torch.ones(B, D)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(D, H)

    def forward(self, x, mask=None, *, backward=False):
        return self.proj(x) if mask is None else self.proj(x) @ mask

    def encode(self, x):
        return self.proj(self.proj(x) @ torch.ones(H, D))


class Pair(nn.Module):
    def forward(self, pair):
        return pair[0] @ pair[1] if isinstance(pair, tuple) else pair["a"] @ pair["b"]


def make(d=D):
    return nn.Linear(d, H), (torch.ones(B, d),)


@pytest.mark.parametrize(
    "inputs, keywords, macs",
    [
        pytest.param((), {"x": X}, MACS, id="keyword"),
        pytest.param((X,), {"kwargs": {"backward": True}}, MACS, id="keyword-of-an-option"),
        pytest.param(({"x": X},), {}, MACS, id="mapping"),
        pytest.param((UserDict(x=X),), {"mask": torch.ones(H, 2)}, MACS + B * H * 2, id="batch-encoding"),
        pytest.param(((X, torch.ones(H, 2)),), {}, MACS + B * H * 2, id="tuple"),
        pytest.param((), {"input_size": (B, D)}, MACS, id="size"),
        pytest.param((), {"input_size": [(B, D), (H, 2)]}, MACS + B * H * 2, id="sizes"),
        pytest.param(((B, D),), {}, MACS, id="size-alone"),
        pytest.param(([(B, D), (H, 2)],), {}, MACS + B * H * 2, id="sizes-alone"),
    ],
)
def test_inputs_by_name_or_size(inputs, keywords, macs):
    assert hc.count(Net(), *inputs, **keywords).macs == macs
    hc.assert_macs(Net(), *inputs, expected=macs, **keywords)
    assert hc.lock(Net(), *inputs, **keywords).macs == macs


def test_sizes_have_types():
    model = nn.Sequential(nn.Embedding(E := 11, D), nn.Linear(D, H)).bfloat16()
    assert hc.count(model, input_size=(B, 2), dtypes=[torch.long]).macs == 2 * MACS
    # integers where an embedding comes first
    assert hc.count(model, input_size=(B, 2)).macs == hc.count(model, (B, 2)).macs == 2 * MACS
    assert hc.count(model[1], input_size=torch.Size([E, D])).modules[0].output == f"{E}x{H}"


def test_sizes_behind_each_other_are_those_of_several_inputs():
    model = nn.Bilinear(8, 6, 5, bias=False)
    assert hc.count(model, (2, 8), (2, 6)) == hc.count(model, [(2, 8), (2, 6)])
    assert hc.count(model, (2, 8), (2, 6)).params == 5 * 8 * 6


@pytest.mark.parametrize("name", ["moa:K=2,E=4,D=8,d_m=16,T=7", "moa,K=2,E=4,D=8,d_m=16,T=7", "moa:K=2,E=4,d_m=16"])
def test_sizes_of_a_name_may_be_keywords(name):
    found = hc.count(name, **{} if "T=" in name else {"D": 8, "seq_len": 7})
    router, shared, chosen, scores = 7 * 16 * 4, 2 * 7 * 16 * 8, 2 * 7 * 2 * 16 * 8, 2 * 2 * 7 * 7 * 8
    assert found.macs == router + shared + chosen + scores
    with pytest.raises(ConfigError, match="unknown field 'size'"):
        hc.count("llama3-8b", size=7)


def test_sizes_beside_a_tensor_are_data():
    class Resize(nn.Module):
        def forward(self, x, size):
            return x.new_ones(size) @ x

    assert hc.count(Resize(), torch.ones(4, H), (B, 4)).macs == B * 4 * H


def test_habits_of_torchinfo():
    model = Net()
    found = hc.summary(model, (B, D), depth=1, verbose=0)
    assert (
        str(found) == str(hc.summary(model, input_data=X, depth=1)) == str(hc.summary(model, input_data=[X], depth=1))
    )
    with pytest.raises(TypeError, match=r"^Net takes x, mask, backward: give tensors, or sizes, as hc.count\(model, "):
        hc.count(model)


class Device(nn.Module):
    def forward(self, x, device=None, **more):
        return x @ x.T


def run(x, scale=1):
    return x @ x.T * scale


@pytest.mark.parametrize("name", [*ARGUMENTS, "traning", "bakward", "scal"])
@pytest.mark.parametrize("call", [hc.count, hc.summary, hc.lock, partial(hc.assert_macs, expected="1")])
def test_argument_of_another_tool_is_one_line(name, call):
    if call is hc.summary and name in (*inspect.signature(hc.summary).parameters, "mode", "cache_forward_pass"):
        # it has these itself
        call = hc.count
    value = "meta" if name == "device" else ["x"]
    for model in (Net(), run):
        with pytest.raises(TypeError, match="takes no") as caught:
            call(model, X, **{name: value})
        text = str(caught.value)
        assert name in text and "\n" not in text and len(text) < 200
        assert name not in ARGUMENTS or ARGUMENTS[name] in text
        assert name not in ("traning", "bakward") or "did you mean" in text
    # a module may have such an argument itself
    assert hc.count(Device(), X, device="cpu", kwargs={} if name == "device" else {name: 3}) is not None


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attribute_of_another_tool_has_ours(name):
    counted, parameters = hc.count(Net(), X), hc.summary(Net())
    for found in (counted, parameters):
        with pytest.raises(AttributeError) as caught:
            getattr(found, name)
        text = str(caught.value)
        assert text.endswith(f"has .{ATTRIBUTES[name]}") and "\n" not in text
        # what it names is there
        owner = {"; it has .": found, "; what hc.count(model, x) returns has .": counted}
        owner = next(one for words, one in owner.items() if words in text)
        if name == "plot":
            pytest.importorskip("matplotlib", reason="the optional extra report is not installed").use("agg")
        assert eval(f"found.{ATTRIBUTES[name].replace(' - .', ' - found.')}", {"found": owner}) is not None


@pytest.mark.parametrize("name", ELSEWHERE)
def test_attribute_that_another_command_has_names_it(name):
    with pytest.raises(AttributeError) as caught:
        getattr(hc.count(Net(), X), name)
    assert str(caught.value) == f"Count has no attribute {name!r}; {ELSEWHERE[name]}"


def test_misspelled_attribute_has_the_nearest():
    counted = hc.count(Net(), X)
    with pytest.raises(AttributeError, match="did you mean params"):
        counted.parms  # noqa: B018
    assert not hasattr(counted, "_repr_svg_")
    assert copy.deepcopy(counted) == counted == pickle.loads(pickle.dumps(counted))


def test_failed_run_of_sizes_names_them():
    with pytest.raises(ValueError, match="expected 4D input") as caught:
        hc.count(torch.nn.BatchNorm2d(3), (3, 5, 7))
    assert str(caught.value).endswith(
        "; the inputs were made from sizes, (3, 5, 7) of torch.float32: the first number is the batch, without one "
        "(1, 3, 5, 7) is meant"
    )
    assert type(caught.value.__cause__) is ValueError
    with pytest.raises(ValueError, match="^expected 4D input[^;]*$"):
        hc.count(torch.nn.BatchNorm2d(3), torch.ones(3, 5, 7))
    # of several sizes behind each other too
    with pytest.raises(
        ValueError, match=r"^RuntimeError: .*\(2, 3\) of torch.float32, \(2, 4\) of torch.float32$"
    ) as caught:
        hc.count(nn.Bilinear(3, 5, 7), (2, 3), (2, 4))
    assert "\n" not in str(caught.value) and isinstance(caught.value.__cause__, RuntimeError)


class Gather(nn.Module):
    def forward(self, ids):
        return torch.eye(5)[ids] @ torch.ones(5, 3)


@pytest.mark.parametrize("module, types", [(Gather(), "['int64']"), (nn.Linear(3, 5), None)])
def test_types_are_advised_where_they_make_the_module_run(module, types):
    error = str(_error_of(module, (2, 4)))
    assert error.endswith(f": other types are meant, dtypes={types}") if types else "types are meant" not in error


def test_count_is_no_pair():
    with pytest.raises(TypeError, match="^a Count is no pair: .macs and .params are its numbers$"):
        macs, params = hc.count(Net(), X)


@pytest.mark.parametrize("module, size, batch_is_meant", [
    (nn.BatchNorm2d(3), (3, 5, 7), True), (nn.BatchNorm1d(3), (3,), True), (nn.Conv2d(3, 8, 7), (1, 1, 32, 32), False),
    (nn.Linear(3, 5), (2, 4), False), (nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), (3, 4), True),
])  # fmt: skip
def test_batch_is_advised_where_it_makes_the_module_run(module, size, batch_is_meant):
    module.eval()
    error = _error_of(module, size)
    assert ("the first number is the batch" in str(error)) == batch_is_meant
    # the whole reason of torch
    assert str(error.__cause__).splitlines()[0].rstrip(".") in str(error)


def _error_of(model, *inputs):
    with pytest.raises(Exception, match=".") as caught:  # noqa: B017
        hc.count(model, *inputs)
    return caught.value


@pytest.mark.parametrize("inputs", [(numpy.ones((B, D)),), (X, numpy.ones(3)), ({"x": numpy.ones((B, D))},)])
def test_array_is_one_line(inputs):
    error = _error_of(Net(), *inputs)
    assert isinstance(error, TypeError) and error.__suppress_context__
    assert re.fullmatch(r"an input is an array, ndarray: .*; torch.from_numpy\(x\) makes a tensor", str(error))
    # a function may take one
    assert hc.count(lambda x: torch.from_numpy(x) @ torch.ones(5, 7), numpy.ones((3, 5), "float32")).macs == 105


@pytest.mark.parametrize("options", [
    {"col_names": ["input_size", "mult_adds"], "col_width": 16, "row_settings": ["var_names"], "verbose": 0},
    {"device": "cpu"}, {"device": torch.device("cpu"), "depth": 3, "dtypes": [torch.float32]},
])  # fmt: skip
def test_line_of_torchinfo_runs(options):
    assert str(hc.summary(Net(), input_size=(B, D), **options)) == str(hc.summary(Net(), X))
    with pytest.raises(TypeError, match="^Net takes no device; the model runs where its weights are"):
        hc.summary(Net(), input_size=(B, D), **{**options, "device": "cuda:1"})
    assert isinstance(hc.summary(nn.Linear(3, 5), device="cpu", col_width=3), type(hc.summary(nn.Linear(3, 5))))


def test_count_is_no_number():
    found = hc.count(Net(), X)
    assert f"{found}" == str(found)
    with pytest.raises(TypeError, match="^a Count is no number: format its .macs, .flops or .params with ','$"):
        f"{found:,}"
    assert f"{found.macs:,}" == f"{MACS:,}"


def test_summary_without_inputs_has_parameters():
    shared = torch.nn.Linear(3, 5)
    shared.bias.requires_grad_(False)
    model = torch.nn.Sequential(shared, torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(5, 7)), shared)
    found = hc.summary(model)
    assert (found.params, found.trainable_params) == (3 * 5 + 5 + 5 * 7 + 7, 3 * 5 + 5 * 7 + 7)
    lines = str(found).splitlines()
    assert [line.split()[-1] for line in lines if "Linear" in line] == ["20", "42"] and "MACs: –" in lines[-1]
    with pytest.raises(TypeError, match="takes no device; the model runs"):
        hc.summary(model, torch.ones(2, 3), mode="eval", device="meta")
    with pytest.raises(TypeError, match="give tensors, or sizes"):
        hc.count(model)


LARGE = nn.Linear(2**10, 1730, bias=False), (2**10, 2**10)
"""A product of about the size of a ResNet-18: 2^20 * 1730 = 1,814,036,480 MACs."""


@pytest.mark.parametrize("expected, holds", [
    ("1.8G", True), ("1.81G", True), ("1.814G", True), ("1.8140G", True), ("1.81404G", True), ("1814.0M", True),
    ("2G", True), ("1.8 GMACs", True), ("1.8 GMAC", True), ("1.8B", True), ("1.8e9", True), ("1.814 billion", True),
    ("3.6 GFLOPs", True), ("3.628 GFLOPs", True), ("1814036480", True), ("1,814,036,480", True), (1814036480, True),
    (1814036480.0, True), ("2**20 * 1730", True), ("1814036480 MACs", True),
    ("1.8g", True), ("1.8 GMult-adds", True), ("1.81 GMAdds", True), ("1.8gmacs", True), ("1.8 Gmultadds", True),
    ("3.6 gflops", True), ("1,814m", True), ("1.9g", False), ("1.9 GMult-Adds", False), ("1.8 gflops", False),
    ("1.7G", False), ("1.80G", False), ("1.9G", False), ("1.82G", False), ("1.815G", False), ("1.8M", False),
    ("1.8T", False), ("1.8 GFLOPs", False), ("3.7 GFLOPs", False), ("1814036481", False), (1814036479, False),
    (1.8e9, False), ("1,814,036,479", False), ("1.81403G", False), ("2**20 * 1731", False), ("1814036479 MACs", False),
])  # fmt: skip
def test_number_with_a_unit_holds_at_its_digits(expected, holds):
    model, size = LARGE
    if holds:
        hc.assert_macs(model.to("meta"), size, expected=expected)
        return
    with pytest.raises(AssertionError, match="^1,814,036,480 multiply-accumulates, expected "):
        hc.assert_macs(model.to("meta"), size, expected=expected)


def test_expected_macs_take_units():
    model = torch.nn.Linear(20, 50), torch.ones(2, 20)
    hc.assert_macs(*model, expected="2k")
    with pytest.raises(AssertionError) as caught:
        hc.assert_macs(*model, expected="2.1k")
    assert str(caught.value).splitlines()[0] == (
        "2,000 multiply-accumulates, expected 2.1k: 2,050 to 2,149 MACs, which are 2.1k rounded half up to its digits; "
        "2,000 MACs are 2.0k"
    )
    with pytest.raises(AssertionError, match=r"^2,000 multiply-accumulates, expected 2,100 = 2100 \(-100\)\n"):
        hc.assert_macs(*model, expected=2100)
    for wrong, named in (("25M params", "is of parameters: give MACs"), ("3%", "is of %"), ("1.5", "1.5"), ("x", "x")):
        with pytest.raises(ValueError, match=named):
            hc.assert_macs(*model, expected=wrong)


@pytest.mark.parametrize("model", ["mha:h=2,d_m=8", "mha,h=2,d_m=8", hc.preset("moa-8K8E128D")], ids=range(3))
def test_expected_macs_of_a_name_are_at_its_length(model):
    macs = {T: hc.count(model, T=T).macs for T in (3, 5)}
    assert macs[3] < macs[5]
    for T, size in macs.items():
        hc.assert_macs(model, expected=f"{size} + 0*T*e", T=T, e=7)
        with pytest.raises(AssertionError):
            hc.assert_macs(model, expected=macs[8 - T], T=T)


def test_configurations_have_names(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    V, d, h, F, B, T = 101, 28, 2, 44, 3, 13
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V, "hidden_size": d,
        "intermediate_size": F, "num_hidden_layers": 1, "num_attention_heads": h, "num_key_value_heads": h,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    macs = B * T * (4 * d * d + 3 * d * F + V * d + 2 * T * d)
    assert hc.count(f"config.json,T={T},B={B}").macs == macs
    # fused attention computes the scores again
    assert hc.summary(f"config.json,T={T},B={B}", backward=True).macs == 3 * macs + B * T * T * d
    for path in ("config.json", tmp_path / "config.json"):
        assert hc.count(path, T=T, B=numpy.int64(B)).macs == macs
        with pytest.raises(ValueError, match="config.json is counted on the inputs that it takes; .* T=128,B=2"):
            hc.count(path, torch.zeros(1, T, dtype=torch.long))


@pytest.mark.parametrize("name", ["moh:h=4,K=2,s=1,d_m=8,T=3", "moh-vit-s-75", "moa-8K8E128D", "mha:h=2,d_m=8,T=3"])
def test_name_has_the_active_parameters_of_its_closed_form(name, tmp_path):
    assert main(["lock", name, "-o", str(tmp_path / "a.lock")]) == 0
    found = hc.lock(name)
    assert found.active_params == Case.of(*read(name)).ledger.active_params is not None
    found.check(tmp_path / "a.lock")


def test_presets_and_layers_have_names():
    form = Case.of("moa-8K8E128D", {}, {"tgt_len": 3, "src_len": 5}).ledger
    before = torch.get_rng_state()
    found = hc.count("moa-8K8E128D,tgt_len=3,src_len=5")
    assert (found.macs, found.params) == (form.macs, form.params)
    assert (
        hc.count("moa:K=2,E=4,D=8,d_m=16,T=7").macs
        == Case.of("moa", {"top_k": 2, "num_experts": 4, "head_dim": 8, "d_model": 16}, {"seq_len": 7}).ledger.macs
    )
    assert torch.equal(before, torch.get_rng_state())
    # of a model that has no module the closed form is counted
    closed = hc.count("chinchilla-70b", T=64)
    assert sum(closed.by_kind().values()) == closed.by_module()[""] == closed.macs == closed.to_dataframe().macs.sum()
    assert sum(closed.own_params.values()) == closed.params == closed.to_dataframe().params.sum()
    tree = str(closed)
    assert f" {closed.params:,} " in tree and f" {closed.macs:,}  100.00" in tree and "(softmax)" not in tree
    for text, word in (
        ("moa-8K", "did you mean"),
        ("net.py:make", "headcount count net.py:make"),
        ("resnet50", "no preset .*'hf:resnet50', a configuration"),
        ("a/b,T=3", "'hf:a/b', "),
    ):
        with pytest.raises(ValueError, match=word):
            hc.count(text)


def test_pair_is_not_unpacked_for_one_parameter():
    pair = (X, torch.ones(D, H))
    assert hc.count(Pair(), pair).macs == hc.count(Pair(), dict(zip("ab", pair, strict=True))).macs == MACS


@pytest.mark.parametrize("function, sizes, macs", [
    (torch.matmul, ((4, 5), (5, 6)), 120), (nn.functional.linear, ((3, 5), (7, 5)), 105),
    (nn.functional.scaled_dot_product_attention, ((2, 5, 4),) * 3, 2 * 2 * 25 * 4),
])  # fmt: skip
def test_sizes_go_with_functions_in_c(function, sizes, macs):
    """Which have no signature, and return no module."""
    assert hc.count(function, *sizes).macs == macs


def test_function_method_and_exported_program():
    assert hc.count(lambda a, b: a @ b, X, torch.ones(D, H)).macs == MACS
    assert hc.count(lambda a, b: a @ b, input_size=[(B, D), (D, H)]).macs == MACS
    encoded = hc.count(Net().encode, X)
    assert (encoded.macs, encoded.params) == (2 * MACS + B * H * D, D * H + H)
    # the row of a function has its name, where a module has its class
    for function in (Net().encode, Net().forward, partial(Net().forward)):
        name = getattr(function, "__name__", "partial")
        assert hc.summary(function, X).modules[0].type == name and hc.count(function, X).label == name
    assert hc.count(make).macs == hc.count(make, d=D).macs == MACS and hc.count(make, d=11).macs == B * 11 * H
    assert hc.count(lambda: nn.Linear(D, H), input_size=(B, D)).macs == MACS
    assert hc.count(lambda: nn.Linear(D, H), (B, D)).macs == hc.count(lambda a, b: a @ b, (B, D), (D, H)).macs == MACS
    with pytest.raises(TypeError, match="^Linear takes input: give tensors"):
        hc.count(lambda: nn.Linear(D, H))
    program = torch.export.export(Net(), (X,))
    assert hc.count(program).macs == hc.count(program, X).macs == MACS
    assert hc.lock(make).parameters == hc.lock(*make()).parameters


@pytest.mark.parametrize(
    "model, what",
    [
        (None, "an object of type NoneType: give an nn.Module, "),
        (nn.Linear, r"the class Linear: call it, Linear\(…\), and"),
        ([Net()], r"an object of type list: count each model by itself, \[hc.count\(one, x\) for"),
        (["llama3-8b", "mistral-7b"], "an object of type list: count each model"),
        (Net().state_dict(), "an object of type OrderedDict: give the module that holds"),
    ],
)
@pytest.mark.parametrize("call", [hc.count, hc.summary, hc.lock, partial(hc.MFU, peak="1T")])
def test_object_that_cannot_run_raises(model, what, call):
    with pytest.raises(TypeError, match=f"^cannot count {what}[^\n]*$"):
        call(model, X)


def test_configuration_of_transformers_is_counted_once_written(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    config = transformers.LlamaConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(TypeError, match="^cannot count an object of type LlamaConfig: [^\n]*$") as caught:
        hc.count(config, T=128)
    monkeypatch.chdir(tmp_path)
    # what the error says to type
    write, count = re.findall(r"\S+\(.*?\)", str(caught.value).partition(": ")[2])
    eval(write, {"config": config})
    assert eval(count, {"hc": hc}).params > 11 * 8


@pytest.mark.parametrize("call", [
    hc.count, hc.summary, hc.lock, partial(hc.assert_macs, expected=MACS), partial(hc.MFU, peak="1T", sample_tokens=B),
])  # fmt: skip
def test_model_may_be_a_keyword(call):
    found = call(model=Net(), input_size=(B, D))
    assert found is None or getattr(found, "macs", MACS) == MACS
    with pytest.raises(TypeError, match="^Net takes no input_shape; a size is input_size"):
        call(model=Net(), input_shape=(B, D))


@pytest.mark.parametrize("name, lengths", [
    ("llama3-8b", {"T": 128, "B": 2}), ("moa-8K8E128D", {"tgt_len": 3, "src_len": 5}), ("chinchilla-70b", {"T": 64}),
])  # fmt: skip
def test_configuration_of_a_preset_is_its_name(name, lengths):
    found, named = hc.count(hc.preset(name), **lengths), hc.count(name, **lengths)
    assert (found.macs, found.params, found.active_params) == (named.macs, named.params, named.active_params)
    for model in (name, hc.preset(name)):
        for inputs in (((1, 1024),), (torch.ones(1, 3, dtype=torch.long),)):
            with pytest.raises(ValueError, match=r"is counted on the inputs that it takes; its lengths are .*T=128"):
                hc.count(model, *inputs)
        with pytest.raises(ConfigError, match="has no image_size; choose from|no.* image_size"):
            hc.count(model, image_size=3)
    with pytest.raises(TypeError, match="takes no num_layers"):
        hc.count(hc.preset(name), num_layers=2)


class Ids(nn.Module):
    """An embedding and a projection, which read ids or floating-point numbers by name, as transformers do."""

    def __init__(self):
        super().__init__()
        self.table, self.proj = nn.Embedding(11, D), nn.Linear(D, H)

    def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None, shape=None):
        if inputs_embeds is None and input_ids is None:
            raise ValueError("exactly one")
        x = self.table(input_ids) if inputs_embeds is None else inputs_embeds
        if attention_mask is not None:
            x = x * attention_mask[..., None]
        return self.proj(x)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(D, H)

    def forward(self, x, y):
        return self.proj(x) + self.proj(y)


class Total(nn.Module):
    def forward(self, images):
        return sum(one @ one.T for one in images)


@pytest.mark.parametrize("dtypes", [
    torch.long, [torch.long], "long", ["long"], ["torch.LongTensor"], [torch.LongTensor], "torch.int64", ["int64"],
    [int], [numpy.int64], ("int32",), ["torch.cuda.LongTensor"],
], ids=range(12))  # fmt: skip
def test_types_have_names(dtypes):
    for call in (hc.count, hc.summary):
        assert call(Ids(), input_size=(B, 2), dtypes=dtypes).macs == call(Ids(), (B, 2), dtypes=dtypes).macs == 2 * MACS


@pytest.mark.parametrize("dtypes", [["longg"], "randn", [None], [3], ["nn"], [numpy.str_]])
def test_unknown_type_is_one_line(dtypes):
    with pytest.raises(ValueError, match=r"^dtypes: .* is no type; write torch.long or 'long'") as caught:
        hc.count(Ids(), (B, 2), dtypes=dtypes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [hc.count, hc.summary, hc.lock], ids=["count", "summary", "lock"])
@pytest.mark.parametrize("inputs, keywords, macs", [
    ((), {"input_ids": (B, 2)}, 2 * MACS), ((), {"input_ids": [B, 2]}, 2 * MACS),
    ((), {"input_ids": torch.Size((B, 2)), "attention_mask": (B, 2)}, 2 * MACS),
    ((), {"inputs_embeds": (B, D)}, MACS), (({"input_ids": (B, 2)},), {}, 2 * MACS),
    (({"inputs_embeds": (B, D)},), {}, MACS), ((), {"input_size": {"input_ids": (B, 2)}}, 2 * MACS),
    ((), {"input_size": {"inputs_embeds": (B, D)}, "dtypes": ["float32"]}, MACS),
    ((), {"kwargs": {"input_ids": (B, 2)}}, 2 * MACS), (([B, 2],), {}, 2 * MACS),
    (((B, 2),), {"shape": (1, 2)}, 2 * MACS),
    ((numpy.ones((B, 2)).shape,), {}, 2 * MACS), (((numpy.int64(B), 2),), {}, 2 * MACS), ((((B, 2),),), {}, 2 * MACS),
    (((B, 2),), {"attention_mask": (B, 2)}, 2 * MACS),
], ids=range(15))  # fmt: skip
def test_sizes_are_inputs_in_any_place(call, inputs, keywords, macs):
    assert call(Ids(), *inputs, **keywords).macs == macs


@pytest.mark.parametrize("size", [
    (B, -D), (B, 5.0), (0, D), (B, 0), [B, -D], [0, D], (B, float("nan")), (-1, D), (B, Fraction(5)),
], ids=str)  # fmt: skip
def test_numbers_that_are_no_size_are_refused(size):
    for inputs, keywords in (((size,), {}), ((), {"x": size}), (({"x": size},), {}), (([size, (B, D)],), {})):
        if inputs and isinstance(inputs[0], list) and isinstance(size, list):
            continue
        with pytest.raises(ValueError, match="is no size: give whole numbers from 1 on, the batch first"):
            hc.count(Net(), *inputs, **keywords)
    with pytest.raises(ValueError, match=r"^input_size=[^\n]*: give \(1, 3, 224, 224\)"):
        hc.count(Net(), input_size=size)


@pytest.mark.parametrize("inputs", [
    ("3,5",), ("3x5",), ("(3, 5)",), ("[3, 5]",), (5,), (3, 5), ((),), ((True, 5),), ((3, "5"),), ([[3, 5]],), ([],),
    ([3, 5], [3, 5]), (None,),
], ids=str)  # fmt: skip
def test_inputs_without_a_tensor_are_one_line(inputs):
    with pytest.raises((ValueError, TypeError), match=r"\(1, 3, 224, 224\)") as caught:
        hc.count(Net(), *inputs)
    assert "\n" not in str(caught.value)


def test_error_of_other_inputs_is_theirs():
    class Wrapped(nn.Module):
        def forward(self, one):
            raise KeyError("mine")

    for model, given in ((Wrapped(), object()), (Wrapped().forward, 5), (Wrapped(), X), (lambda n: [][n], 5)):
        with pytest.raises(LookupError) as caught:
            hc.count(model, given)
        assert "tensor" not in str(caught.value)
    # a function of sizes
    with pytest.raises(ValueError, match=r"the inputs were made from sizes, \(3, 5\) of torch.float32"):
        hc.count(lambda x: x @ x, (3, 5))


def test_size_beside_a_tensor_is_one_line():
    with pytest.raises(ValueError, match="give tensors alone, or sizes alone$"):
        hc.count(Ids(), input_ids=torch.zeros(B, 2).long(), attention_mask=(B, 2))


def test_empty_tensor_is_counted():
    assert hc.count(Net(), torch.ones(0, D)).macs == 0


def test_list_of_inputs_is_theirs_where_forward_takes_several():
    for given in ([X, X], (X, X), [{"x": X, "y": X}], {"x": X, "y": X}, [(B, D), (B, D)]):
        assert hc.summary(Both(), given).macs == hc.summary(Both(), input_data=given).macs == 2 * MACS
    assert hc.summary(Net(), [{"x": X}]).macs == MACS
    # a list that is the input
    assert hc.count(Total(), [X, X]).macs == 2 * B * B * D
    with pytest.raises(ValueError, match="the input is a list: inputs stand behind each other, hc.count"):
        hc.count(Net(), [X])


@pytest.mark.parametrize("options", [
    {"depth": "all"}, {"depth": -1}, {"depth": 1.5}, {"depth": True}, {"verbose": "loud"}, {"verbose": 3},
    {"col_names": ["macs"]}, {"col_names": "macs"}, {"col_names": 3}, {"row_settings": ["deep"]}, {"mode": "evaluate"},
    {"col_width": "wide"},
], ids=str)  # fmt: skip
def test_wrong_values_of_summary_are_one_line(options):
    ((name, value),) = options.items()
    shown = value[0] if isinstance(value, list) else value
    with pytest.raises(ValueError, match=f"^{name}.*{shown}.*(choose from|give a number)") as caught:
        hc.summary(Net(), X, **options)
    assert "\n" not in str(caught.value)


class Mode(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(D, H)

    def forward(self, x):
        return self.proj(x) if self.training else x


def test_training_sets_the_mode_of_a_copy():
    model = Mode().eval()
    for called in (model, model.forward):
        assert [hc.count(called, X, training=training).macs for training in (False, True)] == [0, MACS]
    assert not model.training and not model.proj.training
    # frozen parts of a model in training mode stay so
    model.train()
    model.proj.eval()
    assert hc.count(nn.Sequential(nn.Sequential(model), Mode().eval()), torch.ones(B, D), training=True).macs == MACS


@pytest.mark.parametrize("mode, trains", [("train", True), ("eval", False), ("same", True)])
def test_mode_of_summary_is_that_of_the_run(mode, trains):
    assert hc.summary(Mode(), X, mode=mode, cache_forward_pass=True).macs == MACS * trains
    assert hc.summary(Mode().eval(), X, mode="same").macs == 0

    class Own(nn.Module):
        def forward(self, x, mode):
            return x @ x.T if mode == "dot" else x

    assert hc.summary(Own(), X, mode="dot").macs == B * B * D


@pytest.mark.parametrize(
    "options", [{"depth": 1}, {"depth": None}, {"verbose": 0}, {"mode": "eval"}, {"device": "cpu"}]
)
@pytest.mark.parametrize("name", ["llama3-8b", "mha:h=2,d_m=8", hc.preset("moa-8K8E128D")], ids=range(3))
def test_option_of_another_tool_beside_a_name_is_one_line(name, options):
    ((option, _),) = options.items()
    with pytest.raises(TypeError, match=f"takes no {option}; {re.escape(ARGUMENTS[option])}$"):
        hc.count(name, T=5, **options)


def test_run_without_inputs_names_them():
    for call in (hc.count, hc.lock):
        with pytest.raises(TypeError, match=r"^Ids takes input_ids, .*: give tensors, or sizes, as hc.count\(model, "):
            call(Ids())
    with pytest.raises(UsageError, match="^no sample: give Ids inputs as long as in training, hc.MFU"):
        hc.MFU(Ids(), peak="1T")
    assert hc.summary(Ids()).params == 11 * D + D * H + H

    class Constant(nn.Module):
        def forward(self):
            return torch.ones(B, D) @ torch.ones(D, H)

    assert hc.count(Constant()).macs == hc.summary(Constant()).macs == MACS


def test_parameters_have_what_a_count_has():
    found, counted = hc.summary(Both()), hc.count(Both(), X, X)
    page = found._repr_html_()
    assert page.startswith('<div class="headcount" ') and "Linear" in page and "the module did not run" in page
    rows = found.to_dataframe()
    assert rows.equals(found.to_dataframe("modules")) and list(rows.columns) == list(
        counted.to_dataframe("modules").columns
    )
    assert list(rows["params"]) == [D * H + H] * 2 and rows["macs"].isna().all()
    for name in ("macs", "flops", "ledger", "by_module", "bytes_moved"):
        with pytest.raises(
            AttributeError, match=rf"the module did not run; what hc.count\(model, x\) returns has .{name}$"
        ):
            getattr(found, name)
    with pytest.raises(ValueError, match="no rows 'products'; choose from 'modules'$"):
        found.to_dataframe("products")


def test_data_frame_of_modules():
    model = nn.Sequential(Both(), nn.Sequential(nn.ReLU(), nn.Linear(H, 2, bias=False)))
    model[0].forward = lambda x: model[0].proj(x) + model[0].proj(x)
    model.add_module("unused", nn.Linear(2, 2))
    model.forward = lambda x: model[1](model[0](x))
    rows = hc.count(model, X).to_dataframe("modules").set_index("path")
    last, own = B * H * 2, 2 * MACS
    assert rows["macs"].dropna().to_dict() == {
        "": own + last,
        "0": own,
        "0.proj": own,
        "1": last,
        "1.0": 0,
        "1.1": last,
    }
    assert rows["params"].to_dict() == {
        "": D * H + H + 2 * H + 6, "0": D * H + H, "0.proj": D * H + H, "1": 2 * H, "1.0": 0, "1.1": 2 * H, "unused": 6,
    }  # fmt: skip
    assert rows["calls"]["0.proj"] == 2 and rows["output"]["1.1"] == f"{B}x2" and rows["type"]["1.0"] == "ReLU"
    assert rows["share"]["1"] == pytest.approx(100 * last / (own + last))
    with pytest.raises(ValueError, match="no rows 'layers'; choose from 'products', 'modules'$"):
        hc.count(Net(), X).to_dataframe("layers")


@pytest.mark.parametrize("path", ["proj", "prooj", "", slice(2)])
def test_count_by_a_path_names_what_has_it(path):
    counted = hc.count(Net(), X)
    with pytest.raises(TypeError, match=r"\.by_module\(\)\[.*\] are the MACs of a module, and .to_dataframe") as caught:
        counted[path]
    assert "\n" not in str(caught.value) and ("did you mean proj?" in str(caught.value)) == (path == "prooj")


@pytest.mark.parametrize("size, types", [(5, None), ("1,3", None), ((B, D), [torch.long] * 2)])
def test_wrong_sizes_raise(size, types):
    with pytest.raises(ValueError, match=r"^input_size=[^\n]*: give \(1, 3, 224, 224\)"):
        hc.count(Net(), input_size=size, dtypes=types)
    with pytest.raises(ValueError, match="give inputs or input_size, not both"):
        hc.count(Net(), X, input_size=(B, D))


def test_expected_macs_are_an_integer():
    for same in (numpy.int64(MACS), float(MACS), numpy.float64(MACS)):
        hc.assert_macs(Net(), X, expected=same)
    for wrong in (MACS + 0.5, float("nan"), float("inf"), True, Fraction(MACS), None):
        with pytest.raises(TypeError, match="^expected=[^\n]*: give an integer or an expression$"):
            hc.assert_macs(Net(), X, expected=wrong)


def test_advice_fits_what_the_module_takes():
    with pytest.raises(TypeError, match=r"hc.count\(model, \(1, 128\)\)$"):
        hc.count(Ids())
    with pytest.raises(TypeError, match=r"hc.count\(model, \(1, 3, 224, 224\)\)$"):
        hc.count(Net())
    with pytest.raises(ValueError, match="headcount count torchvision.models:resnet18, with --input SIZES"):
        hc.count("torchvision.models:resnet18")


def test_count_without_a_model_is_one_line():
    with pytest.raises(TypeError, match=r"hc\.count\(lambda: "):
        hc.count()


def test_unknown_name_says_what_a_library_returns():
    with pytest.raises(ValueError, match=r"torchvision\.models\.NAME\(\) and timm\.create_model"):
        hc.count("resnet18", X)


def test_unsupported_operator_says_what_a_formula_receives():
    with pytest.raises(
        hc.bench.contractions.classify.UnsupportedError, match="lambda event: .* event.args, event.kwargs"
    ):
        hc.count(torch.fft.fft, X)


class Branch(nn.Module):
    def __init__(self, choose):
        super().__init__()
        self.proj, self.choose = nn.Linear(D, D), choose

    def forward(self, x):
        return self.proj(self.choose(x))


CHOICES = {
    "branch": (lambda x: x * 2 if x.sum() > 0 else x[:1], True), "mask": (lambda x: x[x[:, 0] > 0], True),
    "item": (lambda x: x[: int(x.abs().max().item())], True), "index": (lambda x: x[torch.tensor([0, 1])], False),
    "other values": (lambda x: x[: int(torch.tensor(2))], False),
    "only its size": (lambda x: x if torch.ones_like(x).all() else x[:1], False),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_run_that_reads_inputs_made_from_sizes_is_noted(name):
    function, reads = CHOICES[name]
    for counted in (hc.count(Branch(function), (B, D)), hc.count(Branch(function), input_size=(B, D))):
        assert any("made from sizes, ones" in note for note in counted.notes) == reads
    assert hc.count(Branch(function), X).notes == ()


def test_backward_says_how_it_differs_from_a_training_step():
    def notes(*inputs, **options):
        return " ".join(hc.count(*inputs, **options).notes)

    evaluated, trained = notes(Net(), X, backward=True), notes(Net(), X, backward=True, training=True)
    assert "eval mode; training=True" in evaluated and "floating-point inputs" in evaluated
    assert "eval mode" not in trained and "floating-point inputs" in trained
    ids = notes(nn.Embedding(B, D), torch.zeros(B, dtype=torch.long), backward=True)
    assert "eval mode" in ids and "floating-point inputs" not in ids
    net = Net().eval()
    assert "in the mode that they were in" in notes(lambda x: net(x), X, backward=True, training=True)
    # one of headcount's own is the same in both modes
    assert notes("llama3-8b,T=2", backward=True) == notes(Net(), X) == ""
