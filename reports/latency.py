"""Show stored latency records by device, and judge the MoA authors' wall-clock sentence."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

from headcount.bench import records
from headcount.bench.latency import table
from headcount.bench.latency.implementations import skips
from headcount.bench.latency.schedule import read_parts
from headcount.bench.latency.statistics import paired_ratio, quantile
from headcount.bench.table import INTERVAL, plural
from headcount.reports import document
from headcount.reports.facts import Facts
from headcount.reports.pages.claims import quote

ON_CUDA = "python -m bench.latency --device cuda --record"
LOOP = "loop"
"""The implementation of the released algorithm of MoA."""
NOT_MEASURED = {
    "cuda": f"not measured: no record of a CUDA device is stored. `{ON_CUDA}` makes one.",
    "cpu": "not measured: no record of a CPU is stored. `python -m bench.latency --record` makes one.",
}


def results(
    facts: Facts, find: Callable[[list[dict[str, Any]]], Any] = list, with_loop: bool = False
) -> dict[str, dict[str, Any]]:
    """Return by kind of device, ``cuda`` and ``cpu``, what ``find`` makes of each device's records, where that is not
    empty: of the newest record of each row, without smoke tests and repeated measurements.

    ``with_loop``: of the newest run of each timing case that timed the released loop, whose rows only compare there.
    """
    stored = [r for r in facts.stored("latency") if not r["smoke"] and not r.get("again")]
    stored.sort(key=lambda r: r["environment"]["time"])
    if with_loop:
        runs = {_case(r): r["environment"]["time"] for r in stored if r["implementation"] == LOOP}
        stored = [r for r in stored if runs.get(_case(r)) == r["environment"]["time"]]
    newest = {(*_case(r), r["layer"], r["implementation"]): r for r in stored}
    devices: dict[str, dict[str, list[dict[str, Any]]]] = {kind: {} for kind in NOT_MEASURED}
    for (kind, device, *_), record in newest.items():
        devices[kind].setdefault(device, []).append(record)
    return {kind: {name: found for name in own if (found := find(own[name]))} for kind, own in devices.items()}


def _case(record: dict[str, Any]) -> tuple[str, str, str]:
    """Return the kind of device, the device and the timing case of a record."""
    return record["environment"]["device_type"], record["environment"]["device"], record["cell"]


def newest_records(facts: Facts) -> list[dict[str, Any]]:
    """Return the records of :func:`results` of every device."""
    return [row for own in results(facts).values() for rows in own.values() for row in rows]


def per_device(
    facts: Facts,
    find: Callable[[list], Any],
    show: Callable[[str, Any], Sequence[str]],
    kinds: Iterable[str] = NOT_MEASURED,
    **which: bool,
) -> str:
    """Return for each device of these kinds a heading and the texts that ``show`` makes of the result of ``find``; a
    kind without results is reported as not measured."""
    found = results(facts, find, **which)
    parts = []
    for kind in kinds:
        for device, own in found[kind].items():
            parts += [f"**{kind.upper()}**: {device}", *show(kind, own)]
        parts += [] if found[kind] else [f"**{kind.upper()}**: {NOT_MEASURED[kind]}"]
    return "\n\n".join(parts)


def environments(facts: Facts) -> str:
    """Return the environments of each device's records, with the time of the first record of each."""
    rows: dict[tuple, dict[str, Any]] = {}
    for one in sorted((row["environment"] for row in newest_records(facts)), key=itemgetter("device", "time")):
        row = {
            "device": one["device"],
            "threads": str(one["threads"]),
            "python": one["python"],
            "packages": ", ".join(f"{name} {version}" for name, version in one["packages"].items()),
            "gpu": one["gpu"] and f"driver {one['gpu']['driver']}, CUDA {one['gpu']['cuda']}",
            "commit": (one["commit"] or "none")[:10] + (" + changes" if one["dirty"] else ""),
        }
        rows.setdefault(tuple(row.values()), row | {"from": one["time"]})
    return document.records(list(rows.values())) if rows else "No record is stored."


OVERVIEW_LENGTH = 2048
"""Tokens of a layer's row in the overview, or the nearest length that was measured."""
KERNELS_SHOWN, MOST_NAME = 3, 30
"""Kernels of a row, and characters of a kernel's name."""


def overview(facts: Facts) -> str:
    """Return the time of each model and layer, its ratio to the dense one in words, and where the time goes."""
    numbers = {"ms": {"kind": "fixed", "digits": 4}}

    def show(kind: str, rows: Sequence[dict[str, Any]]) -> list[str]:
        measured = {row["model or layer"] for row in rows if row["subject"] == "model"}
        planned = [name for row in read_parts()["models"]["cases"] for name in row["name"]]
        missing = [f"`{name}`" for name in planned if kind == "cuda" and name not in measured]
        shown = [{key: value for key, value in row.items() if key != "subject"} for row in rows]
        return [document.records(shown, numbers), *([f"Not measured: {', '.join(missing)}."] if missing else [])]

    return per_device(facts, _overview_rows, show)


def _overview_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model, then for each layer at one length."""
    dense = {(row["cell"], row["role"]): row for row in rows}
    headline = [row for row in headline_rows(rows) if row["wall_ms"]]
    lengths: dict[tuple[str, str], set[int]] = {}
    for row in headline:
        lengths.setdefault((row["name"], row["pass"]), set()).add(row["seq_len"])
    found = []
    for row in sorted(headline, key=lambda row: row["subject"] != "model"):
        nearest = min(lengths[row["name"], row["pass"]], key=lambda length: abs(length - OVERVIEW_LENGTH))
        if row["subject"] == "layer" and (row["seq_len"] != nearest or row["routing"] != "balanced"):
            continue
        key, role = ("overhead", "mqa") if row["overhead"] else ("to_dense", "dense")
        ratio = row[key]
        values = {"subject": row["subject"], "model or layer": row["layer"], "T": row["seq_len"], "pass": row["pass"]}
        values |= {"implementation": row["implementation_used"] or row["implementation"]}
        values |= {"ms": _median_ms(row), "dense": None}
        if ratio:
            other = dense[row["cell"], role]
            name = "all heads" if other["layer"] == row["layer"] else other["layer"]
            values |= {"dense": name}
        values |= {"over dense": describe_ratio(ratio, row[f"{key}_verdict"])}
        found.append(values | {"time by kernel": describe_kernels(row.get("kernels"))})
    return found


def describe_ratio(ratio: dict[str, float] | None, verdict: str | None) -> str | None:
    """Return a ratio of times with its interval and the verdict on it in plain words; None without a ratio."""
    if ratio is None:
        return None
    return (
        f"no difference measured, {interval(ratio)}" if verdict == "no evidence" else f"{interval(ratio)} times as long"
    )


def describe_kernels(kernels: Sequence[dict[str, Any]] | None) -> str:
    """Return the share of the longest kernels, those of one name together, or that none were measured."""
    if not kernels:
        return "not measured"
    times: dict[str, float] = {}
    for kernel in kernels:
        # a C++ kernel without its return type, namespaces, template and arguments
        plain = kernel["name"].removeprefix("void ").replace("(anonymous namespace)::", "")
        name = re.split(r"[<(]", plain)[0].rpartition("::")[2][:MOST_NAME]
        times[name] = times.get(name, 0.0) + kernel["us"]
    order = sorted(times, key=lambda name: -times[name])
    parts = [(f"`{name}`", times[name]) for name in order[:KERNELS_SHOWN]]
    if others := order[KERNELS_SHOWN:]:
        parts.append((plural(len(others), "other"), sum(times[name] for name in others)))
    return ", ".join(f"{name} {100 * us / sum(times.values()):.0f} %" for name, us in parts)


def tables(facts: Facts, subject: str) -> str:
    """Return the times of layers or of models, a table for each device; :func:`data` has all measurements."""
    return per_device(
        facts,
        lambda rows: headline_rows([r for r in rows if r["subject"] == subject]),
        lambda kind, rows: [format_rows(rows, (*TIMES, "gpu_ms" if kind == "cuda" else "wall_ms"))],
    )


def format_rows(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    """Return the columns ``keys`` of records, with their notes. A column without values, or of balanced routing alone,
    is left out."""
    values = [table.values(row) for row in rows]
    for one in values:
        for key in RATIOS:
            one[key] = one[key] and f"{interval(one[key])} {one[f'{key}_verdict'] or ''}".strip()
    columns = [c for c in table.COLUMNS if c.key in keys and any(v[c.key] not in (None, "balanced") for v in values)]
    columns = [replace(column, words=column.key in RATIOS) for column in columns]
    return document.table(columns, values, [table.notes(row) for row in rows])


def data(facts: Facts) -> str:
    """Return all measurements of every stored row of every device as CSV."""
    rows = []
    for record in newest_records(facts):
        values = table.values(record)
        ratios = {key: values.pop(key) or {} for key in RATIOS}
        row = {"device": record["environment"]["device"], "subject": record["subject"], "name": record["name"]} | values
        row["status"] = record["status"]
        rows.append(row | {f"{key}_{part}": ratios[key].get(part) for key in ratios for part in INTERVAL})
    return document.table_as_csv(rows)


def commands(facts: Facts) -> list[str]:
    """Return the commands that stored the records."""
    commands = (row["environment"]["command"] for row in newest_records(facts))
    return list(dict.fromkeys(f"python -m {' '.join(words)}" for words in commands))


DATA = "times.csv"
RATIOS = ("to_mha", "over_dense")
TIMES = ("layer", "implementation", "seq_len", "pass", "routing", *RATIOS, "over_bound")


VERDICTS = {
    "loop": ("at most half the time of loop", 0.5),
    "mha": ("as fast as MHA of the same model width (MACs, time)", 1.0),
    "mha-inner": ("as fast as MHA of the same inner width (MACs, time)", 1.0),
}
"""The authors' sentence by role of the compared layer: column heading, and bound of the ratio."""


def sentence(facts: Facts) -> str:
    """Return the verdict on the authors' sentence for each row of each device."""
    (expected,) = facts.claims.timed
    return f"{quote(expected)}\n\n{per_device(facts, _verdicts, _show_verdicts, with_loop=True)}"


def _verdicts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each case with a loop: the fastest other implementation against the loop and the dense
    layers."""
    found = []
    for cell in dict.fromkeys(r["cell"] for r in headline_rows(rows) if r["pass"] != "decode"):
        timed = [r for r in rows if r["cell"] == cell and r["subject"] == "layer" and r["wall_ms"]]
        others = {r["role"]: r for r in reversed(timed)}
        others["loop"] = next((r for r in timed if r["implementation"] == LOOP), None)
        fast = [r for r in timed if r["role"] == "subject" and r["implementation"] != LOOP]
        if not (others["loop"] and fast):
            continue
        best = min(fast, key=_slowness)
        row = {"layer": best["layer"], "T": best["seq_len"], "pass": best["pass"], "fastest": best["implementation"]}
        found.append(row | {head: _against(best, others.get(role), role) for role, (head, _) in VERDICTS.items()})
    return found


def _against(best: dict[str, Any], other: dict[str, Any] | None, role: str) -> str | None:
    """Return the ratio of times with its verdict, after that of MACs for a dense layer; None where it was not timed.

    Of replayed graphs where both have one, else of wall time: a loop that waits for the device has no graph.
    """
    if other is None:
        return None
    by = records.common_timing(best, other)
    ratio = paired_ratio(*(records.comparable_samples(record, by) for record in (best, other)))
    _, bound = VERDICTS[role]
    verdict = "holds" if ratio.high <= bound else "fails" if ratio.low > bound else "no evidence"
    macs = "" if role == "loop" else f"{best['macs'] / other['macs']:.2f}, "
    return f"{macs}{interval(asdict(ratio))} {verdict}"


def interval(ratio: dict[str, float]) -> str:
    """Return a ratio with its interval."""
    return f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def _show_verdicts(kind: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the forward passes, if there are any, and how many of all rows have each verdict."""
    forward = [row for row in rows if row["pass"] == "forward"]
    parts = []
    for head, _ in VERDICTS.values():
        found = [(row[head] or "").rpartition("] ")[2] for row in rows]
        counts = [f"{n} {verdict}" for verdict in ("holds", "fails", "no evidence") if (n := found.count(verdict))]
        parts.append(f"{head}: {', '.join(counts) or 'not timed'}")
    return [document.records(forward or rows), f"Of {len(rows)} timing cases: {'; '.join(parts)}."]


def least_overheads(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Return the routing overhead of the fastest implementation of each timing case of whole sequences that has one."""
    cells: dict[str, list[float]] = {}
    for row in rows:
        if row["subject"] == "layer" and row["overhead"] and row["pass"] != "decode":
            cells.setdefault(row["cell"], []).append(row["overhead"]["value"])
    return [min(values) for values in cells.values()]


HEADLINE_LENGTHS = (128, 2048, 8192)


def headline_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the row of the fastest implementation of each case, preferably one with a CUDA graph, or the first row of
    a case without a time; layers on a GPU at HEADLINE_LENGTHS where those were measured."""
    measured = {r["seq_len"] for r in rows if r["environment"]["device_type"] == "cuda" and r["subject"] == "layer"}
    if measured:
        lengths = measured & set(HEADLINE_LENGTHS) or measured
        rows = [r for r in rows if r["subject"] != "layer" or r["seq_len"] in lengths]
    cells: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["role"] == "subject":
            cells.setdefault(row["cell"], []).append(row)
    timed = {cell: [r for r in own if r["wall_ms"]] or own[:1] for cell, own in cells.items()}
    return [min(own, key=_slowness) for own in timed.values()]


def _slowness(row: dict[str, Any]) -> tuple[bool, float]:
    if not row["wall_ms"]:
        return False, 0.0
    return records.timed_by(row) != records.GRAPH, _median_ms(row)


def _median_ms(row: dict[str, Any]) -> float:
    return quantile(records.comparable_samples(row), 0.5)


def break_even(facts: Facts) -> str:
    """Return the share of heads below which skipping them pays, a table for each device."""
    return f"{document.text('time.break_even')}\n\n{per_device(facts, ratios, _break_even_table)}"


def _break_even_table(kind: str, found: dict[str, dict[int, dict[str, float]]]) -> list[str]:
    shares = sorted({share for own in found.values() for share in own}, reverse=True)
    rows = []
    for shape, own in found.items():
        row = {"shape": shape} | {f"{share}%": interval(own[share]) if share in own else None for share in shares}
        rows.append(row | {"break-even": crossing({share: ratio["value"] for share, ratio in own.items()})})
    return [document.records(rows, dict.fromkeys(list(rows[0])[1:], {"align": "right"}))]


def ratios(records: Sequence[dict[str, Any]]) -> dict[str, dict[int, dict[str, float]]]:
    """Return by shape, length and pass the ratio of the fastest implementation that skips heads, with its interval, at
    each share of heads in percent."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for record in records:
        if record["subject"] == "layer" and record["to_dense"] and skips(record["name"], record["implementation"]):
            shape, _, share = record["name"].rpartition("-")
            own = found.setdefault(f"{shape.partition('-')[2]}, T {record['seq_len']:,}, {record['pass']}", {})
            own[int(share)] = min(own.get(int(share), record["to_dense"]), record["to_dense"], key=lambda r: r["value"])
    return found


def crossing(ratios: dict[int, float]) -> str | None:
    """Return the share at which the ratio is 1: ``86%``; ``never`` or ``always`` within the measured shares; None for
    fewer than two."""
    if len(ratios) < 2:
        return None
    if min(ratios.values()) >= 1 or max(ratios.values()) < 1:
        return "never" if min(ratios.values()) >= 1 else "always"
    pairs = pairwise(sorted(ratios.items()))
    crossed = (low + (high - low) * (1 - a) / (b - a) for (low, a), (high, b) in pairs if a < 1 <= b)
    return next((f"{share:.0f}%" for share in crossed), None)
