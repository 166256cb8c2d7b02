"""Calls of headcount.reports.counting, each made once, and what they gave in an earlier run by equal sources.

A store is JSON: ``readings``, the header of bench.taken; ``modules``, what the calls had imported of ours besides;
``sources``, a digest of these with the data files beside them; ``versions`` of the tools; and ``calls``, the result of
each call as plain data. Where the header alone is the same, nothing is used but readings. Imports no torch.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import fields, is_dataclass
from fractions import Fraction
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from headcount.bench import taken
from headcount.bench.table import Column, Row, Section, Table
from headcount.formulas.published.proofs import Search
from headcount.reports.heat_map import Cell

KINDS = {kind.__name__: kind for kind in (Section, Table, Column, Row, Cell, Search, Fraction)}
"""What plain data stands for, besides itself."""
ROOMS = ("headcount.bench", "headcount.formulas", "headcount.models", "headcount.reports")
TOOLS = (*taken.TOOLS, "sympy")
"""What results depend on, besides the sources."""


def plain(value: Any) -> Any:
    """A result as JSON holds it. A row's case stays out: no page asks for it."""
    if is_dataclass(value):
        given = {one: getattr(value, one.name) for one in fields(value) if one.name != "case"}
        told = {one.name: plain(own) for one, own in given.items() if own != one.default}
        return {type(value).__name__: told}
    if isinstance(value, Fraction):
        return {"Fraction": {"numerator": value.numerator, "denominator": value.denominator}}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def whole(value: Any) -> Any:
    """The sections, rows and values that ``plain`` made it of; sequences as lists."""
    if isinstance(value, list):
        return [whole(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: whole(one) for key, one in value.items()}
    (kind,) = made if len(made) == 1 else (None,)
    return KINDS[kind](**made[kind]) if kind in KINDS else made


def take(call: Callable[..., Any], *args: Any, **named: Any) -> dict[str, Any]:
    """The result of a call as plain data, and the modules of ours that this process has imported by now, without
    those that readings depend on."""
    result = plain(call(*args, **named))
    return {"result": result, "modules": [name for name in sys.modules if name.startswith(ROOMS) and not _read(name)]}


def _read(module: str) -> bool:
    path = module.removeprefix("headcount.").replace(".", "/")
    return any(f"{path}.py" == source or f"{path}/".startswith(f"{source}/") for source in taken.SOURCES)


def key(call: Callable[..., Any], args: Iterable[Any]) -> str:
    """The name of a call in a store."""
    return f"{call.__name__} {json.dumps(args)}"


def digest(modules: Iterable[str]) -> str:
    """One number for the text of modules and of the data files in their folders, line endings aside."""
    texts = {path: file for name in modules for path, file in _files(name)}
    out = hashlib.sha256()
    for path in sorted(texts):
        out.update(f"{path}\0{texts[path].read_text('utf-8')}\0".encode())
    return out.hexdigest()


def _files(module: str) -> Iterable[tuple[str, Traversable]]:
    """A module's file and the data files beside it, each by a path that is the same on every machine."""
    room, *inside = module.split(".")[1:]
    # of what lies deeper only the path is asked for: to import it may need torch
    place = files(f"headcount.{room}")
    if not place.joinpath(*inside).is_dir():
        *inside, name = inside
        own = f"{name}.py"
    else:
        own = "__init__.py"
    for file in place.joinpath(*inside).iterdir():
        if file.is_file() and (file.name == own or not file.name.endswith((".py", ".pyc"))):
            yield "/".join((room, *inside, file.name)), file


class Calls:
    """Calls made in ``executor``, each once, but for those whose results ``stored`` has by the sources of today."""

    def __init__(self, executor: Executor, stored: Mapping[str, Any] | None = None) -> None:
        self._executor, stored = executor, stored or {}
        self._begun: dict[str, Future] = {}
        counted = stored.get("readings") == taken.header()
        same = (
            counted and stored["versions"] == taken.versions(TOOLS) and stored["sources"] == digest(stored["modules"])
        )
        self._before = stored["calls"] if counted else {}
        self._known = stored["calls"] if same else {}
        self._modules = stored["modules"] if same else []

    def begin(self, call: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Begin a call, whose result is asked for later; what is ``named`` does not change the result."""
        name = key(call, args)
        if name in self._begun:
            return
        if name in self._known:
            self._begun[name] = Future()
            self._begun[name].set_result({"result": self._known[name], "modules": self._modules})
        else:
            self._begun[name] = self._executor.submit(take, call, *args, **named)

    def result(self, call: Callable[..., Any], *args: Any) -> Any:
        """What a call gives, sequences as lists."""
        self.begin(call, *args)
        return whole(self._begun[key(call, args)].result()["result"])

    def before(self, call: Callable[..., Any], *args: Any) -> Any:
        """What a call gave when models were counted as they are today, however tables were made of it; or None."""
        return whole(self._before.get(key(call, args)))

    def to_store(self) -> str:
        """What was asked for, as the JSON of a store."""
        found = {name: future.result() for name, future in sorted(self._begun.items())}
        modules = sorted({name for one in found.values() for name in one["modules"]})
        store = {
            "sources": digest(modules),
            "versions": taken.versions(TOOLS),
            "readings": taken.header(),
            "modules": modules,
            "calls": {name: one["result"] for name, one in found.items()},
        }
        return json.dumps(store, indent=1) + "\n"
