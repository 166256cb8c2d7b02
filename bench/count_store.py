"""Store counts of configurations between runs, with the state of all that they depend on. Imports no torch."""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headcount.bench.case import Case
from headcount.bench.counting import count as counting
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError, read_file
from headcount.bench.output.files import cache_folder, ensure_dir, write
from headcount.bench.result_cache import digest
from headcount.bench.targets.process import import_path
from headcount.bench.targets.target import Target, is_configuration, library_of

SOURCES = ("bench", "formulas", "models")
"""The folders of headcount that a count depends on."""
META = "meta"
"""The device on which all machines count the same."""


def count(target: Target | Case, counters: Sequence[str] = (), **options: Any) -> Count:
    """Return the count that counting.count.count returns; that of a configuration file is stored.

    It runs again where its file, an option, the code of torch or of the model's library, an installed package or
    headcount has changed. Other targets always run: user code may depend on anything.
    """
    if counters or isinstance(target, Case) or not _is_stored(target):
        return counting.count(target, counters, **options)
    state = _state(target.spec)
    if state is None:
        return counting.count(target, counters, **options)
    name = hashlib.sha256(repr((os.path.abspath(target.spec), target, sorted(options.items()))).encode()).hexdigest()
    file = cache_folder("counts") / f"{name}.json"
    if found := _read(file, state):
        return found
    found = counting.count(target, **options)
    # none whose file has changed meanwhile
    if found.device == META and _state(target.spec) == state:
        # a folder that cannot be written to costs time, and no answer
        with suppress(UsageError):
            ensure_dir(file.parent)
            write(file, json.dumps({"state": state, "count": found.to_json()}))
    return found


def _is_stored(target: Target) -> bool:
    """Return whether all that a count of a target depends on is known: inputs and plans may be in other files."""
    is_file = is_configuration(target.spec) and not target.spec.startswith("hf:")
    return is_file and not (target.inputs or target.plan)


def _read(file: Path, state: str) -> Count | None:
    """Return the count in a file of the store; None where it is of another state, or nothing that can be read."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        found = json.loads(file.read_text("utf-8"))
        return Count.from_json(found["count"]) if found["state"] == state else None
    return None


def _state(spec: str) -> str | None:
    """Return the digest of what the count of a configuration depends on, besides its options; None if not known."""
    code = _code(library_of(spec))
    if code is None:
        return None
    config = Path(spec)
    files = [file for file in (config, config.with_name("preprocessor_config.json")) if file.is_file()]
    contents = [hashlib.sha256(read_file(file)).hexdigest() for file in files]
    return hashlib.sha256(repr((contents, len(files), code)).encode()).hexdigest()


@cache
def _code(library: str | None) -> tuple[object, ...] | None:
    """Return the state of the code that counts the models of a library; None where a package has no files."""
    installed = [name for folder in sys.path for name in _names(folder) if name.endswith((".dist-info", ".egg-info"))]
    packages = [list(_files(name)) for name in ("torch", library) if name]
    if not all(packages):
        return None
    return platform.python_version(), digest(SOURCES), sorted(installed), packages


def _names(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _files(package: str) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of change of each source of an installed package, edited ones included."""
    # finders of editable installations are asked too
    found = PathFinder.find_spec(package, import_path(())) or find_spec(package)
    for top in found.submodule_search_locations or () if found else ():
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                # a link to nothing is no source
                with suppress(FileNotFoundError):
                    if name.endswith(".py"):
                        yield path, os.stat(path).st_size, os.stat(path).st_mtime_ns
