"""Read plain data, as TOML and JSON have it, as the dataclasses that state its keys and types."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from headcount.formulas.published.expressions import Expression, Relation, expression, relation

PARSERS = {Expression: expression, Relation: relation}
"""Functions that read a text as an object, by type."""
UNREAD: Mapping[str, str] = {"key": ""}
"""Metadata of a field that no key sets."""

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


def choices(word: str, names: Iterable[str]) -> str:
    """Return the end of an error's line: the nearest of ``names``, if one is near, and all of them."""
    names = list(names)
    near = get_close_matches(word, names, n=1)
    return f"{f'did you mean {near[0]}? ' if near else ''}choose from {', '.join(names)}"


def from_data(kind: Any, value: Any, name: str = "") -> Any:
    """Return ``value`` as the type of an annotation: mappings as dataclasses, lists as tuples, texts by PARSERS.

    A field of a dataclass has the key of its metadata, its name without one; with UNREAD no key sets it. Objects of
    these dataclasses are read as their fields. Raises ValueError for an unknown key, with the valid ones, and for a
    value of another type, with ``name``.
    """
    if type(value) is kind and not is_dataclass(kind):
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return from_data(next((one for one in inner if _is_of(one, value)), inner[0]), value, name)
    if kind in PARSERS:
        return PARSERS[kind](value)
    names = _names_by_key(kind) if is_dataclass(kind) else {}
    if names and isinstance(value, kind):
        value = {key: getattr(value, field) for key, field in names.items()}
    if not _is_of(kind, value):
        raise ValueError(f"{name} has the wrong type: {value!r}")
    if names:
        if unknown := value.keys() - names.keys():
            where = f" of {name}" if name else ""
            raise ValueError(f"unknown key {min(unknown)!r}{where}; {choices(min(unknown), names)}")
        types = _types(kind)
        return kind(**{names[key]: from_data(types[names[key]], one, key) for key, one in value.items()})
    if origin is tuple:
        return tuple(from_data(inner[0], one, name) for one in value)
    return {key: from_data(inner[1], one, name) for key, one in value.items()} if origin is Mapping else value


_types = cache(get_type_hints)
"""The types of the fields of a dataclass by name."""


def _names_by_key(kind: Any) -> dict[str, str]:
    """Return the fields of a dataclass by the key that a file has for them."""
    names = {one.metadata.get("key", one.name): one.name for one in fields(kind)}
    return {key: name for key, name in names.items() if key}


def _is_of(kind: Any, value: Any) -> bool:
    """Return whether plain data can be read as ``kind``, as far as the outermost type goes."""
    origin = get_origin(kind)
    plain = Mapping if is_dataclass(kind) else (list, tuple) if origin is tuple else origin or kind
    # True is an integer of Python
    return plain is Any or (isinstance(value, plain) and not (plain is int and isinstance(value, bool)))


def to_data(value: Any) -> Any:
    """Return plain data that :func:`from_data` reads: of dataclasses, the fields without their default value."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_data(one) for one in value]
    if isinstance(value, Mapping):
        return {key: to_data(one) for key, one in value.items()}
    defaults = _defaults(value.__class__)
    given = {name: getattr(value, name) for name in defaults}
    return {name: to_data(one) for name, one in given.items() if one != defaults[name]}


@cache
def _defaults(kind: type) -> Mapping[str, Any]:
    """Return the default value of each field of a dataclass; MISSING for a field without one."""
    return {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(kind)}
