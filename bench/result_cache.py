"""Cache the results of calls between runs with equal sources.

A store is JSON with a digest of the sources, the tools' versions and the result of each call. Imports no torch.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.env import versions

TOOLS = ("torch", "ptflops", "fvcore", "numpy", "sympy")


def digest(sources: Iterable[str]) -> str:
    """Return the SHA-256 of all sources and data files in folders or files such as ``bench/trace``."""
    root = headcount.CHECKOUT or Path(headcount.__file__).parent
    found = hashlib.sha256()
    for source in sources:
        for path in sorted((root / source).rglob("*")) or [root / source]:
            if path.suffix in (".py", ".toml", ".json", ".yml"):
                found.update(f"{path.relative_to(root).as_posix()}\0{path.read_text('utf-8')}\0".encode())
    return found.hexdigest()


def encode(value: Any) -> Any:
    """Return a result as JSON: dataclasses by their name and the fields that have no default value."""
    if is_dataclass(value):
        given = {one.name: encode(own) for one in fields(value) if (own := getattr(value, one.name)) != one.default}
        return {type(value).__name__: given}
    if isinstance(value, Fraction):
        return {"Fraction": {"numerator": value.numerator, "denominator": value.denominator}}
    if isinstance(value, Mapping):
        return {key: encode(one) for key, one in value.items()}
    return [encode(one) for one in value] if isinstance(value, (list, tuple)) else value


def decode(value: Any, kinds: Mapping[str, type]) -> Any:
    """Return the value that ``encode`` made into JSON, sequences as lists; ``kinds`` are the dataclasses by name."""
    if isinstance(value, list):
        return [decode(one, kinds) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: decode(one, kinds) for key, one in value.items()}
    (kind,) = made if len(made) == 1 else (None,)
    return kinds[kind](**made[kind]) if kind in kinds else made


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call as JSON; runs in a worker process."""
    return encode(function(*args))


class CallCache:
    """Run calls in ``executor``, each once, and none that ``stored`` holds from equal sources and versions.

    ``sources``: folders and files that the results depend on. ``kinds``: dataclasses that results consist of.
    """

    def __init__(
        self,
        executor: Executor,
        sources: Iterable[str],
        kinds: Iterable[type],
        stored: Mapping[str, Any] | None = None,
    ) -> None:
        self._executor, self._kinds = executor, {kind.__name__: kind for kind in kinds}
        found = {tool: version.partition("+")[0] for tool, version in versions(TOOLS).items()}
        self._header = {"versions": found, "sources": digest(sources)}
        self._futures: dict[str, Future] = {}
        self._results: dict[str, Any] = {}
        given = stored or {}
        self.is_current = all(given.get(key) == value for key, value in self._header.items())
        """Whether the store is of these sources and versions."""
        self._reusable = given["calls"] if self.is_current else {}

    def begin(self, function: Callable[..., Any], *args: Any) -> None:
        """Start a call."""
        key = _key(function, args)
        if key not in self._reusable and key not in self._futures:
            self._futures[key] = self._executor.submit(call, function, *args)

    def result(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call, sequences as lists."""
        self.begin(function, *args)
        key = _key(function, args)
        self._results[key] = self._reusable[key] if key in self._reusable else self._futures[key].result()
        return decode(self._results[key], self._kinds)

    def to_store(self) -> str:
        """Return the results that :meth:`result` returned as the JSON of a store, one line per call."""
        calls = sorted(self._results.items())
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(result)}" for key, result in calls)
        header = json.dumps(self._header, indent=1).removesuffix("\n}")
        return f'{header},\n "calls": {{\n{lines}\n }}\n}}\n'


def _key(function: Callable[..., Any], args: Iterable[Any]) -> str:
    return f"{function.__name__} {json.dumps(args)}"
