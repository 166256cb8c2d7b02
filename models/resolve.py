"""From a config to the module it describes."""

import pkgutil

from torch import nn

from headcount.models.configs.base import AttentionConfig, ConfigError, ModelConfig


def make_module(config: AttentionConfig | ModelConfig) -> nn.Module:
    """The module of ``config``: class ``config.module`` of file ``models/<config.variant>.py``.

    Raises ConfigError for a variant that has formulas but no module.
    """
    if config.module is None:
        raise ConfigError(f"{config.variant} has a closed form only, no module")
    return pkgutil.resolve_name(f"headcount.models.{config.variant}:{config.module}")(config)
