"""Make a configuration, with all validation, from one flat mapping of fields. Importable without torch.

A model's fields and its attention's fields are one flat namespace: presets and overrides name a field once, and
:func:`make_config` passes it to the model, its attention or both.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from headcount.models.configs.base import AttentionConfig, ConfigError, Layered, ModelConfig, check_choice
from headcount.models.configs.registry import ATTENTIONS, MODELS
from headcount.models.configs.suggest import choices

PER_LAYER = int | tuple[int, ...]
"""The type of an attention's integer in a model whose layers may differ: one for all, or one for each."""


def field_types(model: str | None, attention: str) -> dict[str, Any]:
    """Return every field of a model and its attention by name, with its type; the attention itself left out.

    Raises ConfigError, with the names, for a model or an attention that there is not.
    """
    check_choice("attention", attention, ATTENTIONS)
    if model is not None:
        check_choice("model", model, MODELS)
    inner = {f.name: f.type for f in fields(ATTENTIONS[attention])}
    outer = {f.name: f.type for f in fields(MODELS[model]) if f.name not in ("attention", "layers")} if model else {}
    if model and issubclass(MODELS[model], Layered):
        left_out = MODELS[model].derived_fields
        kinds = {name: kind for name, kind in inner.items() if name not in left_out}
        inner = {name: PER_LAYER if kind in (int, int | None) else kind for name, kind in kinds.items()}
    return inner | outer


def make_config(values: Mapping[str, Any]) -> AttentionConfig | ModelConfig:
    """Return the configuration of one flat mapping.

    ``attention`` names the variant (a key of ATTENTIONS), ``model`` the model around it (a key of MODELS) or is
    absent for a single layer; every other key is a field of either or both. Where a model's layers may differ,
    an integer of the attention may be a tuple with one for each layer.
    Raises ConfigError for an unknown or missing field and for sizes that cannot be built.
    """
    values = dict(values)
    model, attention = values.pop("model", None), values.pop("attention", None)
    known = field_types(model, attention)
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown field {name!r}; {choices(name, sorted(known))}")
    if model is None:
        return _construct(ATTENTIONS[attention], values)
    if issubclass(MODELS[model], Layered):
        return _construct(MODELS[model], {**values, "layers": _layers(MODELS[model], ATTENTIONS[attention], values)})
    return _construct(MODELS[model], {**values, "attention": _construct(ATTENTIONS[attention], values)})


def _layers(model, cls, values) -> tuple[AttentionConfig, ...]:
    units = model.units(values)
    own = {f.name for f in fields(cls)}
    listed = {name: value for name, value in values.items() if name in own and isinstance(value, tuple)}
    for name, value in listed.items():
        if len(value) != len(units):
            wanted = f"one whole number or one for each of {len(units)} {model.unit}s"
            raise ConfigError(f"{name} takes {wanted}, not {len(value)}")
    if not listed and not model.derived_fields:
        return (_construct(cls, values),) * len(units)
    layers = []
    for i, (times, derived) in enumerate(units):
        try:
            one = _construct(cls, {**values, **{name: value[i] for name, value in listed.items()}, **derived})
        except ConfigError as error:
            raise ConfigError(f"{model.unit} {i}: {error}") from None
        layers += [one] * times
    return tuple(layers)


def _construct(cls, values):
    required = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
    if required:
        raise ConfigError(f"{cls.__name__} needs {', '.join(required)}")
    chosen = {f.name: values[f.name] for f in fields(cls) if f.name in values}
    for f in fields(cls):
        if f.type in (int, int | None) and type(chosen.get(f.name)) not in (int, type(None)):
            raise ConfigError(f"{f.name} must be a whole number, not {chosen[f.name]!r}")
    return cls(**chosen)
