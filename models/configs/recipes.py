"""How the papers train their models, as far as it is fields of a configuration: ``--set recipe=paper``.

Presets have no dropout: they are for counting. Importable without torch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headcount.models.configs.base import ConfigError


class Recipe(NamedTuple):
    """A row of Table 6 of the MoA paper by its name there: dropout of layers, attention weights and feed-forward."""

    run: str
    dropout: float
    attention_dropout: float
    ffn_dropout: float

    @property
    def fields(self) -> dict[str, float]:
        """The fields that it sets."""
        return {name: value for name, value in self._asdict().items() if name != "run"}


# the tables' models are those of En-De
_BASE = {
    "paper": Recipe("En-De base", dropout=0.2, attention_dropout=0.2, ffn_dropout=0.1),
    "paper-en-fr": Recipe("En-Fr base", dropout=0.1, attention_dropout=0.0, ffn_dropout=0.1),
}
_BIG = {
    "paper": Recipe("En-De big", dropout=0.2, attention_dropout=0.2, ffn_dropout=0.1),
    "paper-en-fr": Recipe("En-Fr big", dropout=0.1, attention_dropout=0.1, ffn_dropout=0.1),
}
_MASKED_LM = {"paper": Recipe("WikiText-103", dropout=0.1, attention_dropout=0.0, ffn_dropout=0.0)}
RECIPES: Mapping[str, Mapping[str, Recipe]] = {
    "moa-8K8E128D": _BASE,
    "moa-16K32E256D": _BIG,
    "mlm-moa-8K8E128D": _MASKED_LM,
    "mlm-moa-8K8E256D": _MASKED_LM,
    "mlm-moa-8K16E256D": _MASKED_LM,
    "mlm-moa-8K32E256D": _MASKED_LM,
    "mlm-moa-8K64E256D": _MASKED_LM,
}
"""Preset -> its recipes by name."""


def expanded(preset: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``overrides`` with the fields of their ``recipe`` in its place; what they set themselves stays. ConfigError, with
    the choices, for a recipe that ``preset`` does not have."""
    values = dict(overrides)
    name = values.pop("recipe", None)
    if name is None:
        return values
    if preset not in RECIPES:
        raise ConfigError(f"{preset} has no recipe; those that have one are {', '.join(RECIPES)}")
    if name not in RECIPES[preset]:
        raise ConfigError(f"unknown recipe {name!r} of {preset}; choose from {', '.join(RECIPES[preset])}")
    return RECIPES[preset][name].fields | values
