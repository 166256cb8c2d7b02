"""Attention layers by name, as presets are models by name: none has biases, so that costs compare like with like.

``[layers]`` of the TOML file of each variant holds its layers: every field, or the ``preset`` whose attention
they are. Importable without torch.
"""

from dataclasses import replace

from headcount.models.configs.base import AttentionConfig, ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset, read_section
from headcount.models.configs.suggest import choices

_FIELDS = read_section("layers")
LAYERS = tuple(_FIELDS)


def layer(name: str) -> AttentionConfig:
    """Return the layer called ``name``. Raises ConfigError, with the names, where there is none."""
    if name not in _FIELDS:
        raise ConfigError(f"unknown layer {name!r}; {choices(name, LAYERS, 'headcount latency --list')}")
    fields = _FIELDS[name]
    if "preset" in fields:
        return replace(preset(fields["preset"]).attention, bias=False)
    return make_config(fields)
