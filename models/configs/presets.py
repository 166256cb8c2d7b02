"""Models by the names their papers give them, as deltas against a base; and overriding of single fields.

Importable without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from headcount.models.configs.base import ConfigError, ModelConfig, one_of
from headcount.models.configs.jetmoe import JETMOE_PRESETS
from headcount.models.configs.make import PER_LAYER, field_types, make_config
from headcount.models.configs.nearest import choices
from headcount.models.configs.numbers import decimal, whole
from headcount.models.configs.presets_moh import MOH_PRESETS
from headcount.models.configs.presets_transnext import TRANSNEXT_PRESETS
from headcount.models.configs.recipes import expanded
from headcount.models.configs.registry import ATTENTIONS, MODELS, brought

_TRANSLATION = {
    "model": "encoder_decoder",
    "attention": "mha",
    "d_model": 512,
    "d_ff": 2048,
    "num_heads": 8,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "vocab_size": 32000,
}
_BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16}
_MASKED_LM = {
    "model": "masked_lm",
    "attention": "mha",
    "d_model": 512,
    "d_ff": 2048,
    "num_heads": 8,
    "num_layers": 8,
    "vocab_size": 50265,
    "max_positions": 130,
}
_CONVOLUTION = {
    **_TRANSLATION,
    **_BIG,
    "model": "convolution",
    "num_weight_heads": 16,
    "encoder_kernel_sizes": (3, 7, 15, 31, 31, 31, 31),
    "decoder_kernel_sizes": (3, 7, 15, 31, 31, 31),
}
for _name in ("num_encoder_layers", "num_decoder_layers"):
    del _CONVOLUTION[_name]


def _moa(base: Mapping[str, Any], top_k: int, num_experts: int, head_dim: int, **delta) -> dict[str, Any]:
    routed = {"attention": "moa", "top_k": top_k, "num_experts": num_experts, "head_dim": head_dim}
    return {**{k: v for k, v in base.items() if k != "num_heads"}, **routed, **delta}


PRESETS: dict[str, dict[str, Any]] = {
    "transformer-base": _TRANSLATION,
    "transformer-big": {**_TRANSLATION, **_BIG},
    "admin-6L-6L": _TRANSLATION,
    "admin-18L-18L": {**_TRANSLATION, "num_encoder_layers": 18, "num_decoder_layers": 18},
    "admin-60L-12L": {**_TRANSLATION, "num_encoder_layers": 60, "num_decoder_layers": 12},
    "mae-7": {**_TRANSLATION, "attention": "mae"},
    "lightconv": {**_CONVOLUTION, "convolution": "light"},
    "dynamicconv": {**_CONVOLUTION, "convolution": "dynamic"},
    "mlm-transformer": _MASKED_LM,
}
for _k, _e, _d in (
    (8, 8, 128), (8, 8, 256), (8, 16, 256), (8, 32, 64), (8, 32, 128), (8, 32, 256), (4, 32, 256),
    (16, 32, 256), (16, 32, 512),
):  # fmt: skip
    PRESETS[f"moa-{_k}K{_e}E{_d}D"] = _moa(_TRANSLATION, _k, _e, _d)
for _k, _e, _d in ((8, 8, 128), (8, 8, 256), (8, 16, 256), (8, 32, 256), (8, 64, 256)):
    PRESETS[f"mlm-moa-{_k}K{_e}E{_d}D"] = _moa(_MASKED_LM, _k, _e, _d, bias=True)
PRESETS |= MOH_PRESETS | TRANSNEXT_PRESETS | JETMOE_PRESETS


LISTED = "headcount macs --list"
"""The command that names every preset."""


def preset(name: str, overrides: Mapping[str, Any] | None = None) -> ModelConfig:
    """The configuration called ``name``, with some fields replaced.

    ``attention`` among them gives the model another attention, which keeps the fields that it knows too; ``recipe``
    the dropouts that its paper trains it with. Raises ConfigError, with the list of names or fields, for a name or
    field that does not exist.
    """
    base, overrides = _base(name), expanded(name, overrides or {})
    base = _exchanged(base, overrides.get("attention", base["attention"]))
    return make_config({**base, **overrides})


def _exchanged(base: Mapping[str, Any], attention: str) -> dict[str, Any]:
    """A model's fields with another attention, without those that it does not know."""
    if attention == base["attention"]:
        return dict(base)
    known = _types(base, attention)
    kept = {field: value for field, value in base.items() if field in known or field == "model"}
    return {**kept, "attention": attention}


def _base(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; {choices(name, PRESETS, LISTED)}")
    return PRESETS[name]


def _types(base: Mapping[str, Any], attention: str) -> dict[str, Any]:
    one_of(tuple(ATTENTIONS), attention=attention)
    return field_types(base["model"], attention) | {"attention": str, "recipe": str}


def parse_overrides(name: str, assignments: Sequence[str]) -> dict[str, Any]:
    """``FIELD=VALUE`` texts as values of the types that the fields of preset ``name`` have.

    With ``attention=VARIANT`` among them, the fields are those of the preset with that attention; ``recipe=NAME``
    stands for the fields that it sets.
    """
    base = _base(name)
    parts = [text.partition("=") for text in assignments]
    attention = next((value for field, _, value in parts if field == "attention"), base["attention"])
    types = _types(base, attention)
    values = {}
    for field, equals, value in parts:
        if field not in types:
            raise ConfigError(f"unknown field {field!r} of {name}; {choices(field, sorted(types))}")
        if not equals:
            raise ConfigError(f"{field} has no value; write {field}=VALUE")
        values[field] = _parse(field, value, types[field])
    return expanded(name, values)


def assignments(text: str) -> list[str]:
    """The ``FIELD=VALUE`` parts of ``NAME,FIELD=VALUE,…``; a value may hold commas of its own."""
    found: list[str] = []
    for part in text.split(",")[1:]:
        if "=" in part or not found:
            found.append(part)
        else:
            found[-1] += f",{part}"
    return found


def spelled(name: str, overrides: Mapping[str, Any]) -> list[str]:
    """The ``FIELD=VALUE`` texts that change preset ``name`` to the sizes of ``overrides``."""
    base = _base(name)
    attention = ATTENTIONS[overrides.get("attention", base["attention"])]
    # What a preset leaves out may be derived from fields that are changed: only a default of its own is left unsaid.
    defaults = {f.name: f.default for cls in (attention, MODELS[base["model"]]) for f in fields(cls)}
    plain = {**defaults, **base}
    return [f"{field}={_text(value)}" for field, value in overrides.items() if plain.get(field) != value]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(field: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is float:
            return decimal(text)
        if kind is str:
            return text
        if kind == tuple[int, ...] or (kind == PER_LAYER and "," in text):
            return tuple(map(whole, text.split(",")))
        return whole(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", float: "a number", tuple[int, ...]: "whole numbers with commas"}
        wanted[PER_LAYER] = "a whole number, or one for each layer with commas"
        raise ConfigError(f"{field} takes {wanted.get(kind, 'a whole number')}, not {text!r}") from None


for _variant, _name, _fields in brought("PRESETS"):
    # a change of the model that it is ``like``, with this attention
    _changed = {field: value for field, value in _fields.items() if field != "like"}
    PRESETS[_name] = {**_exchanged(PRESETS[_fields["like"]], _variant), **_changed}
