"""Readings kept between runs, each beside what it was taken of: equal sources and versions give equal readings.

Whoever stores readings stores ``header`` with them: a digest of every file that a reading depends on, and the versions
of the tools. Readings under another header are not used, and one that is used is held against its counter's rules as
any other (bench.measure). Imports no torch.
"""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from headcount.bench.case import Case
from headcount.bench.counters.base import CounterResult

if TYPE_CHECKING:
    from headcount.bench.measure import Measurement

SOURCES = ("models", "bench/trace", "bench/contractions", "bench/counters", "bench/case.py", "bench/measure.py")
"""What a reading depends on, of this software."""
TOOLS = ("torch", "ptflops", "fvcore", "numpy")
"""What it depends on, of others."""
PARAMS = "params"
KEPT = ("tool", "version", "backend", "device", "macs", "params", "uncounted")
"""What is kept of a reading: all but its parts by module and by operator."""


def header() -> dict[str, Any]:
    """The sources and versions that readings are taken by now."""
    return {"sources": digest(), "versions": versions(TOOLS)}


def versions(tools: Iterable[str]) -> dict[str, str]:
    """The version of each tool that is installed."""
    return {name: found for name in tools if (found := _version(name))}


def digest() -> str:
    """One number for the text of all sources, line endings aside."""
    found = hashlib.sha256()
    for name in SOURCES:
        first, *rest = name.split("/")
        for path, text in _modules(files(f"headcount.{first}").joinpath(*rest), name):
            found.update(f"{path}\0{text}\0".encode())
    return found.hexdigest()


def _modules(place: Traversable, path: str) -> Iterable[tuple[str, str]]:
    if place.is_file():
        return [(path, place.read_text("utf-8"))] if path.endswith(".py") else []
    inside = sorted(place.iterdir(), key=lambda found: found.name)
    return [module for found in inside for module in _modules(found, f"{path}/{found.name}")]


def _version(name: str) -> str | None:
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return None


def of(case: Case) -> str:
    """What a case's readings are taken of, as a number: its fields and its lengths."""
    return hashlib.sha256(repr(case.model).encode()).hexdigest()[:16]


def to_keep(measured: "Measurement") -> dict[str, Any]:
    """A measurement as a store keeps it."""
    counts = {count.counter: {name: getattr(count.reading, name) for name in KEPT} for count in measured.counts}
    return {"of": of(measured.case), PARAMS: measured.counted_params, "counts": counts}


def restored(entry: Mapping[str, Any] | None, case: Case) -> dict[str, Any]:
    """The parameters and the readings by counter, for ``measure``; nothing where they are of another case."""
    if not entry or entry["of"] != of(case):
        return {}
    counts = {
        name: CounterResult(name, by_module=None, by_operator=None, **fields)
        for name, fields in entry["counts"].items()
    }
    return {PARAMS: entry[PARAMS], **counts}
