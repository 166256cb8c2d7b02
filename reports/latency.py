"""The clock in documents: stored latency records per device, and the MoA authors' wall-clock sentence judged."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from headcount.bench import records
from headcount.bench.latency.statistics import paired_ratio, quantile
from headcount.bench.latency.table import Columns
from headcount.bench.table import Column
from headcount.reports import claims, markdown
from headcount.reports.data_files import table_as_csv
from headcount.reports.facts import Facts

ON_CUDA = "python -m bench.latency --device cuda --record"
NOT_MEASURED = {
    "cuda": f"not measured: no record of a CUDA device is stored. `{ON_CUDA}` makes one.",
    "cpu": "not measured: no record of a CPU is stored. `python -m bench.latency --record` makes one.",
}


def by_device(facts: Facts) -> dict[str, list[dict[str, Any]]]:
    """Stored latency records that may enter a document, the newest of each row, by device name; those of a second
    measurement of the same cell are for the agreement of the two alone (:mod:`headcount.reports.estimate`)."""
    newest: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for record in sorted(facts.stored("latency"), key=lambda r: r["environment"]["time"]):
        if not record["smoke"] and not record.get("again"):
            key = (record["environment"]["device"], record["cell"], record["layer"], record["implementation"])
            newest[key] = record
    devices: dict[str, list[dict[str, Any]]] = {}
    for (device, *_), record in newest.items():
        devices.setdefault(device, []).append(record)
    return devices


def of_type(facts: Facts, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The devices of a kind, ``cuda`` or ``cpu``, with their records."""
    return {name: rows for name, rows in by_device(facts).items() if rows[0]["environment"]["device_type"] == kind}


def environments(facts: Facts) -> str:
    """The environment of each device's records."""
    rows = []
    for device, found in by_device(facts).items():
        for environment in {r["environment"]["time"]: r["environment"] for r in found}.values():
            rows.append(
                {
                    "device": device,
                    "time": environment["time"],
                    "threads": environment["threads"],
                    "python": environment["python"],
                    "packages": ", ".join(f"{k} {v}" for k, v in environment["packages"].items()),
                    "gpu": environment["gpu"]
                    and f"driver {environment['gpu']['driver']}, CUDA {environment['gpu']['cuda']}",
                    "commit": (environment["commit"] or "none")[:10] + (" + changes" if environment["dirty"] else ""),
                    "command": f"`python -m {' '.join(environment['command'])}`",
                }
            )
    if not rows:
        return "No record is stored."
    return markdown.table([Column(key, key) for key in rows[0]], rows)


def tables(facts: Facts, subject: str) -> str:
    """The times of layers or of models, a table per device; both kinds of device are named. All that was measured
    stands in :func:`data`."""
    parts = []
    for kind in ("cuda", "cpu"):
        found = {d: [r for r in rows if r["subject"] == subject] for d, rows in of_type(facts, kind).items()}
        if not any(found.values()):
            parts.append(f"**{kind.upper()}**: {NOT_MEASURED[kind]}")
        for device, rows in found.items():
            if rows:
                parts += [f"**{kind.upper()}**: {device}", _table(kind, rows)]
    return "\n\n".join(parts)


SHOWN = ("layer", "implementation", "seq_len", "pass", "gpu_ms", "wall_ms", "to_mha", "tax", "floors")
"""What a page shows of a row: of a GPU its own time, else wall time."""


def _table(kind: str, rows: Sequence[dict[str, Any]]) -> str:
    columns, rows = Columns(kind), headline(rows)
    values = [columns.values(row) for row in rows]
    shown = [c for c in columns.columns() if c.key in SHOWN and (c.key != "wall_ms" or kind != "cuda")]
    # a column in which nothing was measured says nothing
    shown = [column for column in shown if any(value[column.key] is not None for value in values)]
    texts = [{column.key: column.text(value[column.key]) for column in shown} for value in values]
    for text, value in zip(texts, values, strict=True):
        if value["routing"] not in (None, "balanced"):
            text["implementation"] += f", {value['routing']}"
        if value["to_mha"]:
            text["to_mha"] += f" {value['to_mha_verdict']}"
    # what is text already keeps its side
    heads = [Column(c.key, c.head, c.unit, align=c.side) for c in shown]
    return markdown.table(heads, texts, [columns.notes(row) for row in rows])


def data(facts: Facts) -> str:
    """Every stored row of every device as CSV: layers and models, with all that was measured."""
    rows, keys = [], {}
    for device, measured_rows in by_device(facts).items():
        columns = Columns(measured_rows[0]["environment"]["device_type"])
        for record in measured_rows:
            first = {"device": device, "subject": record["subject"], "name": record["name"], "status": record["status"]}
            measured = {**columns.values(record), **dict.fromkeys(RATIOS)}
            ratios = {f"{key}_{part}": (record[key] or {}).get(part) for key in RATIOS for part in PARTS}
            row = {k: v for k, v in {**first, **measured, **ratios}.items() if k not in RATIOS}
            rows.append(row)
            keys |= dict.fromkeys(row)
    return table_as_csv(list(keys), rows)


def about(facts: Facts) -> str:
    """How to read the ratios."""
    return (
        "vs MHA and tax are ratios of times of the same blocks, with 95 % bootstrap intervals: vs MHA of the same "
        "model width; the tax over dense multi-query attention of the same K and D. Slower or faster is said where the "
        "interval excludes 1 and the ratio exceeds the noise of the same code timed twice. All that was measured, "
        f"shares of the peak and errors too: [{DATA}]({DATA})."
    )


def commands(facts: Facts, subject: str, ratio: str = "") -> list[str]:
    """The commands that stored the records of a subject, those that have a ratio; one that would, for none."""
    found = {
        f"python -m {' '.join(row['environment']['command'])}": None
        for rows in by_device(facts).values()
        for row in rows
        if row["subject"] == subject and (not ratio or row[ratio])
    }
    return list(found) or ["python -m bench.latency --record"]


DATA = "times.csv"
RATIOS = ("to_mha", "tax", "to_dense")
PARTS = ("value", "low", "high")


def sentence(facts: Facts) -> str:
    """The authors' expectation against each measured device, row by row."""
    (expected,) = facts.claims.timed
    parts = [claims.quoted(expected)]
    for kind in ("cuda", "cpu"):
        devices = of_type(facts, kind)
        verdicts = {device: _verdicts(rows) for device, rows in devices.items()}
        if not any(verdicts.values()):
            parts.append(f"**{kind.upper()}**: {NOT_MEASURED[kind]}")
        for device, rows in verdicts.items():
            if rows:
                parts += [f"**{kind.upper()}**: {device}", _sentence(rows), _summary(rows)]
    return "\n\n".join(parts)


DENSE = {"mha": "MHA of the same model width", "mha-inner": "MHA of the same inner width"}
"""What a standard attention block may be, by the role of its arm in a cell."""

_SENTENCE_COLUMNS = [
    Column("layer", "layer"),
    Column("seq_len", "T", kind="int"),
    Column("pass", "pass"),
    Column("fastest", "fastest"),
    Column("loop", "time over loop: at most half"),
    *(Column(role, f"MACs, and time, over {name}: as fast") for role, name in DENSE.items()),
]


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    return markdown.table(_SENTENCE_COLUMNS, [_sentence_row(row) for row in rows])


def _sentence_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is printed: each ratio with its verdict."""
    shown = {"loop": f"{row['loop']} {row['half']}"}
    for role in DENSE:
        macs, time, verdict = row[f"{role}_macs"], row[role], row[f"{role}_verdict"]
        shown[role] = time and f"{float(macs):.2f}, {time} {verdict}"
    return row | shown


def _verdicts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for cell in dict.fromkeys(r["cell"] for r in rows):
        timed = [r for r in rows if r["cell"] == cell and r["subject"] == "layer" and r["wall_ms"]]
        loop = next((r for r in timed if r["implementation"] == "loop"), None)
        fast = [r for r in timed if r["role"] == "subject" and r["implementation"] != "loop"]
        if not (loop and fast):
            continue
        # the sentence says wall-clock; a loop that waits for the device has no other time
        best = min(fast, key=lambda record: quantile(record["wall_ms"], 0.5))
        to_loop = paired_ratio(
            records.comparable_samples(best, records.WALL), records.comparable_samples(loop, records.WALL)
        )
        row = {"layer": best["layer"], "seq_len": best["seq_len"], "pass": best["pass"]}
        row |= {"fastest": best["implementation"], "loop": _text(to_loop), "half": _holds(to_loop, 0.5)}
        for role in DENSE:
            row |= _against(best, next((r for r in timed if r["role"] == role), None), role)
        found.append(row)
    return found


def _against(best: dict[str, Any], dense: dict[str, Any] | None, role: str) -> dict[str, Any]:
    """Time and MACs over a dense layer of the same cell; unknown where it was not timed."""
    if dense is None:
        return dict.fromkeys((role, f"{role}_macs", f"{role}_verdict"))
    ratio = paired_ratio(
        records.comparable_samples(best, records.WALL), records.comparable_samples(dense, records.WALL)
    )
    return {
        role: _text(ratio),
        f"{role}_macs": Fraction(best["macs"], dense["macs"]),
        f"{role}_verdict": _holds(ratio, 1.0),
    }


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    said = {
        "half": "at most half of `loop`",
        **{f"{role}_verdict": f"as fast as {name}" for role, name in DENSE.items()},
    }
    parts = []
    for key, what in said.items():
        counts = {verdict: sum(row[key] == verdict for row in rows) for verdict in ("holds", "fails", "no evidence")}
        parts.append(f"{what}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items() if n) or 'not timed'}")
    return f"Of {len(rows)} cells: {'; '.join(parts)}."


def median_ms(record: dict[str, Any]) -> float:
    """The median of a timed record, by how it was timed: GPU time where there is any, else wall time."""
    return quantile(records.comparable_samples(record), 0.5)


def least_taxes(rows: Sequence[dict[str, Any]]) -> list[float]:
    """The routing tax of the fastest arm of each cell that has one."""
    cells: dict[str, list[float]] = {}
    for row in rows:
        if row["subject"] == "layer" and row["tax"]:
            cells.setdefault(row["cell"], []).append(row["tax"]["value"])
    return [min(values) for values in cells.values()]


HEADLINE_LENGTHS = (128, 2048, 8192)


def headline(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that a page shows: all of a CPU; of a GPU's layers, at three lengths where those were measured, dense
    layers, the loop, the fastest of the other arms, those with a graph first, and what could not be timed."""
    if not any(r["environment"]["device_type"] == "cuda" and r["subject"] == "layer" for r in rows):
        return list(rows)
    measured = {r["seq_len"] for r in rows}
    lengths, shown = measured & set(HEADLINE_LENGTHS) or measured, []
    for cell in dict.fromkeys(r["cell"] for r in rows if r["seq_len"] in lengths):
        own = [r for r in rows if r["cell"] == cell]
        arms = [r for r in own if r["wall_ms"] and r["role"] == "subject" and r["implementation"] != "loop"]
        fastest = min(arms, key=lambda r: (records.timed_by(r) != records.GRAPH, median_ms(r)), default=None)
        shown += [r for r in own if r is fastest or r not in arms]
    return shown


def _text(ratio) -> str:
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _holds(ratio, bound: float) -> str:
    if ratio.high <= bound:
        return "holds"
    return "fails" if ratio.low > bound else "no evidence"
