"""Configurations: unusable fields raise, defaults are derived, overrides of presets are parsed."""

import dataclasses
import re
from fractions import Fraction
from typing import get_args

import pytest

from headcount.models.configs import targets
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.numbers import LONGEST, parse_element_bytes, parse_float, parse_int
from headcount.models.configs.presets import PRESETS, format_overrides, parse_overrides, preset
from headcount.models.configs.registry import ATTENTIONS, MODELS
from headcount.models.configs.suggest import choices, did_you_mean, nearest
from headcount.models.configs.targets import split
from tests.cases import (
    JETMOE,
    LLAMA,
    MAE,
    MHA,
    MLA,
    MOA,
    MODEL_FIELDS,
    MOH,
    NORM,
    SWITCHHEAD,
    TRANSLATION,
    configurations,
)  # fmt: skip

LAYER = dict(d_model=22)
GRID = dict(attention="aggregated", d_model=15, num_heads=3, side=6, pool_ratio=2)
LIGHT, IMAGE, STAGES = (MODEL_FIELDS[case] for case in ("light", "dit", "images"))
DENSE = {name: value for name, value in MODEL_FIELDS["decoder-learned"].items() if name != "num_heads"}
UNEVEN = MOH | dict(num_heads=(6, 4, 6), num_shared_heads=(2, 1, 6), top_k=(3, 4, 0))
BASES = {name: {"attention": config.variant, **dataclasses.asdict(config)} for name, config in configurations()}
BASES |= {f"{values['model']}-{values['attention']}": values for values in MODEL_FIELDS.values()}
"""Usable fields of every layer, and of every model with every attention that it has in the shared cases."""
FROM_0 = {"num_shared_heads", "ffn_num_experts", "ffn_top_k", "num_predicted"}
"""Whole numbers that may be 0; so may the top_k of routed heads."""
# fields, changes, and words of the error
UNUSABLE = [
    (LAYER | MOA, {"top_k": 8}, "top_k must lie in 1..num_experts = 1..7, not 8"),
    (LAYER | MOA, {"num_kv_heads": 2}, "num_kv_heads must divide head_dim, and 2 does not divide 5"),
    (LAYER | MOA, {"attention": "mqa"}, "attention must be one of"),
    (LAYER | MOA, {"model": "gpt"}, "model must be one of"),
    (LAYER | MHA, {"num_heads": 3}, "num_heads must divide d_model, and 3 does not divide 22"),
    (LAYER | MHA, {"num_kv_heads": 4}, "num_kv_heads must divide num_heads, and 4 does not divide 2"),
    (LAYER | MHA, {"top_k": 3}, "unknown field 'top_k'"),
    (LAYER | MAE, {"num_heads": 1}, "num_heads must be at least 2, not 1"),
    (LAYER | MAE, {"causal_gate": "sequence"}, "causal_gate must be one of running, memory, not 'sequence'"),
    (LAYER | MOH, {"top_k": 5}, "top_k must lie in 0..num_heads - num_shared_heads = 0..4, not 5"),
    (LAYER | MOH, {"num_shared_heads": 7}, "num_shared_heads must lie in 0..num_heads = 0..6, not 7"),
    (LAYER | MOH, {"num_shared_heads": 0, "top_k": 0}, "must not both be 0"),
    (LAYER | NORM, {"num_shared_heads": 5, "top_k": 1}, "num_heads - num_shared_heads of at least 2, not 1"),
    (LAYER | SWITCHHEAD, {"top_k": 8}, "top_k must lie in 1..num_experts = 1..7, not 8"),
    (GRID, {"pool_ratio": 4}, "pool_ratio must divide side, and 4 does not divide 6"),
    (GRID, {"side": 1}, "side must be at least 2, not 1"),
    (LIGHT, {"num_weight_heads": 4}, "num_weight_heads must divide d_model, and 4 does not divide 22"),
    (LIGHT, {"encoder_kernel_sizes": ()}, "the number of encoder_kernel_sizes must be at least 1, not 0"),
    (LIGHT, {"decoder_kernel_sizes": (3, 0)}, "decoder_kernel_sizes must be at least 1, not 0"),
    (IMAGE, {"patch_size": 4}, "patch_size must divide latent_size, and 4 does not divide 15"),
    (IMAGE, {"d_model": 18}, "d_model must be a multiple of 4"),
    (IMAGE, {"frequency_width": 3}, "frequency_width must be even"),
    (JETMOE, {"num_kv_heads": 4}, "kv_head_dim must be even for rotary positions, not 3"),
    (LLAMA | MLA, {"rotary_dim": 3}, "rotary_dim must be even for rotary positions, not 3"),
    (LLAMA | MAE, {}, "attention must be one of"),
    (LLAMA | UNEVEN, {}, "layer 1: top_k must lie in 0..num_heads - num_shared_heads = 0..3, not 4"),
    (LLAMA | MOH, {"ffn_num_experts": 3, "ffn_top_k": 4}, "ffn_top_k must lie in 1..ffn_num_experts = 1..3, not 4"),
    (LLAMA | MOH, {"ffn_top_k": 2}, "ffn_top_k must lie in 0..ffn_num_experts = 0..0, not 2"),
    (STAGES, {"image_size": 84}, "image_size must be a multiple of 16, the stride of 3 stages, from 32 on, not 84"),
    (STAGES, {"image_size": 16}, "image_size must be a multiple of 16, the stride of 3 stages, from 32 on, not 16"),
    (STAGES, {"image_size": 80.0}, "image_size must be a whole number, not 80.0"),
    (STAGES, {"pretrained_size": 225}, "pretrained_size must be a multiple of 16"),
    (STAGES, {"image_size": 96}, "stage 0: pool_ratio must divide side, and 5 does not divide 24"),
    (STAGES, {"depths": (1, 0)}, "depths must be at least 1, not 0"),
    (STAGES, {"depths": ()}, "depths must have the number of layers of at least one stage"),
    (STAGES, {"depths": (1, 2)}, "d_model takes one whole number or one for each of 2 stages, not 3"),
    (STAGES, {"mlp_ratio": (5,)}, "mlp_ratio takes one for each of 3 stages, not 1"),
    (STAGES, {"num_heads": (2, 4, 11)}, "stage 1: num_heads must divide d_model, and 4 does not divide 21"),
    (STAGES, {"side": 5}, "unknown field 'side'"),
    (DENSE, {"attention": "moa", **MOA}, "attention must be one of mha, not 'moa'; did you mean mha?"),
    (MODEL_FIELDS["deepseek"], {"num_dense_layers": 5}, "num_dense_layers must be at most 3, not 5"),
    (TRANSLATION | GRID, {"d_model": 15}, "attention aggregated is of a grid of tokens"),
]


every_base = pytest.mark.parametrize("base", BASES.values(), ids=BASES)


@pytest.mark.parametrize("base, change, words", UNUSABLE)
def test_unusable_fields_raise(base, change, words):
    with pytest.raises(ConfigError, match=f"^.*{re.escape(words)}.*$"):
        make_config({**base, **change})


@every_base
def test_every_field_has_limits(base):
    kinds = field_types(base.get("model"), base["attention"])
    assert not {"attention", "layers"} & kinds.keys()
    for field, kind in kinds.items():
        values = []
        if kind in (int, int | None):
            may_be_0 = field in FROM_0 or field == "top_k" and base["attention"].startswith("moh")
            values = [-1] if may_be_0 else [-1, 0]
            values += [True, 2.5] if field != "num_layers" else []
        if kind is float:
            values = [-0.1, 1.0] if field.endswith("dropout") else [-0.1, float("nan")]
        if str in get_args(kind):
            values = ["x"]
        for value in values:
            experts = {"ffn_num_experts": 3, "ffn_top_k": 1} if field.startswith("ffn_") else {}
            with pytest.raises(ConfigError, match=rf"{field} must .*not {value!r}"):
                make_config({**base, **experts, field: value})


@every_base
def test_missing_fields_raise(base):
    kinds = ATTENTIONS[base["attention"]], *([MODELS[base["model"]]] if "model" in base else [])
    required = {f.name for kind in kinds for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING}
    for field in (required & base.keys()) - {"attention", "num_layers", "depths"}:
        with pytest.raises(ConfigError, match=rf"needs {field}$"):
            make_config({name: value for name, value in base.items() if name != field})


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"transnext"}))
def test_model_width_is_the_width_of_its_attention(name):
    of_model = next(config for config in map(preset, PRESETS) if config.variant == name)
    with pytest.raises(ConfigError, match="d_model"):
        dataclasses.replace(of_model, d_model=4 * of_model.d_model)


def test_default_sizes():
    config = make_config(dict(attention="mha", d_model=15, num_heads=3))
    assert (config.num_kv_heads, config.head_dim) == (3, 5)
    config = make_config(dict(attention="mla", d_model=5120, num_heads=40, query_rank=1536))
    assert (config.head_dim, config.rotary_dim, config.value_dim, config.kv_rank) == (128, 64, 128, 512)


@pytest.mark.parametrize(
    "name, overrides, texts",
    [
        ("transformer-base", {}, []),
        # a value of the preset, and a default of its attention
        ("transformer-base", {"num_heads": 8, "attention_dropout": 0.0}, []),
        ("transformer-base", {"num_heads": 4, "bias": False}, ["num_heads=4", "bias=false"]),
        # 512 / 8, which would change with either: a size that is derived where it is left out is named
        ("transformer-base", {"head_dim": 64}, ["head_dim=64"]),
        (
            "transformer-base",
            {"attention": "moa", "num_experts": 7, "top_k": 3, "head_dim": 5, "balance_loss_weight": 0.01},
            ["attention=moa", "num_experts=7", "top_k=3", "head_dim=5"],
        ),
        ("moa-8K8E128D", {"top_k": 3, "dropout": 0.1, "ffn_dropout": 0.0}, ["top_k=3", "dropout=0.1"]),
        ("lightconv", {"encoder_kernel_sizes": (3, 5)}, ["encoder_kernel_sizes=3,5"]),
        # where layers may differ
        ("dit-s2", {"num_heads": (3, 5) * 6}, [f"num_heads={','.join(['3', '5'] * 6)}"]),
    ],
)
def test_overrides_round_trip(name, overrides, texts):
    assert sorted(format_overrides(name, overrides)) == sorted(texts)
    assert split(",".join([name, *texts])) == (name, texts)
    assert preset(name, parse_overrides(name, texts)) == preset(name, overrides)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("moa-8K8E128D", "dropout=much", "dropout takes a number, not 'much'"),
        ("lightconv", "encoder_kernel_sizes=3,x", "encoder_kernel_sizes takes whole numbers with commas, not '3,x'"),
        ("llm-s", "num_heads=3,x", "num_heads takes a whole number, or one for each layer with commas, not '3,x'"),
        ("llm-s", "attention=x", f"attention must be one of {', '.join(ATTENTIONS)}, not 'x'"),
        ("moa-16K32E256D", "recipe=x", "unknown recipe 'x' of moa-16K32E256D; choose from paper, paper-en-fr"),
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
        # a single letter has no similar name
        ("k", []),
        ("xyz", []),
        ("", []),
    ],
)
def test_nearest_names(word, found):
    assert nearest(word, ["d_model", "num_heads", "num_kv_heads", "top_k", "Num_KV_Groups"]) == found


@pytest.mark.parametrize("text, size", [
    ("2", 2), ("0.5", Fraction(1, 2)), (".5", Fraction(1, 2)), ("1.0", 1), ("bf16", 2), ("int4", Fraction(1, 2)),
    ("fp8", 1), ("float32", 4), ("int3", Fraction(3, 8)), ("0.5625", Fraction(9, 16)),
])  # fmt: skip
def test_bytes_of_an_element_are_exact(text, size):
    assert parse_element_bytes(text) == size


@pytest.mark.parametrize("text", ["0", "0.0", "-1", "1e9", "int5", "", "2k", "bf16 ", "1/2", "9" * (LONGEST + 1)])
def test_no_bytes_of_an_element(text):
    with pytest.raises(ValueError):
        parse_element_bytes(text)


def test_at_most_three_suggestions():
    layers = [f"{kind}-of-a-model-of-{size}" for kind in ("aa", "bb") for size in ("xs", "ys")]
    assert nearest("of", layers) == layers[:3]
    assert len(nearest("aa-of-a-model-of-s", layers)) == 3
    question = "did you mean {}, {} or {}?".format(*layers)
    assert did_you_mean("of", layers) == f"; {question}" and did_you_mean("xyz", layers) == ""
    assert choices("of", layers) == f"{question} choose from {', '.join(layers)}"


WHOLE = {"0": 0, "-7": -7, "+7": 7, "007": 7, "9" * LONGEST: 10**LONGEST - 1}
WHOLE |= {"8k": 8_000, "8K": 8_000, "-1.5k": -1_500, "1.2G": 12 * 10**8, "3T": 3 * 10**12, "2P": 2 * 10**15}
WHOLE |= {"64Ki": 2**16, "1.5Mi": 3 * 2**19, "7Gi": 7 * 2**30, "7Ti": 7 * 2**40}
DECIMAL = {"0": 0.0, "-7": -7.0, "1.5": 1.5, ".5": 0.5, "2.": 2.0, "1e3": 1000.0, "2.5E-1": 0.25, "+1e+2": 100.0}
DECIMAL |= {"3.35T": 3.35e12, "494.5T": 494.5e12, ".5k": 500.0, "1e3G": 1e12, "0.1Ki": 102.4, "1.1P": 1.1e15}
NEITHER = ("", " ", "-", "٣", "²", "１", "1_000", "0x10", " 1", "1\n", "nan", "inf", "1/2", "one", "9" * (LONGEST + 1))
NEITHER += ("k", "7m", "7 k", "7kk", "7GB", "7e99999999999T", "1" * LONGEST + "k")


@pytest.mark.parametrize(
    "read, values, others",
    [(parse_int, WHOLE, ("1.0", "1e3", "1e3k", "1.0001k", ".5k")), (parse_float, DECIMAL, ("1e999", "-1e309"))],
    ids=["int", "float"],
)
def test_numbers_alone_are_parsed(read, values, others):
    for text, value in values.items():
        assert read(text) == value and type(read(text)) is type(value)
    for text in NEITHER + others:
        with pytest.raises(ValueError):
            read(text)


def test_configurations_and_functions_read_no_presets(monkeypatch):
    monkeypatch.setattr(targets, "PRESETS", None)
    assert not any(map(targets.has_closed_form, ("config.json", "hf:NAME", "model.py:make")))
