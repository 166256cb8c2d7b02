"""Overrides of a preset: round trip, recipes, and suggestions for unknown names."""

import re

import pytest

from headcount.models.configs.base import ConfigError
from headcount.models.configs.presets import assignments, parse_overrides, preset, spelled
from headcount.models.configs.suggest import choices, did_you_mean, nearest

FIELDS = ["d_model", "num_heads", "num_kv_heads", "top_k", "Num_KV_Groups"]


@pytest.mark.parametrize(
    "name, overrides, texts",
    [
        ("transformer-base", {}, []),
        # the preset's own, and a default of its attention
        ("transformer-base", {"num_heads": 8, "attention_dropout": 0.0}, []),
        ("transformer-base", {"num_heads": 4, "bias": False}, ["num_heads=4", "bias=false"]),
        # 512 / 8, which would change with either: a size that is derived where it is left out is said
        ("transformer-base", {"head_dim": 64}, ["head_dim=64"]),
        (
            "transformer-base",
            {"attention": "moa", "num_experts": 7, "top_k": 3, "head_dim": 5, "balance_loss_weight": 0.01},
            ["attention=moa", "num_experts=7", "top_k=3", "head_dim=5"],
        ),
        ("moa-8K8E128D", {"top_k": 3, "dropout": 0.1, "ffn_dropout": 0.0}, ["top_k=3", "dropout=0.1"]),
        ("lightconv", {"encoder_kernel_sizes": (3, 5)}, ["encoder_kernel_sizes=3,5"]),
    ],
)
def test_overrides_round_trip(name, overrides, texts):
    assert spelled(name, overrides) == texts
    assert assignments(",".join([name, *texts])) == texts
    assert preset(name, parse_overrides(name, texts)) == preset(name, overrides)


@pytest.mark.parametrize(
    "name, recipe, message",
    [
        ("moa-16K32E256D", "x", "unknown recipe 'x' of moa-16K32E256D; choose from paper, paper-en-fr"),
        ("mlm-moa-8K8E128D", "paper-en-fr", "unknown recipe 'paper-en-fr' of mlm-moa-8K8E128D; choose from paper"),
        ("llm-s", "paper", "llm-s has no recipe; those that have one are moa-8K8E128D, moa-16K32E256D, "),
    ],
)
def test_unknown_recipe_raises(name, recipe, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        preset(name, {"recipe": recipe})
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        parse_overrides(name, [f"recipe={recipe}"])


@pytest.mark.parametrize(
    "word, found",
    [
        ("num_head", ["num_heads", "num_kv_heads"]),
        ("TOP_K", ["top_k"]),
        # no name looks like these, and some hold them
        ("kv", ["num_kv_heads", "Num_KV_Groups"]),
        ("roups", ["Num_KV_Groups"]),
        # which one letter says nothing of
        ("k", []),
        ("xyz", []),
        ("", []),
    ],
)
def test_nearest_names(word, found):
    assert nearest(word, FIELDS) == found


def test_at_most_three_suggestions():
    layers = [f"{kind}-of-a-model-of-{size}" for kind in ("aa", "bb") for size in ("xs", "ys")]
    assert nearest("of", layers) == layers[:3]
    assert len(nearest("aa-of-a-model-of-s", layers)) == 3
    question = "did you mean {}, {} or {}?".format(*layers)
    assert did_you_mean("of", layers) == f"; {question}" and did_you_mean("xyz", layers) == ""
    assert choices("of", layers) == f"{question} choose from {', '.join(layers)}"
