"""Presets: models by the names that their papers give them, and overriding of single fields.

``[presets]`` of the TOML file of each variant and model holds its presets: every field, or the differences from
the preset that it is ``like``. ``[recipes]`` holds how papers train them, as far as it is fields of a configuration
(``--set recipe=paper``); presets themselves have no dropout, because they are for counting. Importable without torch.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, get_args

from headcount.models.configs.base import ConfigError, ModelConfig
from headcount.models.configs.make import PER_LAYER, field_types, make_config
from headcount.models.configs.numbers import parse_float, parse_int
from headcount.models.configs.registry import ATTENTIONS, MODELS
from headcount.models.configs.suggest import choices, join_or, nearest

LISTED = "headcount table --list"
"""The command that names every preset."""


@cache
def _files() -> list[dict[str, Any]]:
    """Return the content of the TOML files of all models and variants."""
    folder = files("headcount.models.configs")
    paths = (folder.joinpath(f"{name}.toml") for name in (*MODELS, *ATTENTIONS))
    return [tomllib.loads(path.read_text("utf-8")) for path in paths if path.is_file()]


def read_section(section: str) -> dict[str, dict[str, Any]]:
    """Return a section of the TOML files of all models and variants, arrays as tuples."""
    entries = {name: values for data in _files() for name, values in data.get(section, {}).items()}
    return {
        name: {field: tuple(value) if isinstance(value, list) else value for field, value in values.items()}
        for name, values in entries.items()
    }


@dataclass(frozen=True, eq=False)
class Section(Mapping[str, dict[str, Any]]):
    """A section of these files by preset, read at the first use: most commands need none."""

    name: str

    @cached_property
    def _entries(self) -> dict[str, dict[str, Any]]:
        listed = read_section(self.name)
        return {name: _resolved(name, listed) for name in listed}

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


PRESETS = Section("presets")
"""Preset -> its fields."""
RECIPES = Section("recipes")
"""Preset -> its recipes by name: ``run``, the row of the paper's table of settings, and fields."""


def apply_recipe(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``overrides`` of preset ``name`` with the fields of their ``recipe`` in its place; their own fields win.

    Raises ConfigError, with the choices, for a recipe that the preset does not have.
    """
    values = dict(overrides)
    recipe = values.pop("recipe", None)
    if recipe is None:
        return values
    if name not in RECIPES:
        raise ConfigError(f"{name} has no recipe; those that have one are {', '.join(RECIPES)}")
    if recipe not in RECIPES[name]:
        raise ConfigError(f"unknown recipe {recipe!r} of {name}; choose from {', '.join(RECIPES[name])}")
    return {field: value for field, value in RECIPES[name][recipe].items() if field != "run"} | values


def _changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes``, without the fields that a changed model or attention does not have."""
    model, attention = (changes.get(field, base[field]) for field in ("model", "attention"))
    if (model, attention) == (base["model"], base["attention"]):
        return {**base, **changes}
    known = {"model", *_types(model, attention)}
    return {field: value for field, value in base.items() if field in known} | dict(changes)


def _resolved(name: str, listed: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    changes = dict(listed[name])
    like = changes.pop("like", None)
    return changes if like is None else _changed(_resolved(like, listed), changes)


def _types(model: str, attention: str) -> dict[str, Any]:
    return field_types(model, attention) | {"attention": str, "recipe": str}


def preset(name: str, overrides: Mapping[str, Any] | None = None) -> ModelConfig:
    """Return the configuration called ``name``, with some fields replaced.

    ``attention`` among them gives the model another attention, which keeps the fields that it knows too; ``recipe``
    the dropouts that its paper trains it with. Raises ConfigError, with the list of names or fields, for a name or
    field that does not exist.
    """
    return make_config(_changed(_base(name), apply_recipe(name, overrides or {})))


def _base(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; {choices(str(name), PRESETS, LISTED)}")
    return PRESETS[name]


def parse_overrides(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Parse ``FIELD=VALUE`` words by the types of the fields of preset ``name``; letters stand for their fields.

    With ``attention=VARIANT`` among them, the fields are those of the preset with that attention; ``recipe=NAME``
    stands for the fields that it sets.
    """
    base = _base(name)
    parts = [word.partition("=") for word in words]
    attention = next((value for field, _, value in parts if field == "attention"), base["attention"])
    types = _types(base["model"], attention)
    letters = {**MODELS[base["model"]].fields_by_letter, **ATTENTIONS[attention].fields_by_letter}
    return apply_recipe(name, parse_fields(name, words, types, letters))


def parse_fields(
    name: str,
    words: Sequence[str],
    types: Mapping[str, Any],
    letters: Mapping[str, str],
    others: Mapping[str, str] | None = None,
    required: Sequence[str] = (),
) -> dict[str, Any]:
    """Parse ``FIELD=VALUE`` or ``LETTER=VALUE`` words by the ``types`` of fields.

    ``others``: further letters of the fields, which no error lists. Raises ConfigError, with the letters and fields of
    what ``name`` names and the ``required`` fields that no word has, for any other word.
    """
    settable = {letter: field for letter, field in {**(others or {}), **letters}.items() if field in types}
    given = {word.partition("=")[0]: word for word in words}
    unknown = [key for key in given if settable.get(key, key) not in types]
    if unknown:
        lacking = {*required} - {settable.get(key, key) for key in given}
        raise ConfigError(_unknown_fields(name, unknown, types, letters, lacking))
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        field = settable.get(key, key)
        if not equals:
            raise ConfigError(f"{key} has no value; write {key}=VALUE")
        values[field] = _parse(key, text, types[field])
    return values


def _unknown_fields(
    name: str, unknown: Sequence[str], types: Mapping[str, Any], letters: Mapping[str, str], lacking: set[str]
) -> str:
    """Return an error's line: unknown fields, those that are meant, those that lack, and all with their letters."""
    by_field = {field: letter for letter, field in letters.items() if field in types}
    by_field |= {field: field for field in sorted(types) if field not in by_field}
    labels = {field: label(field, letter) for field, letter in by_field.items()}
    by_name = {letter: field for field, letter in by_field.items()} | {field: field for field in by_field}
    meant: dict[str, None] = {}
    for key in unknown:
        # d is d_m where that lacks, and not D
        begun = [field for field in by_field if field in lacking and by_field[field].startswith(key)]
        meant |= dict.fromkeys(begun or [by_name[one] for one in nearest(key, by_name)])
    plural = "s" if len(unknown) > 1 else ""
    question = f"did you mean {join_or([labels[field] for field in meant])}? " if meant else ""
    needs = ", ".join(labels[field] for field in by_field if field in lacking)
    needs = f"it needs {needs}; " if needs else ""
    return (
        f"unknown field{plural} {', '.join(map(repr, unknown))} of {name}; {question}{needs}choose from "
        f"{', '.join(labels.values())}; T, S and B are lengths"
    )


def label(field: str, letter: str) -> str:
    """Return a letter with its field, where these differ."""
    return field if letter == field else f"{letter} ({field})"


def format_overrides(name: str, overrides: Mapping[str, Any]) -> list[str]:
    """Return the ``FIELD=VALUE`` texts that change preset ``name`` to the sizes of ``overrides``."""
    base = _base(name)
    attention = ATTENTIONS[overrides.get("attention", base["attention"])]
    # a field that a preset leaves out may be derived from changed ones: only its own default needs no text
    defaults = {f.name: f.default for cls in (attention, MODELS[base["model"]]) for f in fields(cls)}
    plain = {**defaults, **base}
    return [f"{field}={format_value(value)}" for field, value in overrides.items() if plain.get(field) != value]


def format_value(value: Any) -> str:
    """Return the text of a field's value, as :func:`parse_fields` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(field: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        if kind is float:
            return parse_float(text)
        if kind is str or str in get_args(kind):
            return text
        if kind == tuple[int, ...] or (kind == PER_LAYER and "," in text):
            return tuple(map(parse_int, text.split(",")))
        return parse_int(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", float: "a number", tuple[int, ...]: "whole numbers with commas"}
        wanted[PER_LAYER] = "a whole number, or one for each layer with commas"
        raise ConfigError(f"{field} takes {wanted.get(kind, 'a whole number')}, not {text!r}") from None
