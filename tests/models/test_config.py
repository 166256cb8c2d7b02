"""Configurations: invalid fields raise one line, defaults are derived, overrides are parsed."""

import dataclasses
import re
import subprocess
import sys

import pytest

from headcount.models.configs.base import ConfigError, as_model
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.presets import PRESETS, parse_overrides, preset
from headcount.models.configs.registry import ATTENTIONS, MODELS

MHA = {"attention": "mha", "d_model": 15, "num_heads": 3}
MOA = {"attention": "moa", "d_model": 13, "num_experts": 11, "top_k": 3, "head_dim": 5}
MODEL = {**MHA, "d_ff": 17, "vocab_size": 19}
ENCODER_DECODER = {**MODEL, "model": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 1}
MASKED_LM = {**MODEL, "model": "masked_lm", "num_layers": 2, "max_positions": 23}
DIT = {**MHA, "model": "dit", "d_model": 20, "head_dim": 5, "num_layers": 2, "patch_size": 3, "latent_size": 15}
KERNELS = {"encoder_kernel_sizes": (3, 5), "decoder_kernel_sizes": (7,)}
CONVOLUTION = {**MODEL, **KERNELS, "model": "convolution", "convolution": "light", "num_weight_heads": 3}
MAE = {"attention": "mae", "d_model": 15, "num_heads": 3}
MOH = {"attention": "moh", "d_model": 8, "num_heads": 4, "num_shared_heads": 2, "top_k": 1}
AGGREGATED = {**MHA, "attention": "aggregated", "side": 6, "pool_ratio": 2, "position_width": 7}
JETMOE = {
    **MOA, "model": "jetmoe", "d_ff": 17, "num_layers": 2, "vocab_size": 19, "head_dim": 12, "num_kv_heads": 3,
    "ffn_num_experts": 7, "ffn_top_k": 3,
}  # fmt: skip
AT_LEAST_1 = [
    (MHA, "d_model num_heads num_kv_heads head_dim"),
    (MOA, "d_model num_experts top_k head_dim num_kv_heads"),
    (MAE, "d_model head_dim gate_width"),
    (AGGREGATED, "pool_ratio"),
    (ENCODER_DECODER, "d_ff vocab_size num_encoder_layers num_decoder_layers"),
    (MASKED_LM, "d_ff vocab_size num_layers max_positions"),
    (CONVOLUTION, "d_ff vocab_size num_weight_heads"),
    (DIT, "num_layers patch_size latent_size latent_channels mlp_ratio num_classes frequency_width"),
]
REFUSED = [
    *(
        (base, {field: 0}, f"{field} must be at least 1, not 0")
        for base, names in AT_LEAST_1
        for field in names.split()
    ),
    (MHA, {"attention_dropout": 1.0}, "attention_dropout must lie in [0, 1), not 1.0"),
    (MOA, {"attention_dropout": -0.1}, "attention_dropout must lie in [0, 1), not -0.1"),
    (ENCODER_DECODER, {"dropout": 1.0}, "dropout must lie in [0, 1), not 1.0"),
    (ENCODER_DECODER, {"ffn_dropout": -0.1}, "ffn_dropout must lie in [0, 1), not -0.1"),
    (MASKED_LM, {"dropout": -0.1}, "dropout must lie in [0, 1), not -0.1"),
    (MASKED_LM, {"ffn_dropout": 1.0}, "ffn_dropout must lie in [0, 1), not 1.0"),
    (MOA, {"balance_loss_weight": -0.5}, "balance_loss_weight must be at least 0, not -0.5"),
    (MOA, {"z_loss_weight": float("nan")}, "z_loss_weight must be at least 0, not nan"),
    (MOA, {"top_k": 12}, "top_k must lie in 1..num_experts = 1..11, not 12"),
    (MOA, {"top_k": 2.5}, "top_k must be a whole number, not 2.5"),
    (MOA, {"top_k": True}, "top_k must be a whole number, not True"),
    (MOA, {"num_kv_heads": 2}, "num_kv_heads must divide head_dim, and 2 does not divide 5"),
    (MOA, {"attention": "mqa"}, "attention must be one of"),
    (MOA, {"model": "gpt"}, "model must be one of"),
    (MHA, {"num_heads": 2}, "num_heads must divide d_model, and 2 does not divide 15"),
    (MHA, {"num_kv_heads": 2}, "num_kv_heads must divide num_heads, and 2 does not divide 3"),
    (MHA, {"top_k": 3}, "unknown field 'top_k'"),
    (MAE, {"num_heads": 1}, "num_heads must be at least 2, not 1"),
    (MOH, {"top_k": 3}, "top_k must lie in 0..num_heads - num_shared_heads = 0..2, not 3"),
    (MOH, {"num_shared_heads": 5}, "num_shared_heads must lie in 0..num_heads = 0..4, not 5"),
    (MOH, {"num_shared_heads": 0, "top_k": 0}, "must not both be 0"),
    (MOH, {"num_shared_heads": 3, "router": "query_norm"}, "num_heads - num_shared_heads of at least 2, not 1"),
    (AGGREGATED, {"num_heads": 4}, "num_heads must divide d_model, and 4 does not divide 15"),
    (AGGREGATED, {"pool_ratio": 4}, "pool_ratio must divide the side of the grid, and 4 does not divide 6"),
    (AGGREGATED, {"side": 1}, "side must be at least 2, not 1"),
    (AGGREGATED, {"pretrained_side": 1}, "pretrained_side must be at least 2, not 1"),
    (CONVOLUTION, {"convolution": "heavy"}, "convolution must be one of light, dynamic, not 'heavy'"),
    (CONVOLUTION, {"spelling": "cuda"}, "must be one of windows, band, not 'cuda'"),
    (CONVOLUTION, {"kernel_dropout": 1.0}, "kernel_dropout must lie in [0, 1), not 1.0"),
    (CONVOLUTION, {"num_weight_heads": 4}, "num_weight_heads must divide d_model, and 4 does not divide 15"),
    (CONVOLUTION, {"encoder_kernel_sizes": ()}, "the number of encoder_kernel_sizes must be at least 1, not 0"),
    (CONVOLUTION, {"decoder_kernel_sizes": (3, 0)}, "decoder_kernel_sizes must be at least 1, not 0"),
    (DIT, {"patch_size": 4}, "patch_size must divide latent_size, and 4 does not divide 15"),
    (DIT, {"d_model": 18}, "d_model must be a multiple of 4"),
    (DIT, {"frequency_width": 3}, "frequency_width must be even"),
    (JETMOE, {"num_kv_heads": 4}, "kv_head_dim must be even for rotary positions, not 3"),
    (JETMOE, {"ffn_num_experts": 0, "ffn_top_k": 0}, "ffn_num_experts must be at least 1, not 0"),
]


def exactly(message):
    assert "\n" not in message
    return f"^{re.escape(message)}$"


def variant_id(base):
    return base.get("model", base["attention"])


@pytest.mark.parametrize(
    "base, change, words", REFUSED, ids=[f"{variant_id(base)}-{change}" for base, change, _ in REFUSED]
)
def test_invalid_fields_raise(base, change, words):
    with pytest.raises(ConfigError, match=f"^.*{re.escape(words)}.*$"):
        make_config({**base, **change})


@pytest.mark.parametrize("base", [MHA, MOA, MAE, MOH, ENCODER_DECODER, MASKED_LM, CONVOLUTION], ids=variant_id)
def test_missing_fields_raise(base):
    for field in base.keys() - {"model", "attention"}:
        with pytest.raises(ConfigError, match=rf"needs {field}$"):
            make_config({k: v for k, v in base.items() if k != field})


def test_attention_of_another_width_raises():
    with pytest.raises(ConfigError, match="^d_model of the attention must be the model's 512, not 1024$"):
        dataclasses.replace(preset("transformer-base"), attention=preset("transformer-big").attention)


def test_limits_are_valid():
    config = make_config(
        {**MOA, "top_k": 11, "attention_dropout": 0.0, "balance_loss_weight": 0.0, "z_loss_weight": 0.0}
    )
    assert config.top_k == config.num_experts == 11
    assert make_config({**MOA, "top_k": 1, "num_experts": 1, "head_dim": 1, "d_model": 1}).head_dim == 1


def test_default_heads():
    config = make_config(MHA)
    assert (config.num_kv_heads, config.head_dim) == (3, 5)
    config = make_config({**MHA, "num_heads": 2, "head_dim": 7, "num_kv_heads": 1})
    assert config.letters() == {"d_m": 15, "h": 2, "d_h": 7, "g": 1, "bias": True}


def test_shared_field_reaches_model_and_attention():
    config = make_config({**ENCODER_DECODER, "d_model": 21})
    assert config.d_model == config.attention.d_model == 21
    assert config.attention.head_dim == 7
    assert set(field_types("encoder_decoder", "moa")) >= {"d_ff", "top_k", "d_model"}
    assert not any({"attention", "layers"} & set(field_types(model, "mha")) for model in MODELS)


@pytest.mark.parametrize(
    "name, sizes",
    [(n, n.removeprefix("mlm-").removeprefix("moa-")) for n in PRESETS if "moa-" in n],
)
def test_moa_preset_matches_its_name(name, sizes):
    attention = preset(name).attention
    assert f"{attention.top_k}K{attention.num_experts}E{attention.head_dim}D" == sizes
    assert attention.bias == name.startswith("mlm-")


def test_overrides_have_the_types_of_their_fields():
    values = parse_overrides("moa-8K8E128D", ["top_k=3", "bias=True", "dropout=0.1", "gates=released"])
    assert values == {"top_k": 3, "bias": True, "dropout": 0.1, "gates": "released"}
    config = preset("moa-8K8E128D", values)
    assert (config.attention.top_k, config.attention.bias, config.dropout) == (3, True, 0.1)
    assert parse_overrides("lightconv", ["encoder_kernel_sizes=3,5", "convolution=dynamic"]) == {
        "encoder_kernel_sizes": (3, 5),
        "convolution": "dynamic",
    }
    assert parse_overrides("transformer-base", ["num_kv_heads=2"]) == {"num_kv_heads": 2}
    # where layers may differ
    assert parse_overrides("llm-s", ["num_heads=3,5", "num_kv_heads=2"]) == {"num_heads": (3, 5), "num_kv_heads": 2}


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("moa-8K8E128D", "top_k=two", "top_k takes a whole number, not 'two'"),
        ("moa-8K8E128D", "top_k", "top_k has no value; write top_k=VALUE"),
        ("moa-8K8E128D", "top_k=2.5", "top_k takes a whole number, not '2.5'"),
        ("moa-8K8E128D", "bias=1", "bias takes true or false, not '1'"),
        ("moa-8K8E128D", "dropout=much", "dropout takes a number, not 'much'"),
        ("lightconv", "encoder_kernel_sizes=3,x", "encoder_kernel_sizes takes whole numbers with commas, not '3,x'"),
        ("llm-s", "num_heads=x", "num_heads takes a whole number, or one for each layer with commas, not 'x'"),
        ("llm-s", "num_heads=3,x", "num_heads takes a whole number, or one for each layer with commas, not '3,x'"),
    ],
)
def test_override_of_the_wrong_type_raises(name, text, message):
    with pytest.raises(ConfigError, match=exactly(message)):
        parse_overrides(name, [text])


def test_another_attention_keeps_the_sizes_of_the_model():
    changes = ["num_shared_heads=2", "attention=moh", "top_k=3"]
    config = preset("transformer-big", parse_overrides("transformer-big", changes))
    assert (config.attention.variant, config.attention.num_heads, config.d_ff) == ("moh", 16, 4096)
    config = preset("moh-dit-l2-75", {"attention": "mha"})
    assert [layer.num_heads for layer in config.layers] == [8] * 8 + [16] * 8 + [24] * 8
    message = f"attention must be one of {', '.join(ATTENTIONS)}, not 'x'"
    for ask in (parse_overrides, lambda name, _: preset(name, {"attention": "x"})):
        with pytest.raises(ConfigError, match=exactly(message)):
            ask("llm-s", ["attention=x"])


def test_configs_and_presets_do_not_import_torch():
    code = (
        "import sys, headcount.models.configs.make, headcount.models.configs.presets; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_layer_as_model():
    layer = make_config(dict(attention="moh", d_model=12, num_heads=4, num_shared_heads=2, top_k=1))
    model = as_model(layer)
    assert as_model(model) is model and model.attention is layer and model.d_model == 12
    assert model.letters() == {} and model.has_module
    lengths = {"batch_size": 2, "src_len": 7, "tgt_len": 5}
    assert model.length_letters(lengths) == {"B": 2, "T": 5, "S": 7}
    assert {name: spec.shape for name, spec in model.inputs(lengths).items()} == {
        "query": (2, 5, 12),
        "key": (2, 7, 12),
    }
    assert model.inputs(lengths) == layer.inputs(lengths) and model.lengths == layer.lengths


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"transnext"}))
def test_model_width_is_the_width_of_its_attention(name):
    of_model = next(config for config in map(preset, PRESETS) if config.variant == name)
    with pytest.raises(ConfigError, match="d_model"):
        dataclasses.replace(of_model, d_model=4 * of_model.d_model)
