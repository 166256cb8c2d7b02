"""From a config to the module it describes."""

import pkgutil
from collections.abc import Callable

from torch import nn

from headcount.models.configs.base import AttentionConfig, ConfigError, LayerConfig, ModelConfig
from headcount.models.configs.mixture import MixtureFeedForwardConfig


def make_module(config: AttentionConfig | ModelConfig | MixtureFeedForwardConfig) -> nn.Module:
    """The module of ``config``: class ``config.module`` of file ``models/<config.file>.py``.

    Raises ConfigError for a variant that has formulas but no module.
    """
    if isinstance(config, LayerConfig):
        return make_module(config.attention)
    if config.module is None:
        raise ConfigError(f"{config.variant} has a closed form only, no module")
    return pkgutil.resolve_name(f"headcount.models.{config.file}:{config.module}")(config)


def arm_function(target: str) -> Callable:
    """The function of an arm by its ``target``; only now is its file imported."""
    return pkgutil.resolve_name(f"headcount.models.{target}")
