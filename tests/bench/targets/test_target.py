"""Targets: their texts of inputs and settings, and the modules built from them."""

from argparse import ArgumentParser, Namespace

import pytest
import torch
from torch import nn

from headcount.bench.errors import UsageError
from headcount.bench.targets.target import (
    Target,
    add_target_options,
    parse_input,
    parse_settings,
    parse_target,
)
from headcount.bench.targets.user_code import UserCodeError, build_target, parse_inputs

FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=7):
        super().__init__()
        self.proj = nn.Linear(width, 3)
    def forward(self, x, scale=None):
        return self.proj(x) if scale is None else self.proj(x) * scale

def alone(): return Net()
def make(): return Net(), (torch.ones(2, 7),)
def scaled(): return Net(), {"x": torch.ones(2, 7), "scale": torch.ones(1, dtype=torch.long)}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "target_net.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def build(name, **options):
    return build_target(Target(f"target_net.py:{name}", **options))


@pytest.mark.parametrize(
    "text", ["1,x", "1,,2", "0,3", "-1", "1 2", "a b=1", "=1,2", "1,2:", "1:tensor", "x=[1,", "x=[1]:y", "a b=[1]"]
)
def test_wrong_input_text_raises(text):
    with pytest.raises(UsageError, match="--input"):
        parse_input(text)


def test_inputs_have_names_positions_and_types():
    found = parse_inputs(["2,3", "mask=2:bool", "5:long", "scale=:half"], "bfloat16")
    assert [(name, tuple(one.shape), one.dtype) for name, one in found.items()] == [
        ("0", (2, 3), torch.bfloat16), ("mask", (2,), torch.bool), ("1", (5,), torch.long),
        ("scale", (), torch.half),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1x3x224x224", "image=1×3×224×224:half"])
def test_sizes_as_tables_print_them(text):
    assert parse_input(text)[1] == [1, 3, 224, 224]


def test_types_have_short_names():
    found = parse_inputs(["2:bf16", "x=3:fp16", "y=[1]:fp32", "z=1:fp64"])
    assert [one.dtype for one in found.values()] == [torch.bfloat16, torch.float16, torch.float32, torch.float64]
    parser = ArgumentParser()
    add_target_options(parser)
    assert [parser.parse_args(["--dtype", name]).dtype for name in ("bf16", "half")] == ["bfloat16", "half"]


def test_inputs_have_values(tmp_path):
    (tmp_path / "more.json").write_text('{"sizes": [1.5, 2], "none": null}')
    texts = ["grid=[[1,4,6]]", "x=[1,2.5]", "half=[1]:half", "[true]", f"more=@{tmp_path / 'more.json'}"]
    found = parse_inputs(texts, "bfloat16")
    more = found.pop("more")
    assert [(name, one.tolist(), one.dtype) for name, one in found.items()] == [
        ("grid", [[1, 4, 6]], torch.int64), ("x", [1, 2.5], torch.bfloat16), ("half", [1], torch.half),
        ("0", [True], torch.bool),
    ]  # fmt: skip
    assert (more["none"], more["sizes"].tolist(), more["sizes"].dtype) == (None, [1.5, 2], torch.bfloat16)


def test_settings_are_json_values():
    words = ["n=7", "rate=0.5", "deep=true", "kind=silu", "rope.factor=2", "sizes=[1, 2]"]
    found = {"n": 7, "rate": 0.5, "deep": True, "kind": "silu", "rope.factor": 2, "sizes": [1, 2]}
    assert parse_settings(words) == found
    for word in ("n", "=7", "a b=7"):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            parse_settings([word])


def test_class_takes_settings_and_inputs():
    one = build("Net", settings={"width": 11}, inputs=["5,11", "scale=1"])
    assert isinstance(one.module, nn.Module) and one.module.proj.in_features == 11
    assert [tuple(x.shape) for x in one.args] == [(5, 11)] and list(one.kwargs) == ["scale"]


def test_inputs_replace_those_of_function():
    assert tuple(build("make", inputs=["5,7"]).args[0].shape) == (5, 7)
    assert tuple(build("alone", inputs=["x=5,7"]).kwargs["x"].shape) == (5, 7)


def test_dtype_casts_weights_and_inputs():
    one = build("scaled", dtype="bfloat16")
    assert one.module.proj.weight.dtype == one.kwargs["x"].dtype == torch.bfloat16
    assert one.kwargs["scale"].dtype == torch.long
    assert build("alone", dtype="float64", inputs=["2,7"]).args[0].dtype == torch.float64
    assert build("alone", dtype="float64", inputs=["2,7:float32"]).args[0].dtype == torch.float32


def test_lengths_of_a_function_raise():
    with pytest.raises(UserCodeError, match="--seq-len: make has no parameter seq_len or T; --input"):
        build("make", lengths={"seq_len": 7, "images": 1})


def test_a_field_in_place_of_a_target_names_the_option():
    with pytest.raises(
        UsageError,
        match="b=2 is a size or a field and no TARGET; --set b=2",
    ):
        parse_target("b=2", Namespace(set=["a=1"], input=None, dtype=None))


@pytest.mark.parametrize("spec", ["config.json", "hf:org/name", "llama3-8b"])
@pytest.mark.parametrize(("word", "name"), [
    ("T=0", "seq_len"), ("T=-3", "seq_len"), ("B=0", "batch_size"), ("image_size=0", "image_size"),
    ("images=-1", "images"),
])  # fmt: skip
def test_lengths_are_at_least_one(spec, word, name):
    with pytest.raises(UsageError, match=f"^{name} must be at least 1, not"):
        parse_target(f"{spec},{word}", Namespace(set=[], input=[]))
