"""What a configuration says of its model, read from its files without the library. Imports no torch."""

import json
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from headcount.models.configs.numbers import TYPE_BITS, parse_element_bytes
from headcount.models.configs.targets import is_configuration

LIBRARIES = {"model_type": "transformers", "_class_name": "diffusers", "architecture": "timm"}
"""The library of a configuration by a key that it has."""
QUANTIZATION = {"quantization_config", "compression_config"}
"""Parts of a configuration that are no models."""
DEFAULT_TYPE = "bfloat16"
"""The type of weights that nobody names."""


def read_contents(spec: str) -> list[bytes]:
    """Return the content of a configuration, and that of the preprocessor in its folder.

    Empty for a file that cannot be read, and for a name that is not in the hub's cache.
    """
    file = _cached(spec) if spec.startswith("hf:") else Path(spec)
    # a count says what is wrong with a file
    with suppress(OSError, ValueError):
        files = [file, file.with_name("preprocessor_config.json")] if file else []
        return [one.read_bytes() for one in files if one == file or one.is_file()]
    return []


def _cached(spec: str) -> Path | None:
    """Return the file of hf:NAME in the hub's cache; None where it is not there."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ModuleNotFoundError:
        return None
    name, _, revision = spec.removeprefix("hf:").partition("@")
    with suppress(ValueError):
        path = try_to_load_from_cache(name, "config.json", revision=revision or "main")
        return Path(path) if isinstance(path, str) else None
    return None


def read_fields(spec: str) -> Mapping[str, Any]:
    """Return the fields of a configuration; empty for a file of something else, and as read_contents."""
    with suppress(ValueError, RecursionError):
        content = read_contents(spec)
        found = json.loads(content[0]) if content else {}
        return found if isinstance(found, dict) else {}
    return {}


def library_of(spec: str) -> str | None:
    """Return the library that builds a configuration; None of another target, or of a file that is none."""
    if not is_configuration(spec):
        return None
    if spec.startswith("hf:"):
        return "transformers"
    fields = read_fields(spec)
    return next((library for key, library in LIBRARIES.items() if fields.get(key)), None)


def type_bytes(spec: str, dtype: str | None) -> int | Fraction:
    """Return the bytes of a number of the type that is given or that the configuration names, else of bfloat16."""
    named = _named_type(read_fields(spec)) if dtype is None and is_configuration(spec) else dtype
    return parse_element_bytes(named if named in TYPE_BITS else DEFAULT_TYPE)


def _named_type(config: Any) -> str | None:
    """Return the type that a configuration, or a part of it, names."""
    if not isinstance(config, dict):
        return None
    own = config.get("dtype") or config.get("torch_dtype")
    return own if isinstance(own, str) else next(filter(None, map(_named_type, config.values())), None)


def is_decoder(spec: str) -> bool:
    """Return whether a target is the configuration of a model that reads text and nothing else, and needs a length."""
    config = read_fields(spec) if is_configuration(spec) else {}
    names = config.get("architectures")
    parts = {name for name, value in config.items() if name.endswith("_config") and isinstance(value, dict)}
    has_names = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return bool(has_names) and all(name.endswith("ForCausalLM") for name in names) and parts <= QUANTIZATION
