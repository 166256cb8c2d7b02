"""The file of a kept count: JSON with an entry a line, in an order of its own, so that a change is a line of a diff."""

import json
import platform
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import UsageError, read_file
from headcount.bench.saved.saved import KINDS, Asked, Parameter, Saved, parameters_of, terms_of
from headcount.formulas.ledger import Entry

LOCK_VERSION = 1
"""Of the layout of a lock's file; a file of another is not read."""
JSON_VERSION = 1
"""The schema version of ``headcount macs --format json`` that is read."""


def versions() -> dict[str, str]:
    """What counts here: this software, torch without what its build is called, and Python."""
    try:
        torch = version("torch").partition("+")[0]
    except PackageNotFoundError:
        torch = "none"
    return {
        "headcount": headcount.__version__,
        "torch": torch,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def text(saved: Saved) -> str:
    """The file of ``saved``: the same for the same count, in whatever order it ran."""
    head = {
        "lock_version": LOCK_VERSION,
        "versions": dict(saved.versions or {}),
        "name": saved.name,
        "module": saved.asked and saved.asked.module,
        "settings": dict(sorted(saved.asked.settings.items())) if saved.asked else {},
        "options": saved.asked.options() if saved.asked else Asked("").options(),
        "inputs": list(saved.inputs or ()),
        "included": saved.included,
        "macs": saved.macs,
        "elementwise_macs": saved.elementwise_macs,
        "params": saved.params,
    }
    parameters = sorted(saved.parameters, key=lambda one: natural(one.path))
    lists = {
        "contractions": [_term(term) for term in sorted(saved.terms, key=_place)],
        "parameters": [_tensor(one) for one in parameters],
        "uncounted": sorted(saved.uncounted, key=natural),
    }
    parts = [f"  {_line(name)}: {_line(value)}" for name, value in head.items()]
    for name, values in lists.items():
        lines = ",\n".join(f"    {_line(value)}" for value in values)
        parts.append(f"  {_line(name)}: [\n{lines}\n  ]" if lines else f"  {_line(name)}: []")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def natural(path: str) -> list[tuple[bool, int, str]]:
    """The order of module paths: layers.2 before layers.10."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in path.split(".")]


def _place(term: Entry) -> tuple:
    return natural(term.path), KINDS.index(term.kind), -term.size, tuple(term.dims.items()), term.times


def _term(term: Entry) -> dict[str, Any]:
    return {
        "path": term.path,
        "kind": term.kind,
        "sizes": dict(term.dims),
        "times": term.times,
        "macs": term.size,
    }


def _tensor(one: Parameter) -> dict[str, Any]:
    return {"path": one.path, "shape": list(one.shape), "params": one.params, "trainable": one.trainable}


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read(path: str | Path) -> Saved:
    """The count that a file keeps: a lock's, or what ``headcount macs --module … --format json`` printed.

    UsageError, in one line, for a file that cannot be read, that is neither, or whose sums are not those of its lines.
    """
    text = read_file(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {_short(error)}") from None
    return of_data(data, str(path))


def of_data(data: Any, path: str) -> Saved:
    """The count that a file's JSON holds; UsageError, which calls it ``path``, where it holds none."""
    kinds: dict[str, tuple[int, Callable]] = {
        "lock_version": (LOCK_VERSION, _of_lock),
        "schema_version": (JSON_VERSION, _of_tables),
    }
    key = next((key for key in kinds if isinstance(data, Mapping) and key in data), None)
    if key is None:
        raise UsageError(f"{path} is neither a lock nor the JSON of headcount macs --module")
    known, made = kinds[key]
    if data[key] != known or isinstance(data[key], bool):
        raise UsageError(f"{path} has {key} {_short(data[key])}; this software reads {known}")
    try:
        return made(data, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f"it has no {error}" if isinstance(error, KeyError) else _short(error)
        raise UsageError(f"{path} is broken: {missing}") from None


def _of_lock(data: Mapping[str, Any], path: str) -> Saved:
    module, options = data["module"], data["options"]
    asked = Asked(
        module=_a(str, module or "", "module"),
        settings={_a(str, name, "settings"): _whole(value, name, None) for name, value in data["settings"].items()},
        device=None if options["device"] is None else _a(str, options["device"], "device"),
        allow_uncounted=_a(bool, options["allow_uncounted"], "allow_uncounted"),
        elementwise=_a(str, options["elementwise"], "elementwise"),
        formulas={name: _a(str, value, "formulas") for name, value in options["formulas"].items()},
    )
    saved = Saved(
        name=_a(str, data["name"], "name"),
        terms=tuple(_term_of(one) for one in _a(list, data["contractions"], "contractions")),
        parameters=tuple(_parameter_of(one) for one in _a(list, data["parameters"], "parameters")),
        included=_a(bool, data["included"], "included"),
        uncounted=tuple(_a(str, one, "uncounted") for one in _a(list, data["uncounted"], "uncounted")),
        inputs=tuple(_a(str, one, "inputs") for one in _a(list, data["inputs"], "inputs")),
        versions={name: _a(str, value, "versions") for name, value in data["versions"].items()},
        asked=asked if module is not None else None,
    )
    for name in ("macs", "elementwise_macs", "params"):
        if data[name] != getattr(saved, name):
            raise ValueError(f"its lines sum to {getattr(saved, name):,} {name}, its head says {_short(data[name])}")
    return saved


def _of_tables(data: Mapping[str, Any], path: str) -> Saved:
    tables = {table["name"]: table for table in data["tables"]}
    if "module" not in tables:
        raise UsageError(f"{path} holds {', '.join(map(str, tables)) or 'no table'}: not the count of a module")
    main = tables["module"]
    written = tables.get("module-elementwise", {"rows": []})["rows"]
    saved = Saved(
        name=_a(str, main["spec"], "spec"),
        terms=terms_of(main["rows"], written),
        parameters=parameters_of(main["parameters"]),
        included=main["macs"] != main["dispatched"],
        uncounted=tuple(line["text"] for line in main["audit"] if line["state"] == "unknown"),
    )
    for name in ("macs", "params"):
        if main[name] != getattr(saved, name):
            raise ValueError(f"its rows sum to {getattr(saved, name):,} {name}, it says {_short(main[name])}")
    return saved


def _term_of(one: Mapping[str, Any]) -> Entry:
    sizes = {_a(str, letter, "sizes"): _whole(size, letter) for letter, size in one["sizes"].items()}
    if one["kind"] not in KINDS:
        raise ValueError(f"{_short(one['kind'])} is no kind of contraction")
    term = Entry(_a(str, one["path"], "path"), one["kind"], sizes, times=_whole(one["times"], "times"))
    if one["macs"] != term.size:
        raise ValueError(f"{term.path or 'the model'}: its sizes make {term.size:,} MACs, not {_short(one['macs'])}")
    return term


def _parameter_of(one: Mapping[str, Any]) -> Parameter:
    shape = tuple(_whole(size, "shape") for size in _a(list, one["shape"], "shape"))
    found = Parameter(_a(str, one["path"], "path"), shape, _a(bool, one["trainable"], "trainable"))
    if one["params"] != found.params:
        raise ValueError(f"{found.path} has {found.params:,} elements, not {_short(one['params'])}")
    return found


def _a(kind: type, value: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {_short(value)}, no {kind.__name__}")
    return value


def _whole(value: Any, name: str, least: int | None = 0) -> int:
    if type(value) is not int or (least is not None and value < least):
        raise TypeError(f"{name} is {_short(value)}, no whole number")
    return value


def _short(value: Any) -> str:
    """The first words of what a file says, on one line and fit for a terminal."""
    said = str(value) if isinstance(value, BaseException) else repr(value)
    return re.sub(r"[^ -~]", "?", said)[:80]
