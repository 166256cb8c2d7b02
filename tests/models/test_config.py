"""A configuration that cannot be built is refused in one line that names the valid choices."""

import dataclasses
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from headcount.models.configs.base import ConfigError, as_model
from headcount.models.configs.convolution import ConvolutionConfig
from headcount.models.configs.encoder_decoder import EncoderDecoderConfig
from headcount.models.configs.mae import MixtureOfAttentiveExpertsConfig
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.masked_lm import MaskedLanguageModelConfig
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.configs.presets import PRESETS, parse_overrides, preset
from headcount.models.configs.registry import ATTENTIONS, MODELS
from headcount.models.configs.transnext import TransNeXtConfig

MHA = {"attention": "mha", "d_model": 15, "num_heads": 3}
MOA = {"attention": "moa", "d_model": 13, "num_experts": 11, "top_k": 3, "head_dim": 5}
MAE = {"attention": "mae", "d_model": 15, "num_heads": 3}
MODEL = {**MHA, "d_ff": 17, "vocab_size": 19}
ENCODER_DECODER = {**MODEL, "model": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 1}
MASKED_LM = {**MODEL, "model": "masked_lm", "num_layers": 2, "max_positions": 23}
DIT = {**MHA, "model": "dit", "num_layers": 2, "patch_size": 2}
KERNELS = {"encoder_kernel_sizes": (3, 5), "decoder_kernel_sizes": (7,)}
CONVOLUTION = {**MODEL, **KERNELS, "model": "convolution", "convolution": "light", "num_weight_heads": 3}

REFUSED = [
    *((base, {field: 0}, f"{field} must be at least 1, not 0") for base, fields in (
        (MHA, "d_model num_heads num_kv_heads head_dim"),
        (MOA, "d_model num_experts top_k head_dim"),
        (MAE, "d_model head_dim gate_width"),
        (ENCODER_DECODER, "d_ff vocab_size num_encoder_layers num_decoder_layers"),
        (MASKED_LM, "d_ff vocab_size num_layers max_positions"),
        (CONVOLUTION, "d_ff vocab_size num_weight_heads"),
        (DIT, "num_layers patch_size latent_size latent_channels mlp_ratio num_classes frequency_width"),
    ) for field in fields.split()),
    *((base, {field: value}, f"{field} must lie in [0, 1), not {value}") for base, field in (
        (MHA, "attention_dropout"),
        (MOA, "attention_dropout"),
        (ENCODER_DECODER, "dropout"),
        (ENCODER_DECODER, "ffn_dropout"),
        (MASKED_LM, "dropout"),
        (MASKED_LM, "ffn_dropout"),
    ) for value in (-0.1, 1.0)),
    (MOA, {"balance_loss_weight": -0.5}, "balance_loss_weight must be at least 0, not -0.5"),
    (MOA, {"z_loss_weight": -0.5}, "z_loss_weight must be at least 0, not -0.5"),
    (MOA, {"top_k": 12}, "top_k must lie in 1..num_experts = 1..11, not 12"),
    (
        MHA,
        {"num_heads": 2},
        "num_heads must divide d_model, and 2 does not divide 15; choose another num_heads or set head_dim",
    ),
    (MHA, {"num_kv_heads": 2}, "num_kv_heads must divide num_heads, and 2 does not divide 3"),
    (MAE, {"num_heads": 1}, "num_heads must be at least 2, not 1"),
    (MAE, {"num_heads": 2}, "num_heads must divide d_model, and 2 does not divide 15; choose another num_heads or"
        " set head_dim"),
    (CONVOLUTION, {"convolution": "heavy"}, "convolution must be one of light, dynamic, not 'heavy'"),
    (CONVOLUTION, {"encoder_kernel_sizes": (3, 0)}, "encoder_kernel_sizes must be at least 1, not 0"),
    (CONVOLUTION, {"decoder_kernel_sizes": (0,)}, "decoder_kernel_sizes must be at least 1, not 0"),
    (
        MHA,
        {"top_k": 3},
        "unknown field 'top_k'; choose from attention_dropout, bias, d_model, head_dim, num_heads, num_kv_heads",
    ),
]  # fmt: skip
CLASSES = [
    (MHA, MultiHeadAttentionConfig),
    (MOA, MixtureOfAttentionHeadsConfig),
    (MAE, MixtureOfAttentiveExpertsConfig),
    (ENCODER_DECODER, EncoderDecoderConfig),
    (MASKED_LM, MaskedLanguageModelConfig),
    (CONVOLUTION, ConvolutionConfig),
]
CLASS_IDS = [cls.__name__ for _, cls in CLASSES]


def exactly(message):
    assert "\n" not in message
    return f"^{re.escape(message)}$"


@pytest.mark.parametrize("base, cls", CLASSES, ids=CLASS_IDS)
def test_base_is_built_and_cannot_be_changed(base, cls):
    config = make_config(base)
    assert type(config) is cls
    with pytest.raises(FrozenInstanceError):
        config.d_model = 17


@pytest.mark.parametrize(
    "base, delta, message", REFUSED, ids=[f"{b.get('model', b['attention'])}-{d}" for b, d, _ in REFUSED]
)
def test_refusal_is_this_one_line(base, delta, message):
    with pytest.raises(ConfigError, match=exactly(message)):
        make_config({**base, **delta})


def test_limits_themselves_are_accepted():
    config = make_config(
        {**MOA, "top_k": 11, "attention_dropout": 0.0, "balance_loss_weight": 0.0, "z_loss_weight": 0.0}
    )
    assert config.top_k == config.num_experts == 11
    assert make_config({**MOA, "top_k": 1, "num_experts": 1, "head_dim": 1, "d_model": 1}).head_dim == 1


@pytest.mark.parametrize("base, cls", CLASSES, ids=CLASS_IDS)
def test_missing_fields_are_named(base, cls):
    for field in base.keys() - {"model", "attention"}:
        with pytest.raises(ConfigError, match=rf"^\w+Config needs {field}$"):
            make_config({k: v for k, v in base.items() if k != field})


def test_heads_are_derived_where_they_are_not_given():
    config = make_config(MHA)
    assert (config.num_kv_heads, config.head_dim) == (3, 5)
    config = make_config({**MHA, "num_heads": 2, "head_dim": 7, "num_kv_heads": 1})
    assert config.letters() == {"d_m": 15, "h": 2, "d_h": 7, "g": 1, "bias": True}


def test_a_field_of_both_model_and_attention_reaches_both():
    config = make_config({**ENCODER_DECODER, "d_model": 21})
    assert config.d_model == config.attention.d_model == 21
    assert config.attention.head_dim == 7
    assert set(field_types("encoder_decoder", "moa")) >= {"d_ff", "top_k", "d_model"}
    assert not any({"attention", "layers"} & set(field_types(model, "mha")) for model in MODELS)


def test_masked_lm_refuses_inputs_longer_than_its_positions():
    config = make_config(MASKED_LM)
    assert config.length_letters({"batch_size": 2, "seq_len": 21}) == {"B": 2, "T": 21}
    message = "seq_len must be at most max_positions - 2 = 21, not 22; set max_positions for longer inputs"
    with pytest.raises(ConfigError, match=exactly(message)):
        config.length_letters({"batch_size": 2, "seq_len": 22})


@pytest.mark.parametrize("name", PRESETS)
def test_preset_is_valid(name):
    config = preset(name)
    widths = config.widths if isinstance(config, TransNeXtConfig) else (config.d_model,)
    assert config.attention.d_model == widths[0]


@pytest.mark.parametrize(
    "name, sizes",
    [(n, n.removeprefix("mlm-").removeprefix("moa-")) for n in PRESETS if "moa-" in n],
)
def test_moa_preset_is_what_its_name_says(name, sizes):
    attention = preset(name).attention
    assert f"{attention.top_k}K{attention.num_experts}E{attention.head_dim}D" == sizes
    assert attention.bias == name.startswith("mlm-")


@pytest.mark.parametrize("ask", [preset, lambda name: parse_overrides(name, [])], ids=["preset", "parse_overrides"])
def test_unknown_preset_is_answered_with_the_list(ask):
    message = f"unknown preset 'moa-base'; headcount macs --list names all {len(PRESETS)}"
    with pytest.raises(ConfigError, match=exactly(message)):
        ask("moa-base")


def test_overrides_are_read_as_the_types_of_their_fields():
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
def test_override_of_the_wrong_kind_says_what_the_field_takes(name, text, message):
    with pytest.raises(ConfigError, match=exactly(message)):
        parse_overrides(name, [text])


def test_unknown_override_is_answered_with_the_fields():
    known = field_types("encoder_decoder", "moa")
    meant = "did you mean num_kv_heads or num_experts? "
    fields = ", ".join(sorted({*known, "attention", "recipe"}))
    with pytest.raises(
        ConfigError, match=exactly(f"unknown field 'num_heads' of moa-8K8E128D; {meant}choose from {fields}")
    ):
        parse_overrides("moa-8K8E128D", ["num_heads=8"])
    fields = ", ".join(sorted(known))
    with pytest.raises(ConfigError, match=exactly(f"unknown field 'num_heads'; {meant}choose from {fields}")):
        preset("moa-8K8E128D", {"num_heads": 8})


def test_another_attention_keeps_what_it_knows_of_the_model():
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


LIGHT = PRESETS["lightconv"]


@pytest.mark.parametrize(
    "values, message",
    [
        (dict(d_model=12), f"attention must be one of {', '.join(ATTENTIONS)}, not None"),
        (MOA | dict(attention="mqa"), f"attention must be one of {', '.join(ATTENTIONS)}, not 'mqa'"),
        (
            MOA | dict(model="gpt"),
            f"model must be one of {', '.join(MODELS)}, not 'gpt'",
        ),
        (MOA | dict(top_k=2.5), "top_k must be a whole number, not 2.5"),
        (MOA | dict(top_k=True), "top_k must be a whole number, not True"),
        (MOA | dict(z_loss_weight=float("nan")), "z_loss_weight must be at least 0, not nan"),
        (LIGHT | dict(num_weight_heads=7), "num_weight_heads must divide d_model, and 7 does not divide 1024"),
        (LIGHT | dict(encoder_kernel_sizes=()), "the number of encoder_kernel_sizes must be at least 1, not 0"),
        (LIGHT | dict(decoder_kernel_sizes=(3, 0)), "decoder_kernel_sizes must be at least 1, not 0"),
    ],
)
def test_what_make_config_refuses(values, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        make_config(values)


def test_an_attention_of_another_width_than_its_model_is_refused():
    config = preset("transformer-base")
    with pytest.raises(ConfigError, match="^d_model of the attention must be the model's 512, not 1024$"):
        dataclasses.replace(config, attention=preset("transformer-big").attention)


def test_a_layer_is_a_model_of_one_layer():
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
def test_a_models_width_is_that_of_its_attention(name):
    of_model = next(config for config in map(preset, PRESETS) if config.variant == name)
    with pytest.raises(ConfigError, match="d_model"):
        dataclasses.replace(of_model, d_model=4 * of_model.d_model)


def test_repr_writes_equal_layers_once():
    config = preset("moh-dit-l2-90")
    assert repr(preset("jetmoe-8b").layers) == f"(24 x {preset('jetmoe-8b').attention!r})"
    assert [part.split()[-1] for part in repr(config.layers).split(" x ")[:-1]] == ["(8", "8", "8"]
    assert dataclasses.replace(config) == config and hash(dataclasses.replace(config)) == hash(config)


def test_ideal_form_has_its_own_module_and_implementations():
    released = make_config({"attention": "mla", "d_model": 12, "num_heads": 3})
    ideal = dataclasses.replace(released, form="ideal")
    assert (released.file, released.module) == ("mla", "MultiHeadLatentAttention")
    assert (ideal.file, ideal.module) == ("mla_ideal", "IdealMultiHeadLatentAttention")
    assert [arm.target for arm in ideal.implementations] == ["mla_ideal:reference", "mla_ideal:fused"]
    assert dataclasses.replace(ideal, form="released") == released and type(ideal).module == released.module
