"""The file of a count snapshot: JSON with sorted keys, so that a change of a count is a change of a line."""

import json
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import UsageError, read_file
from headcount.bench.snapshot.snapshot import KINDS, CountRequest, CountSnapshot, Parameter, parameters_of, terms_of
from headcount.formulas.ledger import Entry

LOCK_VERSION = 2
"""Schema version of a lock. Version 1 called unsupported operations uncounted and is read, too."""
JSON_VERSION = 1
"""Schema version of the JSON of ``headcount macs --module`` that is read."""

LOCK = {
    "name": str, "module": str | None, "settings": {str: int}, "inputs": [str], "included": bool, "unsupported": [str],
    "macs": int, "elementwise_macs": int, "params": int, "versions": {str: str},
    "options": {"device": str | None, "allow_unsupported": bool, "elementwise": str, "formulas": {str: str}},
    "contractions": [{"path": str, "kind": str, "sizes": {str: int}, "times": int, "macs": int}],
    "parameters": [{"path": str, "shape": [int], "params": int, "trainable": bool}],
}  # fmt: skip
"""Types of a lock's fields."""
TABLE = {
    "spec": str, "macs": int, "dispatched": int, "params": int, "audit": [{"state": str, "text": str}],
    "parameters": [{"path": str, "name": str, "shape": [int], "trainable": bool}],
}  # fmt: skip
"""Types of the fields of ``headcount macs --module --format json`` that are read, but for the ledger's."""


def versions() -> dict[str, str]:
    """Return the versions of headcount, Python and torch (without its build)."""
    torch = version("torch").partition("+")[0]
    python = ".".join(platform.python_version_tuple()[:2])
    return {"headcount": headcount.__version__, "torch": torch, "python": python}


def text(snapshot: CountSnapshot) -> str:
    """Return the file of ``snapshot``: the same for the same count, whatever the order of its terms."""
    request = snapshot.request or CountRequest("")
    contractions = [
        {"path": term.path, "kind": term.kind, "sizes": dict(term.dims), "times": term.times, "macs": term.size}
        for term in snapshot.terms
    ]
    parameters = [
        {"path": one.path, "shape": list(one.shape), "params": one.params, "trainable": one.trainable}
        for one in snapshot.parameters
    ]
    data = {
        "lock_version": LOCK_VERSION,
        "versions": dict(snapshot.versions or {}),
        "name": snapshot.name,
        "module": snapshot.request and request.module,
        "settings": dict(request.settings),
        "options": request.options(),
        "inputs": list(snapshot.inputs or ()),
        "included": snapshot.included,
        "macs": snapshot.macs,
        "elementwise_macs": snapshot.elementwise_macs,
        "params": snapshot.params,
        "contractions": sorted(contractions, key=_order),
        "parameters": sorted(parameters, key=_order),
        "unsupported": sorted(snapshot.unsupported),
    }
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def natural(path: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of a module path that puts layers.2 before layers.10."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in path.split(".")]


def _order(one: Mapping[str, Any]) -> tuple:
    return natural(one["path"]), json.dumps(one, sort_keys=True)


def read(path: str | Path) -> CountSnapshot:
    """Return the snapshot in a file: a lock, or the output of ``headcount macs --module … --format json``.

    Raises UsageError for a file that cannot be read, that is neither, or whose sums are not those of its entries.
    """
    content = read_file(path)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {_short(error)}") from None
    return of_data(data, str(path))


def of_data(data: Any, path: str) -> CountSnapshot:
    """Return the snapshot in the JSON of the file ``path``; UsageError where it holds none."""
    kinds = {"lock_version": (LOCK_VERSION, _of_lock), "schema_version": (JSON_VERSION, _of_tables)}
    key = next((key for key in kinds if isinstance(data, dict) and key in data), None)
    if key is None:
        raise UsageError(f"{path} is neither a lock nor the JSON of headcount macs --module")
    known, parse = kinds[key]
    if data[key] not in range(1, known + 1) or isinstance(data[key], bool):
        raise UsageError(f"{path} has {key} {_short(data[key])}; this software reads {known}")
    try:
        return parse(data, path)
    except KeyError as error:
        raise UsageError(f"{path} is broken: it has no {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is broken: {_short(error)}") from None


def _of_lock(data: Mapping[str, Any], path: str) -> CountSnapshot:
    if data["lock_version"] == 1:
        data = _renamed(data) | {"options": _renamed(data["options"])}
    _check(data, LOCK, "lock")
    terms = tuple(Entry(one["path"], one["kind"], one["sizes"], times=one["times"]) for one in data["contractions"])
    parameters = tuple(Parameter(one["path"], tuple(one["shape"]), one["trainable"]) for one in data["parameters"])
    for term in terms:
        if term.kind not in KINDS:
            raise ValueError(f"{term.kind!r} is no kind of contraction")
    request = CountRequest(data["module"], data["settings"], **data["options"]) if data["module"] is not None else None
    snapshot = CountSnapshot(
        name=data["name"],
        terms=terms,
        parameters=parameters,
        included=data["included"],
        unsupported=tuple(data["unsupported"]),
        inputs=tuple(data["inputs"]),
        versions=data["versions"],
        request=request,
    )
    _check_sums(snapshot, data, "macs", "elementwise_macs", "params")
    return snapshot


def _renamed(old: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("uncounted", "unsupported"): value for name, value in old.items()}


def _of_tables(data: Mapping[str, Any], path: str) -> CountSnapshot:
    tables = {table["name"]: table for table in data["tables"]}
    if "module" not in tables:
        raise UsageError(f"{path} holds {', '.join(map(str, tables)) or 'no table'}: not the count of a module")
    module = tables["module"]
    _check(module, TABLE, "module")
    written = tables.get("module-elementwise", {"rows": []})["rows"]
    snapshot = CountSnapshot(
        name=module["spec"],
        terms=terms_of(module["rows"], written),
        parameters=parameters_of(module["parameters"]),
        included=module["macs"] != module["dispatched"],
        unsupported=tuple(line["text"] for line in module["audit"] if line["state"] == "unknown"),
    )
    _check_sums(snapshot, module, "macs", "params")
    return snapshot


def _check(value: Any, schema: Any, name: str) -> None:
    """Raise TypeError, or KeyError for a missing field, unless ``value`` has the types of ``schema``."""
    outer = type(schema) if isinstance(schema, dict | list) else schema
    if not isinstance(value, outer) or (isinstance(value, bool) and schema is int):
        raise TypeError(f"{name} is {_short(value)}, no {getattr(outer, '__name__', outer)}")
    if isinstance(schema, list):
        for one in value:
            _check(one, schema[0], name)
    elif isinstance(schema, dict) and str in schema:
        for key, one in value.items():
            _check(one, schema[str], key)
    elif isinstance(schema, dict):
        for key, inner in schema.items():
            _check(value[key], inner, key)


def _check_sums(snapshot: CountSnapshot, data: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if getattr(snapshot, name) != data[name]:
            raise ValueError(f"sum of {name}: {getattr(snapshot, name):,}, the file says {_short(data[name])}")


def _short(value: Any) -> str:
    """Return the first 80 characters of a file's value or an error, on one line and printable."""
    return re.sub(r"[^ -~]", "?", str(value) if isinstance(value, BaseException) else repr(value))[:80]
