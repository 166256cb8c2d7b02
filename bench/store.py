"""Store counts and closed forms of configurations between runs, with the state of all that they depend on. No torch."""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

from headcount.bench.case import Case
from headcount.bench.counting import count as counting
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.output.files import cache_folder, ensure_dir, write
from headcount.bench.result_cache import digest
from headcount.bench.targets.config_fields import library_of, read_contents
from headcount.bench.targets.process import import_path
from headcount.bench.targets.target import Target, is_configuration

SOURCES = ("bench", "formulas", "models")
"""The folders of headcount that all depends on."""
META = "meta"
"""The device on which all machines count the same."""
T = TypeVar("T")


def count(target: Target | Case, counters: Sequence[str] = (), **options: Any) -> Count:
    """Return the count that counting.count.count returns; that of a configuration file is stored.

    Other targets always run: user code may depend on anything.
    """
    if counters or isinstance(target, Case) or not _is_stored(target):
        return counting.count(target, counters, **options)
    return find_stored(
        "counts",
        target.spec,
        (os.path.abspath(target.spec), target, sorted(options.items())),
        lambda: counting.count(target, **options),
        methodcaller("to_json"),
        Count.from_json,
        is_kept=lambda found: found.device == META,
    )


def _is_stored(target: Target) -> bool:
    """Return whether all that a count of a target depends on is known: inputs and plans may be in other files."""
    is_file = is_configuration(target.spec) and not target.spec.startswith("hf:")
    return is_file and not (target.inputs or target.plan)


def find_stored(
    kind: str,
    spec: str,
    words: object,
    find: Callable[[], T],
    encode: Callable[[T], Any],
    decode: Callable[[Any], T],
    is_kept: Callable[[T], bool] = lambda found: True,
) -> T:
    """Return what ``find`` finds of a configuration: what an earlier run has stored, or a new one, which is stored.

    It is found again where the configuration's files, the code of torch or of the library that builds it, an installed
    package or headcount has changed.

    Args:
        kind: the folder of the store.
        spec: the configuration, a file or hf:NAME.
        words: all else that the answer depends on.
        encode, decode: the answer as JSON, and back.
        is_kept: whether an answer is the same on every machine.
    """
    file, state = _file(kind, spec, words), _code(library_of(spec))
    if file and state and (found := _read(file, state, decode)) is not None:
        return found
    new = find()
    # a name may be in the hub's cache now, and a file may have changed meanwhile
    after = _file(kind, spec, words)
    if after and state and file in (None, after) and is_kept(new):
        # a folder that cannot be written to costs time, and no answer
        with suppress(UsageError):
            ensure_dir(after.parent)
            write(after, json.dumps({"state": state, "found": encode(new)}))
    return new


def _read(file: Path, state: str, decode: Callable[[Any], T]) -> T | None:
    """Return what a file of the store holds; None where it is of another state, or nothing that can be read."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        stored = json.loads(file.read_text("utf-8"))
        return decode(stored["found"]) if stored["state"] == state else None
    return None


def _file(kind: str, spec: str, words: object) -> Path | None:
    """Return the file for a configuration of this content; None where its content is not here."""
    contents = read_contents(spec)
    return cache_folder(kind) / f"{_digest_of(contents, words)}.json" if contents else None


@cache
def _code(library: str | None) -> str | None:
    """Return the digest of the code that runs the models of a library; None where a package has no files."""
    installed = [name for folder in sys.path for name in _names(folder) if name.endswith((".dist-info", ".egg-info"))]
    packages = [list(_files(name)) for name in ("torch", library) if name]
    if not all(packages):
        return None
    return _digest_of(platform.python_version(), digest(SOURCES), sorted(installed), packages)


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


def _digest_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
