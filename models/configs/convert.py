"""Convert the configuration of a dense model to mixture-of-head attention.

Importable without torch.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

from headcount.models.configs.base import AttentionConfig, ConfigError, Layered, ModelConfig
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig, Router

Heads = int | Sequence[int]
"""One number for every layer, or one for each."""


def convert_config(
    config: ModelConfig, *, shared: Heads, routed: Heads, router: str = Router.QUERY_NORM
) -> ModelConfig:
    """Return ``config`` with MoH instead of MHA: the first ``shared`` heads are shared, ``routed`` others are selected.

    ``router``: ``query_norm`` has no parameters, as the MoH paper converts LLaMA3-8B; ``linear`` has the matrices of
    MoH. Keys and values of all heads stay, so that ``shared`` need not be whole groups of heads on one key/value head.
    Raises ConfigError for an attention that is not multi-head, for a number that is not one for each layer, and for
    heads that there are not.
    """
    layers = config.layers if isinstance(config, Layered) else (config.attention,)
    numbers = {"shared": _each("shared", shared, len(layers)), "routed": _each("routed", routed, len(layers))}
    made = [_layer(*one, router) for one in zip(layers, numbers["shared"], numbers["routed"], strict=True)]
    return replace(config, layers=tuple(made)) if isinstance(config, Layered) else replace(config, attention=made[0])


def _each(name: str, heads: Heads, layers: int) -> Sequence[int]:
    if isinstance(heads, int):
        return (heads,) * layers
    if len(heads) != layers:
        raise ConfigError(f"{name} takes one whole number or one for each of {layers} layers, not {len(heads)}")
    return heads


def _layer(dense: AttentionConfig, shared: int, routed: int, router: str) -> MixtureOfHeadAttentionConfig:
    if not isinstance(dense, MultiHeadAttentionConfig):
        raise ConfigError(f"only attention {MultiHeadAttentionConfig.variant} is converted, not {dense.variant}")
    values = {field.name: getattr(dense, field.name) for field in fields(dense)}
    return MixtureOfHeadAttentionConfig(**values, num_shared_heads=shared, top_k=routed, router=router)
