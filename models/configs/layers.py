"""Attention layers by name, as presets are models by name: none has biases, so that like is compared with like.

Importable without torch.
"""

from dataclasses import replace

from headcount.models.configs.base import AttentionConfig, ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.nearest import choices
from headcount.models.configs.presets import preset
from headcount.models.configs.registry import brought

OF_PRESETS = {
    "mha-base": "transformer-base",
    "mha-big": "transformer-big",
    **{
        name: name
        for name in (
            "moa-8K8E128D",
            "moa-8K8E256D",
            "moa-8K16E256D",
            "moa-8K32E64D",
            "moa-8K32E128D",
            "moa-8K32E256D",
            "moa-4K32E256D",
            "moa-16K32E256D",
        )
    },
}
"""Layer -> the preset whose attention it is."""

_MOH = {
    "moh-32x64": {"attention": "moh", "d_model": 2048, "num_heads": 32, "head_dim": 64},
    "moh-llama3": {
        "attention": "moh",
        "d_model": 4096,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "router": "query_norm",
    },
}
# shared and routed of 32 heads, at each share of heads that the MoH paper times
_SELECTED = {100: (16, 16), 90: (16, 13), 75: (16, 8), 50: (8, 8)}
OF_SIZES = {
    f"{shape}-{share}": {**sizes, "num_shared_heads": shared, "top_k": routed}
    for shape, sizes in _MOH.items()
    for share, (shared, routed) in _SELECTED.items()
} | {name: {"attention": variant, **fields} for variant, name, fields in brought("LAYERS")}
"""Layer -> its fields."""

LAYERS = (*OF_PRESETS, *OF_SIZES)


def layer(name: str) -> AttentionConfig:
    """The layer called ``name``. ConfigError with the names where there is none."""
    if name in OF_PRESETS:
        return replace(preset(OF_PRESETS[name]).attention, bias=False)
    if name in OF_SIZES:
        return make_config(OF_SIZES[name])
    raise ConfigError(f"unknown layer {name!r}; {choices(name, LAYERS, 'headcount latency --list')}")
