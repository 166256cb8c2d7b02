"""Read plain data, as TOML and JSON have it, as the dataclasses that state its keys and types."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from headcount.formulas.published.expressions import Expression, Relation, expression, relation

PARSERS = {Expression: expression, Relation: relation}
"""Functions that read a text as an object, by type."""


_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
MOST_PARTS = 100
"""The most parts of a dotted key: tomllib takes a time and a memory that grow with their square."""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MOST_PARTS}}}")


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the content of a TOML file of a user. Raises ValueError for what is not TOML, or nested too deep."""
    if _LONG_KEY.search(text):
        raise ValueError(f"a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("lists or tables are nested too deep") from None


def from_data(kind: Any, value: Any, name: str) -> Any:
    """Return ``value`` as the type of an annotation: mappings as dataclasses, lists as tuples, texts by PARSERS.

    Objects of these dataclasses are read as their fields. Raises ValueError for an unknown key, with the valid ones,
    and TypeError for a value of another type, with ``name``.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else from_data(inner[0], value, name)
    if kind in PARSERS:
        return PARSERS[kind](value)
    fields = get_type_hints(kind) if is_dataclass(kind) else {}
    if fields and isinstance(value, kind):
        value = {key: getattr(value, key) for key in fields}
    plain = Mapping if fields else (list, tuple) if origin is tuple else origin or kind
    if plain is not Any and (not isinstance(value, plain) or (plain is int and isinstance(value, bool))):
        raise TypeError(f"{name} has the wrong type: {value!r}")
    if fields:
        if unknown := value.keys() - fields.keys():
            raise ValueError(f"unknown key {min(unknown)!r} of {name}; choose from {', '.join(fields)}")
        return kind(**{key: from_data(fields[key], one, key) for key, one in value.items()})
    if origin is tuple:
        return tuple(from_data(inner[0], one, name) for one in value)
    return {key: from_data(inner[1], one, name) for key, one in value.items()} if origin is Mapping else value
