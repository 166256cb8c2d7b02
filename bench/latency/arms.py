"""What is timed: layers and models by name, and beside each the dense layers that it must be judged against."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headcount.bench.errors import UsageError
from headcount.models.configs.base import AttentionConfig, ModelConfig
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig
from headcount.models.configs.presets import PRESETS, preset

IMPLEMENTATIONS = {
    "mha": ("reference", "fused"),
    "moa": ("reference", "gathered", "dense-all", "grouped", "loop"),
    "moh": ("reference", "fused", "ragged"),
}
"""What each variant can be run by; ``auto`` picks one of them."""

TIMED = {"mha": ("fused",), "moa": ("dense-all", "grouped", "loop"), "moh": ("fused", "ragged")}
"""What is timed unless something else is asked for."""

TABLE_3 = (
    "moa-8K8E128D",
    "moa-8K8E256D",
    "moa-8K16E256D",
    "moa-8K32E64D",
    "moa-8K32E128D",
    "moa-8K32E256D",
    "moa-4K32E256D",
    "moa-16K32E256D",
)
DENSE = {"mha-base": "transformer-base", "mha-big": "transformer-big"}
# Heads shared and heads routed of 32, at each share of heads that the MoH paper times.
MOH_HEADS = {100: (16, 16), 90: (16, 13), 75: (16, 8), 50: (8, 8)}
MOH_SHAPES = {
    "moh-32x64": {"d_model": 2048, "num_heads": 32, "head_dim": 64},
    "moh-llama3": {
        "d_model": 4096,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "router": "query_norm",
    },
}
MOH = tuple(f"{shape}-{share}" for shape in MOH_SHAPES for share in MOH_HEADS)
LAYERS = (*DENSE, *TABLE_3, *MOH)


@dataclass(frozen=True)
class ArmSpec:
    """One arm: what is built, how it runs, and its role: ``subject``, or what subjects are compared with:
    ``mha`` (same model width), ``mha-inner`` (same inner width), ``mqa`` (same K and D, no router), ``dense``
    (the same MoH layer with every head computed)."""

    name: str
    config: AttentionConfig | ModelConfig
    implementation: str
    role: str


def layer_config(name: str) -> AttentionConfig:
    """The layer called ``name``, without biases, so that all layers compare like with like. UsageError with the
    names where there is none."""
    if name not in LAYERS:
        raise UsageError(f"unknown layer {name!r}; choose from {', '.join(LAYERS)}")
    if name in MOH:
        shape, _, share = name.rpartition("-")
        shared, routed = MOH_HEADS[int(share)]
        return MixtureOfHeadAttentionConfig(num_shared_heads=shared, top_k=routed, **MOH_SHAPES[shape])
    return replace(preset(DENSE.get(name, name)).attention, bias=False)


def layer_arms(name: str, implementations: Sequence[str] | None) -> list[ArmSpec]:
    """The arms of a layer: itself by each implementation, and the dense layers beside it."""
    config = layer_config(name)
    arms = [ArmSpec(name, config, how, "subject") for how in _chosen(config.variant, implementations)]
    if config.variant == "moa":
        K, D, d_model = config.top_k, config.head_dim, config.d_model
        base = layer_config("mha-base") if d_model == 512 else layer_config("mha-big")
        arms += [
            ArmSpec(f"mqa-{K}x{D}", _dense(d_model, K, D, 1), "fused", "mqa"),
            ArmSpec(f"mha-{base.num_heads}x{base.head_dim}", base, "fused", "mha"),
            ArmSpec(f"mha-{K}x{D}", _dense(d_model, K, D, K), "fused", "mha-inner"),
        ]
    if config.variant == "moh":
        arms = [replace(arm, role="dense") if arm.implementation == "fused" else arm for arm in arms]
        dense = _dense(config.d_model, config.num_heads, config.head_dim, config.num_kv_heads)
        arms.append(ArmSpec(f"mha-{config.num_heads}x{config.head_dim}", dense, "fused", "mha"))
    return arms


def model_arms(name: str, implementations: Sequence[str] | None) -> list[ArmSpec]:
    """The arms of a model: itself by each implementation. UsageError for a model without a module."""
    if name not in PRESETS:
        raise UsageError(f"unknown model {name!r}; choose from {', '.join(timed_models())}")
    config = preset(name)
    if not config.has_module:
        raise UsageError(f"{name} is a closed form only; choose from {', '.join(timed_models())}")
    chosen = _chosen(config.attention.variant, implementations)
    if not implementations and config.variant == "llama":
        # Packed heads have no causal form.
        chosen = [how for how in chosen if how != "ragged"]
    return [ArmSpec(name, config, how, "subject") for how in chosen]


def timed_models() -> list[str]:
    """Every preset that can be built."""
    return [name for name in PRESETS if preset(name).has_module]


def _dense(d_model: int, num_heads: int, head_dim: int, num_kv_heads: int) -> MultiHeadAttentionConfig:
    return MultiHeadAttentionConfig(
        d_model=d_model, num_heads=num_heads, head_dim=head_dim, num_kv_heads=num_kv_heads, bias=False
    )


def _chosen(variant: str, implementations: Sequence[str] | None) -> Sequence[str]:
    known = (*IMPLEMENTATIONS[variant], "auto")
    if not implementations:
        return TIMED[variant]
    chosen = [how for how in implementations if how in known]
    if not chosen:
        raise UsageError(
            f"{variant} has no implementation {', '.join(implementations)}; choose from {', '.join(known)}"
        )
    return chosen
