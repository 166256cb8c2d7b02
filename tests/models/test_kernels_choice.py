"""Selection of an implementation: by name or by the rule of auto, reported and logged once."""

import logging
import subprocess
import sys

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.kernels import grouped
from headcount.models.kernels.selection import SAID, Selectable, select_impl, used_impls
from headcount.models.moa import automatic_for

SOME = MixtureOfAttentionHeadsConfig(d_model=11, num_experts=7, top_k=3, head_dim=5)
ALL = MixtureOfAttentionHeadsConfig(d_model=11, num_experts=5, top_k=5, head_dim=3)
MHA = MultiHeadAttentionConfig(d_model=14, num_heads=7)
MODEL = dict(
    model="encoder_decoder", attention="moa", d_model=11, d_ff=13, num_encoder_layers=2, num_decoder_layers=1,
    vocab_size=17, num_experts=7, top_k=3, head_dim=5,
)  # fmt: skip


@pytest.fixture(autouse=True)
def clear_logged_choices():
    SAID.clear()


@pytest.mark.parametrize("config, used", [(SOME, "grouped"), (ALL, "dense-all"), (MHA, "fused")])
def test_auto_selects_by_variant_and_shape(config, used):
    layer = build(config)
    for impl, expected in (("reference", "reference"), ("auto", used)):
        layer.impl = impl
        layer(torch.zeros(2, 3, config.d_model))
        assert layer.impl_used == expected


@pytest.mark.parametrize(
    "top_k, num_experts, num_tokens, dtype, device, used",
    [
        (8, 8, 1, torch.float32, "cuda", "dense-all"),
        (8, 8, 1024, torch.bfloat16, "cpu", "dense-all"),
        (16, 32, 1024, torch.bfloat16, "cuda", "grouped"),
        (16, 32, 3, torch.bfloat16, "cuda", "gathered"),
        (16, 32, 4, torch.bfloat16, "cuda", "grouped"),
        (16, 32, 3, torch.float32, "cpu", "grouped"),
        (16, 32, 1024, torch.float64, "cuda", "grouped"),
        (16, 32, 1024, torch.float32, "meta", "gathered"),
        (16, 32, 1024, torch.bfloat16, "meta", "grouped"),
    ],
)
def test_automatic_impl_of_moa(top_k, num_experts, num_tokens, dtype, device, used):
    assert automatic_for(top_k, num_experts, num_tokens, dtype, device) == used


@pytest.mark.parametrize("impl", [impl.name for impl in SOME.implementations if not impl.package])
def test_used_impls_of_model(impl):
    model = build(make_config(MODEL), impl=impl)
    assert set(used_impls(model).values()) == {None}
    model(torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64))
    assert used_impls(model) == {
        "encoder.layers.0.self_attn": impl,
        "encoder.layers.1.self_attn": impl,
        "decoder.layers.0.self_attn": impl,
        "decoder.layers.0.cross_attn": impl,
    }


@pytest.mark.parametrize("values, wrong", [(SOME, "fused"), (MHA, "grouped"), (make_config(MODEL), "fused")])
def test_unknown_implementation_raises(values, wrong):
    with pytest.raises(ConfigError, match=f"unknown implementation '{wrong}' of m.*; choose from reference, .*auto$"):
        build(values, impl=wrong)


def test_unknown_implementation_changes_no_layer():
    model = build(make_config(MODEL), impl="grouped")
    with pytest.raises(ConfigError):
        select_impl(model, "fused")
    assert {m.impl for m in model.modules() if isinstance(m, Selectable)} == {"grouped"}


@pytest.fixture
def logged():
    """The messages of this package's loggers, from INFO on."""
    messages, logger = [], logging.getLogger("headcount")
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield messages
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_auto_is_logged_once_per_shape(logged):
    layer = build(SOME, impl="auto")
    for _ in range(2):
        layer(torch.zeros(2, 3, 11))
        layer(torch.zeros(2, 5, 11))
    assert [message.endswith("auto runs grouped") for message in logged] == [True, True]


@pytest.mark.parametrize(
    "capability, dtype, fast",
    [
        ((9, 0), torch.bfloat16, True),
        ((10, 0), torch.bfloat16, True),
        ((9, 0), torch.float16, False),
        ((9, 0), torch.float32, False),
        ((8, 9), torch.bfloat16, False),
    ],
)
def test_grouped_fast_path_needs_bfloat16_on_sm_90(capability, dtype, fast, monkeypatch, logged):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    for _ in range(2):
        assert grouped.has_fast_path(torch.device("cuda"), dtype) is fast
    assert len(logged) == (not fast)


def test_grouped_pads_uneven_sizes(logged):
    rows, offsets = torch.ones(6, 11), torch.tensor([4, 6], dtype=torch.int32)
    for _ in range(2):
        out = grouped.padded_grouped_mm(rows, torch.ones(2, 11, 5), offsets)
    torch.testing.assert_close(out, torch.full((6, 5), 11.0))
    grouped.padded_grouped_mm(torch.ones(6, 12), torch.ones(2, 12, 4), offsets)
    assert len(logged) == 1


def test_impl_modules_are_imported_on_selection():
    code = """
import sys, torch
sys.modules["triton"] = None
from headcount.models.build import build
from headcount.models.configs.make import make_config
config = make_config(dict(attention="moa", d_model=11, num_experts=7, top_k=3, head_dim=5))
build(config)(torch.zeros(2, 3, 11))
assert not {"headcount.models.kernels.loop", "torch._dynamo"} & set(sys.modules)
build(config, impl="loop")
assert "headcount.models.kernels.loop" in sys.modules and "headcount.models.kernels.grouped" not in sys.modules
layer = build(config, device="meta", impl="triton")
assert layer(torch.zeros(2, 3, 11, device="meta")).shape == (2, 3, 11)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
