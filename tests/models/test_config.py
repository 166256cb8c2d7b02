"""Configurations: unusable fields raise, defaults are derived, overrides of presets are parsed."""

import dataclasses
import re
import subprocess
import sys
from itertools import product

import pytest

from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.numbers import LONGEST, parse_float, parse_int
from headcount.models.configs.presets import PRESETS, assignments, format_overrides, parse_overrides, preset
from headcount.models.configs.registry import ATTENTIONS, MODELS
from headcount.models.configs.suggest import choices, did_you_mean, nearest

MHA = {"attention": "mha", "d_model": 15, "num_heads": 3}
MOA = {"attention": "moa", "d_model": 13, "num_experts": 11, "top_k": 3, "head_dim": 5}
MAE = {"attention": "mae", "d_model": 15, "num_heads": 3}
MOH = {"attention": "moh", "d_model": 8, "num_heads": 4, "num_shared_heads": 2, "top_k": 1}
MLA = dict(attention="mla", d_model=13, num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11)
SWITCHHEAD = dict(attention="switchhead", d_model=13, num_heads=3, head_dim=4, num_experts=7, top_k=2)
AGGREGATED = {**MHA, "attention": "aggregated", "side": 6, "pool_ratio": 2, "position_width": 7}
MODEL = {**MHA, "d_ff": 17, "vocab_size": 19}
ENCODER_DECODER = {**MODEL, "model": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 1}
MASKED_LM = {**MODEL, "model": "masked_lm", "num_layers": 2, "max_positions": 23}
LLAMA = {**MODEL, "model": "llama", "num_layers": 3, "num_heads": 6, "head_dim": 4}
DIT = {**MHA, "model": "dit", "d_model": 20, "head_dim": 5, "num_layers": 2, "patch_size": 3, "latent_size": 15}
KERNELS = {"encoder_kernel_sizes": (3, 5), "decoder_kernel_sizes": (7,)}
CONVOLUTION = {**MODEL, **KERNELS, "model": "convolution", "convolution": "light", "num_weight_heads": 3}
JETMOE = {
    **MOA, "model": "jetmoe", "d_ff": 17, "num_layers": 2, "vocab_size": 19, "head_dim": 12, "num_kv_heads": 3,
    "ffn_num_experts": 7, "ffn_top_k": 3,
}  # fmt: skip
DECODER = {**MODEL, "model": "decoder", "num_layers": 2}
DEEPSEEK = {
    **MLA, "model": "deepseek", "d_ff": 17, "num_layers": 2, "vocab_size": 19, "rotary_dim": 4, "ffn_num_experts": 7,
    "ffn_top_k": 3, "num_dense_layers": 1, "expert_d_ff": 5, "num_shared_experts": 3,
}  # fmt: skip
TRANSNEXT = dict(
    model="transnext", attention="aggregated", d_model=(10, 21), num_heads=(2, 3), depths=(1, 2), mlp_ratio=(5, 3),
    pool_ratio=(5, 1), image_size=40, num_classes=7, position_width=5,
)  # fmt: skip
UNEVEN = dict(attention="moh", num_heads=(6, 4, 6), num_shared_heads=(2, 1, 6), top_k=(3, 4, 0), num_kv_heads=2)
BASES = [
    MHA, MOA, MAE, MOH, MLA, SWITCHHEAD, AGGREGATED, ENCODER_DECODER, MASKED_LM, LLAMA, DIT, CONVOLUTION, JETMOE,
    DECODER, DEEPSEEK,
]  # fmt: skip
FROM_0 = {"num_shared_heads", "ffn_num_experts", "ffn_top_k", "ffn_output_bias", "num_predicted"}
"""Whole numbers that may be 0; so may the top_k of routed heads."""
# fields, changes, and words of the error
UNUSABLE = [
    (MOA, {"top_k": 12}, "top_k must lie in 1..num_experts = 1..11, not 12"),
    (MOA, {"num_kv_heads": 2}, "num_kv_heads must divide head_dim, and 2 does not divide 5"),
    (MOA, {"attention": "mqa"}, "attention must be one of"),
    (MOA, {"model": "gpt"}, "model must be one of"),
    (MHA, {"num_heads": 2}, "num_heads must divide d_model, and 2 does not divide 15"),
    (MHA, {"num_kv_heads": 2}, "num_kv_heads must divide num_heads, and 2 does not divide 3"),
    (MHA, {"top_k": 3}, "unknown field 'top_k'"),
    (MAE, {"num_heads": 1}, "num_heads must be at least 2, not 1"),
    (MAE, {"gate": "mean"}, "gate must be one of sequence, running, memory, not 'mean'"),
    (MAE, {"causal_gate": "sequence"}, "causal_gate must be one of running, memory, not 'sequence'"),
    (MOH, {"top_k": 3}, "top_k must lie in 0..num_heads - num_shared_heads = 0..2, not 3"),
    (MOH, {"num_shared_heads": 5}, "num_shared_heads must lie in 0..num_heads = 0..4, not 5"),
    (MOH, {"num_shared_heads": 0, "top_k": 0}, "must not both be 0"),
    (MOH, {"num_shared_heads": 3, "router": "query_norm"}, "num_heads - num_shared_heads of at least 2, not 1"),
    (MLA, {"num_heads": 5, "head_dim": None}, "num_heads must divide d_model, and 5 does not divide 13"),
    (MLA, {"form": "dense"}, "form must be one of released, ideal, not 'dense'"),
    (SWITCHHEAD, {"top_k": 8}, "top_k must lie in 1..num_experts = 1..7, not 8"),
    (SWITCHHEAD, {"head_dim": None}, "num_heads must divide d_model, and 3 does not divide 13"),
    (AGGREGATED, {"num_heads": 4}, "num_heads must divide d_model, and 4 does not divide 15"),
    (AGGREGATED, {"pool_ratio": 4}, "pool_ratio must divide the side of the grid, and 4 does not divide 6"),
    (AGGREGATED, {"side": 1}, "side must be at least 2, not 1"),
    (AGGREGATED, {"pretrained_side": 1}, "pretrained_side must be at least 2, not 1"),
    (CONVOLUTION, {"convolution": "heavy"}, "convolution must be one of light, dynamic, not 'heavy'"),
    (CONVOLUTION, {"spelling": "cuda"}, "must be one of windows, band, not 'cuda'"),
    (CONVOLUTION, {"num_weight_heads": 4}, "num_weight_heads must divide d_model, and 4 does not divide 15"),
    (CONVOLUTION, {"encoder_kernel_sizes": ()}, "the number of encoder_kernel_sizes must be at least 1, not 0"),
    (CONVOLUTION, {"decoder_kernel_sizes": (3, 0)}, "decoder_kernel_sizes must be at least 1, not 0"),
    (DIT, {"patch_size": 4}, "patch_size must divide latent_size, and 4 does not divide 15"),
    (DIT, {"d_model": 18}, "d_model must be a multiple of 4"),
    (DIT, {"frequency_width": 3}, "frequency_width must be even"),
    (JETMOE, {"num_kv_heads": 4}, "kv_head_dim must be even for rotary positions, not 3"),
    (LLAMA, {**MLA, "d_model": 15, "rotary_dim": 3}, "rotary_dim must be even for rotary positions, not 3"),
    (LLAMA, {"attention": "mae", "num_heads": 3}, "attention must be one of"),
    (LLAMA, {"head_dim": 5}, "head_dim must be even for rotary positions, not 5"),
    (LLAMA, UNEVEN, "layer 1: top_k must lie in 0..num_heads - num_shared_heads = 0..3, not 4"),
    (LLAMA, {"ffn_num_experts": 3, "ffn_top_k": 4}, "ffn_top_k must lie in 1..ffn_num_experts = 1..3, not 4"),
    (LLAMA, {"ffn_num_experts": 3}, "ffn_top_k must lie in 1..ffn_num_experts = 1..3, not 0"),
    (LLAMA, {"ffn_top_k": 2}, "ffn_top_k must lie in 0..ffn_num_experts = 0..0, not 2"),
    (TRANSNEXT, {"image_size": 44}, "image_size must be a multiple of 8"),
    (TRANSNEXT, {"image_size": 8}, "image_size must be a multiple of 8, the stride of 2 stages, from 16 on, not 8"),
    (TRANSNEXT, {"image_size": 40.0}, "image_size must be a whole number, not 40.0"),
    (TRANSNEXT, {"pretrained_size": 225}, "pretrained_size must be a multiple of 8"),
    (TRANSNEXT, {"image_size": 48}, "stage 0: pool_ratio must divide the side of the grid, and 5 does not divide 12"),
    (TRANSNEXT, {"depths": (1, 0)}, "depths must be at least 1, not 0"),
    (TRANSNEXT, {"depths": ()}, "depths must have the number of layers of at least one stage"),
    (TRANSNEXT, {"depths": (1, 2, 3)}, "d_model takes one whole number or one for each of 3 stages, not 2"),
    (TRANSNEXT, {"mlp_ratio": (5,)}, "mlp_ratio takes one for each of 2 stages, not 1"),
    (TRANSNEXT, {"num_heads": (2, 4)}, "stage 1: num_heads must divide d_model, and 4 does not divide 21"),
    (TRANSNEXT, {"num_heads": (2, 3, 4)}, "num_heads takes one whole number or one for each of 2 stages, not 3"),
    (TRANSNEXT, {"side": 5}, "unknown field 'side'"),
    (ENCODER_DECODER, {**AGGREGATED}, "attention aggregated is of a grid of tokens"),
]


def variant_id(base):
    return base.get("model", base["attention"])


@pytest.mark.parametrize("base, change, words", UNUSABLE, ids=[f"{variant_id(b)}-{c}" for b, c, _ in UNUSABLE])
def test_unusable_fields_raise(base, change, words):
    with pytest.raises(ConfigError, match=f"^.*{re.escape(words)}.*$"):
        make_config({**base, **change})


@pytest.mark.parametrize("base", BASES, ids=variant_id)
def test_every_field_has_limits(base):
    make_config(base)
    for field, kind in field_types(base.get("model"), base["attention"]).items():
        values = []
        if kind in (int, int | None):
            may_be_0 = field in FROM_0 or field == "top_k" and base["attention"] == "moh"
            values = [-1] if may_be_0 else [-1, 0]
            values += [True, 2.5] if field != "num_layers" else []
        if kind is float:
            values = [-0.1, 1.0] if field.endswith("dropout") else [-0.1, float("nan")]
        for value in values:
            experts = {"ffn_num_experts": 3, "ffn_top_k": 1} if field.startswith("ffn_") else {}
            with pytest.raises(ConfigError, match=rf"{field} must .*not {value}"):
                make_config({**base, **experts, field: value})


@pytest.mark.parametrize("base", [MHA, MOA, MAE, MOH, ENCODER_DECODER, MASKED_LM, CONVOLUTION], ids=variant_id)
def test_missing_fields_raise(base):
    for field in base.keys() - {"model", "attention", "head_dim"}:
        with pytest.raises(ConfigError, match=rf"needs {field}$"):
            make_config({k: v for k, v in base.items() if k != field})


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"transnext"}))
def test_model_width_is_the_width_of_its_attention(name):
    of_model = next(config for config in map(preset, PRESETS) if config.variant == name)
    with pytest.raises(ConfigError, match="d_model"):
        dataclasses.replace(of_model, d_model=4 * of_model.d_model)


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


def test_configs_and_presets_do_not_import_torch():
    code = (
        "import sys, headcount.models.configs.make, headcount.models.configs.presets; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", [name for name in PRESETS if "moa-" in name])
def test_moa_preset_matches_its_name(name):
    attention = preset(name).attention
    assert name.endswith(f"moa-{attention.top_k}K{attention.num_experts}E{attention.head_dim}D")
    assert attention.bias == name.startswith("mlm-")


@pytest.mark.parametrize(
    "name, overrides, texts",
    [
        ("transformer-base", {}, []),
        # the preset's own, and a default of its attention
        ("transformer-base", {"num_heads": 8, "attention_dropout": 0.0}, []),
        ("transformer-base", {"num_heads": 4, "bias": False}, ["num_heads=4", "bias=false"]),
        ("transformer-base", {"num_kv_heads": 2}, ["num_kv_heads=2"]),
        # 512 / 8, which would change with either: a size that is derived where it is left out is named
        ("transformer-base", {"head_dim": 64}, ["head_dim=64"]),
        (
            "transformer-base",
            {"attention": "moa", "num_experts": 7, "top_k": 3, "head_dim": 5, "balance_loss_weight": 0.01},
            ["attention=moa", "num_experts=7", "top_k=3", "head_dim=5"],
        ),
        ("moa-8K8E128D", {"top_k": 3, "dropout": 0.1, "ffn_dropout": 0.0}, ["top_k=3", "dropout=0.1"]),
        ("moa-8K8E128D", {"bias": True, "gates": "released"}, ["bias=true", "gates=released"]),
        ("lightconv", {"encoder_kernel_sizes": (3, 5)}, ["encoder_kernel_sizes=3,5"]),
        # where layers may differ
        ("dit-s2", {"num_heads": (3, 5) * 6}, [f"num_heads={','.join(['3', '5'] * 6)}"]),
    ],
)
def test_overrides_round_trip(name, overrides, texts):
    assert sorted(format_overrides(name, overrides)) == sorted(texts)
    assert assignments(",".join([name, *texts])) == texts
    assert preset(name, parse_overrides(name, texts)) == preset(name, overrides)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("moa-8K8E128D", "top_k=two", "top_k takes a whole number, not 'two'"),
        ("moa-8K8E128D", "top_k", "top_k has no value; write top_k=VALUE"),
        ("moa-8K8E128D", "top_k=2.5", "top_k takes a whole number, not '2.5'"),
        ("moa-8K8E128D", "bias=1", "bias takes true or false, not '1'"),
        ("moa-8K8E128D", "dropout=much", "dropout takes a number, not 'much'"),
        ("lightconv", "encoder_kernel_sizes=3,x", "encoder_kernel_sizes takes whole numbers with commas, not '3,x'"),
        ("llm-s", "num_heads=3,x", "num_heads takes a whole number, or one for each layer with commas, not '3,x'"),
        ("llm-s", "attention=x", f"attention must be one of {', '.join(ATTENTIONS)}, not 'x'"),
        ("moa-16K32E256D", "recipe=x", "unknown recipe 'x' of moa-16K32E256D; choose from paper, paper-en-fr"),
        ("mlm-moa-8K8E128D", "recipe=x", "unknown recipe 'x' of mlm-moa-8K8E128D; choose from paper"),
        ("llm-s", "recipe=paper", "llm-s has no recipe; those that have one are moa-8K8E128D, moa-16K32E256D, "),
    ],
)
def test_unusable_overrides_raise(name, text, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        parse_overrides(name, [text])
    field, _, value = text.partition("=")
    if field in ("recipe", "attention"):
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            preset(name, {field: value})


def test_images_need_attention_of_a_grid():
    with pytest.raises(ConfigError, match="in a transnext model, not 'mha'$"):
        preset("transnext-micro", {"attention": "mha"})


def test_another_attention_keeps_the_sizes_of_the_model():
    changes = ["num_shared_heads=2", "attention=moh", "top_k=3"]
    config = preset("transformer-big", parse_overrides("transformer-big", changes))
    assert (config.attention.variant, config.attention.num_heads, config.d_ff) == ("moh", 16, 4096)
    config = preset("moh-dit-l2-75", {"attention": "mha"})
    assert [layer.num_heads for layer in config.layers] == [8] * 8 + [16] * 8 + [24] * 8


@pytest.mark.parametrize(
    "word, found",
    [
        ("num_head", ["num_heads", "num_kv_heads"]),
        ("TOP_K", ["top_k"]),
        # no name looks like these, and some contain them
        ("kv", ["num_kv_heads", "Num_KV_Groups"]),
        ("roups", ["Num_KV_Groups"]),
        # one letter says nothing
        ("k", []),
        ("xyz", []),
        ("", []),
    ],
)
def test_nearest_names(word, found):
    assert nearest(word, ["d_model", "num_heads", "num_kv_heads", "top_k", "Num_KV_Groups"]) == found


def test_at_most_three_suggestions():
    layers = [f"{kind}-of-a-model-of-{size}" for kind in ("aa", "bb") for size in ("xs", "ys")]
    assert nearest("of", layers) == layers[:3]
    assert len(nearest("aa-of-a-model-of-s", layers)) == 3
    question = "did you mean {}, {} or {}?".format(*layers)
    assert did_you_mean("of", layers) == f"; {question}" and did_you_mean("xyz", layers) == ""
    assert choices("of", layers) == f"{question} choose from {', '.join(layers)}"


WHOLE = {"0": 0, "-7": -7, "+7": 7, "007": 7, "9" * LONGEST: 10**LONGEST - 1}
DECIMAL = {"0": 0.0, "-7": -7.0, "1.5": 1.5, ".5": 0.5, "2.": 2.0, "1e3": 1000.0, "2.5E-1": 0.25, "+1e+2": 100.0}
NEITHER = ("", " ", "-", "٣", "²", "１", "1_000", "0x10", " 1", "1\n", "nan", "inf", "1/2", "one", "9" * (LONGEST + 1))


@pytest.mark.parametrize(
    "read, kind, values", [(parse_int, int, WHOLE), (parse_float, float, DECIMAL)], ids=["int", "float"]
)
def test_numbers_are_parsed(read, kind, values):
    for text, value in values.items():
        assert read(text) == value and type(read(text)) is kind


@pytest.mark.parametrize(
    "read, text",
    [
        *product((parse_int, parse_float), NEITHER),
        (parse_int, "1.0"),
        (parse_int, "1e3"),
        (parse_float, "1e999"),
        (parse_float, "-1e309"),
    ],
)
def test_other_texts_raise(read, text):
    with pytest.raises(ValueError):
        read(text)
