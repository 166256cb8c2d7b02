"""Present latency records as tables of times and of correctness checks, for a run and for a report."""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench import records
from headcount.bench.latency import estimate, timing_cases
from headcount.bench.latency.statistics import TRUSTED_BLOCKS, quantile
from headcount.bench.table import TONES, Column, Section, Table, plural

NAME = "latency"

COLUMNS = (
    *timing_cases.COLUMNS,
    Column("gpu_ms", "GPU\nmedian", "ms", kind="fixed", digits=4, width=9, priority=0),
    Column("timed_by", "by", width=6, priority=5),
    Column("wall_ms", "wall\nmedian", "ms", kind="fixed", digits=3, width=9, priority=0),
    Column("p10_ms", "wall\np10", "ms", kind="fixed", digits=3, width=9, priority=5),
    Column("p90_ms", "wall\np90", "ms", kind="fixed", digits=3, width=9, priority=5),
    Column("to_mha", "vs MHA", kind="interval", digits=2, width=18, priority=2),
    Column("to_mha_verdict", "verdict", width=11, tones=TONES),
    Column("over_dense", "over dense", kind="interval", digits=2, width=18, priority=2),
    Column("over_dense_verdict", "verdict", width=11, priority=3, tones=TONES),
    Column("macs", "MACs", kind="int", width=15, of="MACs", priority=3),
    Column("rate", "achieved", "GMAC/s", kind="fixed", digits=1, width=9, priority=5),
    Column("peak_share", "of peak", "%", kind="fixed", digits=1, priority=4),
    Column("over_bound", "time /\nbound", kind="fixed", digits=2, width=7, priority=3),
    Column("estimate_ms", "estimate,\nno measure", "ms", kind="fixed", digits=4, width=10, priority=4),
    Column("over_estimate", "time /\nestimate", kind="fixed", digits=2, width=8, priority=5),
    Column("tokens_per_s", "tokens/s", kind="int", width=11, priority=5),
    Column("memory", "memory\nof a call", "MiB", kind="fixed", digits=1, scale=2**20, priority=5),
    Column("error", "rel.\nerror", width=7, align="right", priority=4),
)
GPU_COLUMNS = ("gpu_ms", "timed_by", "estimate_ms", "over_estimate")
CHECK_COLUMNS = (
    Column("dtype", "dtype", width=8, priority=0),
    Column("bound", "allowed", width=7, align="right", priority=2),
    Column("other_choices", "other\nchoices", kind="int", width=7, priority=4),
    Column("replay_error", "replay\nerror", width=7, align="right", priority=3),
    Column("same_bits", "same\nbits", width=4, priority=3),
    Column("core", "core by", width=15, priority=4),
    Column("status", "status", width=6, priority=0, tones=TONES),
)
CHECKS = Table(
    "gates",
    "Implementations against the float64 reference; nothing is timed",
    (*(one for one in timing_cases.COLUMNS if one.key != "batch_size"), COLUMNS[-1], *CHECK_COLUMNS),
    note_column="layer",
)


def make_table(environment: dict[str, Any], blocks: int) -> Table:
    """Return an empty table whose title names the device."""
    device = environment["device_type"]
    where = "GPU and wall time" if device == "cuda" else "CPU wall time"
    smoke = "" if blocks >= TRUSTED_BLOCKS else f"; {plural(blocks, 'block')}: a smoke test, not a measurement"
    return Table(
        NAME,
        f"{where} on {environment['device']}, {plural(environment['threads'], 'thread')}{smoke}",
        [column for column in COLUMNS if device == "cuda" or column.key not in GPU_COLUMNS],
        notes_above=[
            "Median over blocks in which implementations alternate. Ratios of times, block by block, with 95 % "
            "bootstrap intervals: vs MHA of the same model width; over dense: for MoA over dense MQA of the same K "
            "and D (the routing overhead), for MoH over the same layer with every head computed. A ratio is of "
            "replayed CUDA graphs where both implementations have one, else of wall time.",
            "Roofline bound: the larger of MACs over the peak rate and unavoidable bytes over the peak bandwidth, "
            "both measured here, or of the data sheet of --hardware.",
        ],
        note_column="layer",
    )


def values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row; None for what was not measured."""
    wall, gpu = record["wall_ms"], record["gpu_ms"]
    dense = "overhead" if record["overhead"] else "to_dense"
    found = {
        **record,
        "implementation": record["implementation_used"] or record["implementation"],
        "routing": record["routing"] if record.get("largest_share") is not None else None,
        "gpu_ms": quantile(gpu, 0.5) if gpu else None,
        "timed_by": records.timed_by(record) if wall else None,
        "wall_ms": quantile(wall, 0.5) if wall else None,
        "p10_ms": quantile(wall, 0.1) if wall else None,
        "p90_ms": quantile(wall, 0.9) if wall else None,
        "over_dense": record[dense],
        "over_dense_verdict": record.get(f"{dense}_verdict"),
        "estimate_ms": estimate.of_record(record),
        "memory": record["peak_memory_bytes"],
        "other_choices": (record.get("choices") or {}).get("other"),
        "same_bits": {True: "yes", False: "no"}.get(record.get("has_same_bits")),
        "core": ", ".join(record.get("backends") or ()) or None,
        "status": record["status"].partition(":")[0],
    }
    for key in ("error", "bound", "replay_error"):
        found[key] = f"{record[key]:.0e}" if record.get(key) is not None else None
    if wall:
        best = found["gpu_ms"] or found["wall_ms"]
        rate, peak = record["macs"] / best * 1000, (record["peaks"] or {}).get("macs_per_s")
        found |= {"rate": rate / 1e9, "peak_share": peak and 100 * rate / peak}
        least = {"over_bound": record["roofline_ms"], "over_estimate": found["estimate_ms"]}
        found |= {key: ms and best / ms for key, ms in least.items()}
        found |= {"tokens_per_s": round(record["tokens"] / best * 1000)}
    return {column.key: found.get(column.key) for column in (*COLUMNS, *CHECK_COLUMNS)}


def notes(record: Mapping[str, Any]) -> list[str]:
    """Return the notes of a row."""
    found = [] if record["status"] in ("timed", records.AGREES) else [record["status"]]
    if record["no_graph_because"]:
        found.append(f"no CUDA graph, so GPU time includes launches and waits: {record['no_graph_because']}")
    slow = (record.get("telemetry") or {}).get("slow_blocks")
    if slow and record["status"] == "timed":
        found.append(f"in {len(slow)} of {record['blocks']} blocks the clock was below 0.9 of the run's median")
    return found


def failures(record: Mapping[str, Any]) -> list[str]:
    """Return a line for a row that is wrong or failed, or not checked: to be timed without enough memory is neither."""
    status = record["status"]
    if status in ("timed", records.AGREES) or record.get("blocks") and status.startswith("out of memory"):
        return []
    return [f"{record['cell']}, {record['layer']} {record['implementation']}: {status}"]


def result(printed: Sequence[Section]) -> str:
    """Return how many rows were timed and how they compare with dense layers, and how many checks agree."""
    rows = [row.values for section in printed if section.table.name == NAME for row in section.rows]
    checked = [row.values["status"] for section in printed if section.table is CHECKS for row in section.rows]
    timed = [row for row in rows if row["wall_ms"] is not None]
    parts = [f"{len(timed)} of {len(rows)} rows timed"] if rows else []
    for key, dense in (("to_mha_verdict", "MHA"), ("over_dense_verdict", "dense layers of the same heads")):
        found = [row[key] for row in timed if row[key]]
        each = ", ".join(f"{found.count(word)} {word}" for word in dict.fromkeys(found))
        parts += [f"against {dense}: {each}"] if each else []
    if checked:
        parts.append(f"{checked.count(records.AGREES)} of {len(checked)} implementations agree with the reference")
    return f"{'; '.join(parts) or 'nothing timed'}."
