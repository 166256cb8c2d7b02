"""The file of a count snapshot: JSON with sorted keys, so that a change of a count is a change of a line."""

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import headcount
from headcount.bench.errors import UsageError, read_file
from headcount.bench.snapshot.snapshot import LIMITED, CountRequest, CountSnapshot, natural, parameters_of, terms_of
from headcount.formulas.ledger import Entry, Ledger
from headcount.formulas.rank import Transfer

LOCK_VERSION = 2
"""Schema version of a lock. Version 1 called unsupported operations uncounted and is read, too."""
ADDED = ("inputs", "dtype", "lengths", "backward", "plan", "ranks", "rank")
"""Options that a lock has only where they are set."""
JSON_VERSION = 1
"""Schema version of the JSON of ``headcount macs --module`` that is read."""


def versions(libraries: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of headcount, Python, torch (without its build) and ``libraries``."""
    torch = version("torch").partition("+")[0]
    python = ".".join(platform.python_version_tuple()[:2])
    return {"headcount": headcount.__version__, "torch": torch, "python": python, **libraries}


def text(snapshot: CountSnapshot) -> str:
    """Return the file of ``snapshot``: the same for the same count, whatever the order of its terms."""
    request = snapshot.request or CountRequest("")
    options = {name: value for name, value in request.options().items() if value or name not in ADDED}
    contractions = [
        {"path": term.path, "kind": term.kind, "sizes": dict(term.dims), "times": term.times, "macs": term.size}
        for term in snapshot.terms
    ]
    fields = ("name", "inputs", "included", "versions", "macs", "elementwise_macs", "params")
    data = {name: getattr(snapshot, name) for name in fields} | {
        "lock_version": LOCK_VERSION,
        "module": request.module or None,
        "settings": request.settings,
        "options": options,
        "contractions": sorted(contractions, key=_order),
        "parameters": sorted(({**vars(one), "params": one.params} for one in snapshot.parameters), key=_order),
        "uncalled": snapshot.uncalled and sorted(snapshot.uncalled),
        "unsupported": sorted(snapshot.unsupported),
    }
    if snapshot.limits:
        data["limits"] = dict(snapshot.limits)
    if snapshot.collectives:
        data["collectives"] = sorted(map(vars, snapshot.collectives), key=_order)
        data["sent"] = snapshot.sent
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _order(one: Mapping[str, Any]) -> tuple:
    return natural(one["path"]), json.dumps(one, sort_keys=True)


def read(path: str | Path) -> CountSnapshot:
    """Return the snapshot in a file: a lock, or the output of ``headcount macs --module … --format json``.

    Raises UsageError for a file that cannot be read, that is neither, or whose sums are not those of its entries.
    """
    return parse(read_file(path), path)


def parse(content: str, path: str | Path) -> CountSnapshot:
    """Return the snapshot in the text ``content`` of the file ``path``. Raises UsageError as :func:`read`."""
    try:
        data = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {_short(error)}") from None
    kinds = {"lock_version": (LOCK_VERSION, _of_lock), "schema_version": (JSON_VERSION, _of_tables)}
    key = next((key for key in kinds if isinstance(data, dict) and key in data), None)
    if key is None:
        raise UsageError(f"{path} is neither a lock nor the JSON of headcount macs --module")
    known, parse = kinds[key]
    if data[key] not in range(1, known + 1):
        raise UsageError(f"{path} has {key} {_short(data[key])}; this software reads {known}")
    try:
        snapshot, sums = parse(data)
        _check_types(snapshot, CountSnapshot, key)
        for name, written in sums.items():
            total = getattr(snapshot, name)
            # the sum is an integer where all sizes are
            if type(total) is not int or total != written:
                raise ValueError(f"sum of {name}: {total}, the file has {_short(written)}")
    except KeyError as error:
        raise UsageError(f"{path} is not the count of a module: it has no {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is broken: {_short(error)}") from None
    return snapshot


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def is_count(path: str | Path) -> bool:
    """Return whether a JSON file is meant as a count: a configuration is an object without a version of ours."""
    try:
        data = json.loads(read_file(path))
    except (ValueError, RecursionError):
        return True
    return not isinstance(data, dict) or "lock_version" in data or "schema_version" in data


def _of_lock(data: Mapping[str, Any]) -> tuple[CountSnapshot, Mapping[str, Any]]:
    """Return the snapshot of a lock, and the sums in it."""
    word = "uncounted" if data["lock_version"] == 1 else "unsupported"
    names = ("device", "elementwise", "formulas")
    options = {name: data["options"][name] for name in names} | {"allow_unsupported": data["options"][f"allow_{word}"]}
    options["formula_set"] = data["options"].get("formula_set")
    options |= {name: data["options"][name] for name in ADDED if name in data["options"]}
    if "inputs" in options:
        options["inputs"] = tuple(options["inputs"])
    request = CountRequest(data["module"] or "", data["settings"], **options)
    snapshot = CountSnapshot(
        name=data["name"],
        terms=tuple(Entry(one["path"], one["kind"], one["sizes"], one["times"]) for one in data["contractions"]),
        parameters=parameters_of(data["parameters"]),
        included=data["included"],
        unsupported=tuple(data[word]),
        inputs=tuple(data["inputs"]),
        versions=data["versions"],
        request=request if data["module"] else None,
        collectives=tuple(Transfer(**one) for one in data.get("collectives", ())),
        limits={name: data["limits"][name] for name in LIMITED if name in data.get("limits", {})},
        uncalled=_paths(data.get("uncalled")),
    )
    sums = {name: data[name] for name in ("macs", "elementwise_macs", "params")}
    return snapshot, sums | {"sent": data.get("sent", 0)}


def _of_tables(data: Mapping[str, Any]) -> tuple[CountSnapshot, Mapping[str, Any]]:
    """Return the snapshot of the tables of a module, and the sums in them."""
    tables = {table["name"]: table for table in data["tables"]}
    # the second is that of headcount count
    module = tables.get("module") or tables["modules"]
    terms, elementwise = module.get("ledger", module["rows"]), tables.get("module-elementwise", {"rows": []})
    snapshot = CountSnapshot(
        name=module["spec"],
        terms=terms_of(Ledger.from_records(terms), Ledger.from_records(elementwise["rows"])),
        parameters=parameters_of(module["parameters"]),
        included=module["macs"] != module["dispatched"],
        unsupported=tuple(line["text"] for line in module["audit"] if line["state"] == "unknown"),
        uncalled=_paths(module.get("uncalled_modules")),
    )
    return snapshot, {name: module[name] for name in ("macs", "params")}


def _paths(found: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(found)


def _check_types(value: Any, hint: Any, name: str) -> None:
    """Raise TypeError unless ``value`` and what it holds have the types of the annotation ``hint``."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return None if value is None else _check_types(value, inner[0], name)
    known = kind if kind in (tuple, Mapping) else hint
    if known is not Any and (not isinstance(value, known) or (known is int and isinstance(value, bool))):
        raise TypeError(f"{name} has the wrong type: {_short(value)}")
    if is_dataclass(value):
        for field, its_hint in get_type_hints(type(value)).items():
            _check_types(getattr(value, field), its_hint, field)
    elif kind in (tuple, Mapping):
        for one in value if kind is tuple else value.values():
            _check_types(one, inner[kind is Mapping], name)


def _short(value: Any) -> str:
    """Return the first 80 characters of a file's value or an error, on one line and printable."""
    return re.sub(r"[^ -~]", "?", str(value) if isinstance(value, BaseException) else repr(value))[:80]
