"""The file of a count snapshot: JSON with sorted keys, so that a change of a count is a change of a line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.bench.errors import UsageError, excerpt, read_file, unique_keys
from headcount.bench.snapshot.snapshot import LIMITED, CountSnapshot, Target, natural, parameters_of, terms_of
from headcount.formulas.ledger import Entry, Ledger
from headcount.formulas.published.typed import from_data

LOCK_VERSION, TARGETS_VERSION = 2, 3
"""Schema versions of a lock of one target and of several: those as version 2 has them, in a list. Version 1 called
unsupported operations uncounted and is read, too."""
ADDED = ("inputs", "dtype", "lengths", "backward", "plan", "ranks", "rank")
"""Options that a lock has only where they are set."""
JSON_VERSION = 1
"""Schema version of the JSON of ``headcount count`` that is read."""


def text(*snapshots: CountSnapshot) -> str:
    """Return the file of one target or of several: the same for the same count, whatever the order of its terms."""
    found = [_as_record(one) for one in snapshots]
    data = found[0] if len(found) == 1 else {"lock_version": TARGETS_VERSION, "targets": found}
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _as_record(snapshot: CountSnapshot) -> dict[str, Any]:
    """Return the fields of ``snapshot`` as JSON values."""
    request = snapshot.request or Target("")
    options = {name: value for name, value in request.options().items() if value or name not in ADDED}
    contractions = [
        {"path": term.path, "kind": term.kind, "sizes": dict(term.dims), "times": term.times, "macs": term.size}
        for term in snapshot.terms
    ]
    fields = ("name", "inputs", "included", "versions", "macs", "elementwise_macs", "params")
    data = {name: getattr(snapshot, name) for name in fields} | {
        "lock_version": LOCK_VERSION,
        "module": request.spec or None,
        "settings": request.settings,
        "options": options,
        "contractions": sorted(contractions, key=_order),
        "parameters": sorted(({**vars(one), "params": one.params} for one in snapshot.parameters), key=_order),
        "uncalled": snapshot.uncalled and sorted(snapshot.uncalled),
        "unsupported": sorted(snapshot.unsupported),
    }
    collectives = sorted(map(vars, snapshot.collectives), key=_order)
    optional = {"limits": dict(snapshot.limits), "collectives": collectives, "sent": snapshot.sent}
    return data | {name: value for name, value in optional.items() if value}


def _order(one: Mapping[str, Any]) -> tuple:
    return natural(one["path"]), json.dumps(one, sort_keys=True)


def read(path: str | Path, target: str | None = None) -> CountSnapshot:
    """Return the snapshot in a file, in one of several targets that of ``target``. Raises UsageError as :func:`parse`,
    and for a target that the file does not have.
    """
    found = {one.target: one for one in parse(read_file(path), path)}
    if target not in found and (target or len(found) > 1):
        raise UsageError(f"{path} has the targets {', '.join(found)}; one is expected, not {target or 'all'}")
    return found[target or next(iter(found))]


def parse(content: str | bytes, path: str | Path) -> tuple[CountSnapshot, ...]:
    """Return the snapshots, one for each target, in the text ``content`` of the file ``path``.

    It is a lock, or the output of ``headcount count … --format json``. Raises UsageError for a text that is
    neither, or whose sums are not those of its entries.
    """
    try:
        data = json.loads(content, object_pairs_hook=unique_keys)
        # half a pair of surrogates is a text in JSON, but none that can be written or name a file
        json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {excerpt(error)}") from None
    kinds = {"lock_version": (TARGETS_VERSION, _of_lock), "schema_version": (JSON_VERSION, _of_tables)}
    key = next((key for key in kinds if isinstance(data, dict) and key in data), None)
    if key is None:
        raise UsageError(f"{path} is neither a lock nor the JSON of headcount count")
    known, parse_one = kinds[key]
    if data[key] not in range(1, known + 1):
        raise UsageError(f"{path} has {key} {excerpt(data[key])}; this software reads {known}")
    try:
        records = data["targets"] if data.get("lock_version") == TARGETS_VERSION else [data]
        found = tuple(_checked(*parse_one(one), key) for one in records)
        if len({one.target for one in found}) < max(1, len(found)):
            raise ValueError("it has a target twice, or none")
    except KeyError as error:
        raise UsageError(f"{path} is not the count of a module: it has no {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is broken: {excerpt(error)}") from None
    return found


def _checked(fields: Mapping[str, Any], sums: Mapping[str, Any], name: str) -> CountSnapshot:
    """Return the snapshot of ``fields``. Raises TypeError or ValueError for values of wrong types, and for other sums
    than in the file."""
    snapshot = from_data(CountSnapshot, fields, name)
    for key, written in sums.items():
        total = getattr(snapshot, key)
        # the sum is an integer where all sizes are
        if type(total) is not int or total != written:
            raise ValueError(f"sum of {key}: {total}, the file has {excerpt(written)}")
    if not snapshot.limits.keys() <= LIMITED.keys():
        raise ValueError(f"limits are of {' and '.join(LIMITED)}, not of {', '.join(snapshot.limits.keys() - LIMITED)}")
    return snapshot


def is_count(path: str | Path) -> bool:
    """Return whether a JSON file is meant as a count: a configuration is an object without a version of ours."""
    try:
        data = json.loads(read_file(path))
    except (ValueError, RecursionError):
        return True
    return not isinstance(data, dict) or "lock_version" in data or "schema_version" in data


def _of_lock(data: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the fields of the snapshot of a lock, and the sums in it."""
    word = "uncounted" if data["lock_version"] == 1 else "unsupported"
    options = dict(data["options"])
    options["allow_unsupported"] = options.pop(f"allow_{word}")
    request = {"spec": data["module"], "settings": data["settings"], **options}
    fields = {name: data[name] for name in ("name", "included", "inputs", "versions")}
    fields |= {name: data[name] for name in ("collectives", "limits", "uncalled") if name in data}
    terms = [Entry(one["path"], one["kind"], one["sizes"], one["times"]) for one in data["contractions"]]
    parameters = parameters_of(data["parameters"])
    for one, term in zip(data["contractions"], terms, strict=True):
        _check_product(f"macs of {term.path} {term.kind}", one["macs"], term.size)
    for one, parameter in zip(data["parameters"], parameters, strict=True):
        _check_product(f"params of {parameter.path}", one["params"], parameter.params)
    fields |= {
        "terms": terms,
        "parameters": parameters,
        "unsupported": data[word],
        "request": request if data["module"] else None,
    }
    sums = {name: data[name] for name in ("macs", "elementwise_macs", "params")}
    return fields, sums | {"sent": data.get("sent", 0)}


def _check_product(what: str, written: Any, product: int) -> None:
    """Raise ValueError where the number that a lock has beside the sizes of a tensor is not their product."""
    if type(written) is not int or written != product:
        raise ValueError(f"{what}: the sizes give {excerpt(product)}, the file has {excerpt(written)}")


def _of_tables(data: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the fields of the snapshot of the tables of a module, and the sums in them."""
    tables = {table["name"]: table for table in data["tables"]}
    # the second is that of headcount count
    module = tables.get("module") or tables["modules"]
    terms, elementwise = module.get("ledger", module["rows"]), tables.get("module-elementwise", {"rows": []})
    fields = {
        "name": module["spec"],
        "terms": terms_of(Ledger.from_records(terms), Ledger.from_records(elementwise["rows"])),
        "parameters": parameters_of(module["parameters"]),
        "included": module["macs"] != module["dispatched"],
        "unsupported": [line["text"] for line in module["audit"] if line["state"] == "unknown"],
        "uncalled": module.get("uncalled_modules"),
    }
    return fields, {name: module[name] for name in ("macs", "params")}
