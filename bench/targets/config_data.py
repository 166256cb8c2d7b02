"""Read a configuration file as data: what it names outside its library is neither opened, imported nor fetched."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils._pytree import tree_leaves

from headcount.bench.errors import excerpt, unique_keys
from headcount.bench.targets.user_code import UserCodeError

MAX_DIGITS = 40
"""The most digits of an integer: some configurations state 10**30 for "any length"."""
MAX_PARTS = 10**5
"""The most layers, heads, experts, labels … of a model: a library makes an object for each."""
OWN_CODE = "auto_map is not followed: the library's own code builds the model"
"""The note on a configuration that names code of the model's own."""
_PARTS = re.compile(
    r"(^|_)(layers?|blocks?|depths?|stages?|levels?|groups?|heads?|experts?|labels|codebooks?|quantizers?|queries)$"
)
_IMPLEMENTATION = re.compile(r"_implementation(_internal)?$")
"""Fields that choose the kernels of attention or experts. A name with a slash is that of a repository."""
_LIBRARY_NAMES = ("architecture", "backbone")
"""Fields with the name of a timm model, which may also be "hf-hub:…" or "local-dir:…"."""
LOADER_ARGUMENTS = frozenset(
    "cache_dir checkpoint_path model_name pretrained pretrained_cfg pretrained_cfg_overlay pretrained_custom_load "
    "pretrained_filter_fn pretrained_strict".split()
)
"""Arguments of timm's loader, which name files and repositories."""
_OUTPUT_ARGUMENTS = frozenset({"features_only", "out_indices"})
"""Arguments of timm's loader that choose what a model returns."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raise UserCodeError, with the reason in one line, where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        raise UserCodeError(f"cannot read {path.name} as JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserCodeError(f"{path.name} holds a {type(found).__name__}, no JSON object")
    return found


def restrict(data: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the fields of a configuration, and those of its parts, that its library may follow.

    ``notes`` receives a sentence for each field that is dropped: code of the model's own and kernels of a repository.

    Raises UserCodeError for a number that is no size, and for names of files and repositories in what timm builds.
    """
    kept = {}
    for key, value in data.items():
        # a field of --set has its part's name before a dot
        name = str(key).rpartition(".")[2]
        if name == "auto_map":
            notes.append(OWN_CODE)
        elif _IMPLEMENTATION.search(name) and any("/" in leaf for leaf in tree_leaves(value) if isinstance(leaf, str)):
            notes.append(f"{name} {excerpt(value)} is not loaded: it names a repository")
        else:
            _check_value(name, value)
            kept[key] = _restrict_parts(value, notes)
    return kept


def _restrict_parts(value: Any, notes: list[str]) -> Any:
    if isinstance(value, Mapping):
        return restrict(value, notes)
    if isinstance(value, list):
        return [_restrict_parts(part, notes) for part in value]
    return value


def _check_value(name: str, value: Any) -> None:
    """Raise UserCodeError for a value that names a file or a repository, or that is too large for a size."""
    if name in _LIBRARY_NAMES and isinstance(value, str) and re.search("[:/]", value):
        raise UserCodeError(f"{name} {excerpt(value)} names a file or a repository; it needs a model of the library")
    if name in ("model_args", "backbone_kwargs") and isinstance(value, Mapping):
        check_loader_arguments(value)
    for leaf in value if isinstance(value, list) else [value]:
        if type(leaf) is not int:
            continue
        if abs(leaf) >= 10**MAX_DIGITS:
            raise UserCodeError(f"{name} has {len(str(abs(leaf))):,} digits; a number has at most {MAX_DIGITS}")
        if _PARTS.search(name) and leaf > MAX_PARTS:
            raise UserCodeError(f"{name} is {leaf:,}; it is at most {MAX_PARTS:,}")


def check_loader_arguments(given: Mapping[str, Any]) -> None:
    """Raise UserCodeError for arguments of timm's loader, by which it opens files and repositories."""
    if refused := sorted(LOADER_ARGUMENTS & given.keys()):
        raise UserCodeError(f"{', '.join(refused)}: no weights or files are loaded; sizes of the model are allowed")


def check_constructor_arguments(model: nn.Module, given: Mapping[str, Any]) -> None:
    """Raise UserCodeError, with the valid names, for arguments that a model's constructor does not take."""
    takes = set()
    for kind in type(model).__mro__[: type(model).__mro__.index(nn.Module)]:
        parameters = inspect.signature(kind.__init__).parameters
        takes |= {name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    takes -= {"self", *LOADER_ARGUMENTS}
    if unknown := sorted(given.keys() - takes - _OUTPUT_ARGUMENTS):
        raise UserCodeError(
            f"model_args {excerpt(', '.join(unknown))}: {type(model).__name__} takes {', '.join(sorted(takes))}"
        )


@contextmanager
def offline() -> Iterator[None]:
    """Let libraries fetch nothing from the hub: a configuration may name another one there."""
    try:
        from huggingface_hub import constants
    except ModuleNotFoundError:
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
