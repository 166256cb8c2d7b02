"""Convert the configuration of a dense model to mixture-of-head attention.

Importable without torch.
"""

from collections.abc import Sequence
from dataclasses import replace

from headcount.models.configs.base import ConfigError, Layered, ModelConfig
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
    each = (_each(name, heads, len(layers)) for name, heads in (("shared", shared), ("routed", routed)))
    made = []
    for dense, num_shared_heads, top_k in zip(layers, *each, strict=True):
        if not isinstance(dense, MultiHeadAttentionConfig):
            raise ConfigError(f"only attention {MultiHeadAttentionConfig.variant} is converted, not {dense.variant}")
        heads = {"num_shared_heads": num_shared_heads, "top_k": top_k, "router": router}
        made.append(MixtureOfHeadAttentionConfig(**vars(dense), **heads))
    return replace(config, layers=tuple(made)) if isinstance(config, Layered) else replace(config, attention=made[0])


def _each(name: str, heads: Heads, layers: int) -> Sequence[int]:
    if isinstance(heads, int):
        return (heads,) * layers
    if len(heads) != layers:
        raise ConfigError(f"{name} takes one whole number or one for each of {layers} layers, not {len(heads)}")
    return heads
