"""Print latency records as tables of times and of correctness checks, for a run and for a report."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headcount.bench.column import TONES, Column, plural
from headcount.bench.latency import estimate, timing_cases
from headcount.bench.latency.statistics import TRUSTED_BLOCKS, quantile
from headcount.bench.records import AGREES, Environment, LatencyRecord
from headcount.bench.result import Table


def median_ms(record: LatencyRecord) -> float | None:
    """Return the median of the times by which a record is compared; None where it has none."""
    return _quantile(record.samples(), 0.5)


def _quantile(samples: Sequence[float] | None, q: float) -> float | None:
    return quantile(samples, q) if samples else None


def _ratio(number: float | None, other: float | None) -> float | None:
    return number / other if number and other else None


def _macs_per_s(record: LatencyRecord) -> float | None:
    ms = median_ms(record)
    return record.macs / ms * 1000 if ms else None


def _gmacs_per_s(record: LatencyRecord) -> float | None:
    return _ratio(_macs_per_s(record), 1e9)


def _over_bound(record: LatencyRecord) -> float | None:
    return _ratio(median_ms(record), record.roofline_ms)


def _over_estimate(record: LatencyRecord) -> float | None:
    return _ratio(median_ms(record), estimate.bound_of_record(record))


def _peak_memory(record: LatencyRecord) -> int | None:
    return record.peak_memory_bytes


def _other_choices(record: LatencyRecord) -> int | None:
    return (record.choices or {}).get("other")


def _peak_percent(record: LatencyRecord) -> float | None:
    rate, peak = _macs_per_s(record), (record.peaks or {}).get("macs_per_s")
    return 100 * rate / peak if rate and peak else None


def _tokens_per_s(record: LatencyRecord) -> int | None:
    ms = median_ms(record)
    return round(record.tokens / ms * 1000) if ms else None


def _one_digit(number: float | None) -> str | None:
    return None if number is None else f"{number:.0e}"


LAYER, IMPL, SEQ_LEN, BATCH_SIZE, PASS, ROUTING = timing_cases.COLUMNS
IMPL = replace(IMPL, value=lambda one: one.implementation_used or one.implementation)
ROUTING = replace(ROUTING, value=lambda one: one.routing if one.largest_share is not None else None)
DIGIT = {"width": 7, "align": "right"}
ERROR = Column("error", "rel.\nerror", **DIGIT, priority=4, value=lambda one: _one_digit(one.error))
TIME = {"unit": "ms", "kind": "fixed", "width": 9}
COLUMNS = (
    *(LAYER, IMPL, SEQ_LEN, BATCH_SIZE, PASS, ROUTING),
    Column("gpu_ms", "GPU\nmedian", **TIME, digits=4, priority=0, value=lambda one: _quantile(one.gpu_ms, 0.5)),
    Column("timed_by", "by", width=6, priority=5),
    Column("wall_ms", "wall\nmedian", **TIME, digits=3, priority=0, value=lambda one: _quantile(one.wall_ms, 0.5)),
    Column("p10_ms", "wall\np10", **TIME, digits=3, priority=5, value=lambda one: _quantile(one.wall_ms, 0.1)),
    Column("p90_ms", "wall\np90", **TIME, digits=3, priority=5, value=lambda one: _quantile(one.wall_ms, 0.9)),
    Column("to_mha", "vs MHA", kind="interval", digits=2, width=18, priority=2),
    Column("to_mha_verdict", "verdict", width=11, tones=TONES),
    Column("over_dense", "over dense", kind="interval", digits=2, width=18, priority=2),
    Column("over_dense_verdict", "verdict", width=11, priority=3, tones=TONES),
    Column("macs", "MACs", kind="int", width=15, of="MACs", priority=3),
    Column("rate", "achieved", "GMAC/s", kind="fixed", digits=1, width=9, priority=5, value=_gmacs_per_s),
    Column("peak_share", "of peak", "%", kind="fixed", digits=1, priority=4, value=_peak_percent),
    Column("over_bound", "time /\nbound", kind="fixed", digits=2, width=7, priority=3, value=_over_bound),
    Column(
        "estimate_ms", "estimate,\nno measure", "ms", kind="fixed", digits=4, width=10, priority=4,
        value=estimate.bound_of_record,
    ),
    Column("over_estimate", "time /\nestimate", kind="fixed", digits=2, width=8, priority=5, value=_over_estimate),
    Column("tokens_per_s", "tokens/s", kind="int", width=11, priority=5, value=_tokens_per_s),
    Column("memory", "memory\nof a call", "MiB", kind="fixed", digits=1, scale=2**20, priority=5, value=_peak_memory),
    ERROR,
)  # fmt: skip
YES_NO = {True: "yes", False: "no"}
GPU_COLUMNS = ("gpu_ms", "timed_by", "estimate_ms", "over_estimate")
CHECK_COLUMNS = (
    *(LAYER, IMPL, SEQ_LEN, PASS, ROUTING, ERROR),
    Column("dtype", "dtype", width=8, priority=0),
    Column("bound", "allowed", **DIGIT, priority=2, value=lambda one: _one_digit(one.bound)),
    Column("other_choices", "other\nchoices", kind="int", width=7, priority=4, value=_other_choices),
    Column("replay_error", "replay\nerror", **DIGIT, priority=3, value=lambda one: _one_digit(one.replay_error)),
    Column("same_bits", "same\nbits", width=4, priority=3, value=lambda one: YES_NO.get(one.has_same_bits)),
    Column("core", "core by", width=15, priority=4, value=lambda one: ", ".join(one.backends or ()) or None),
    Column("status", "status", width=6, priority=0, tones=TONES, value=lambda one: one.status.partition(":")[0]),
)  # fmt: skip


def times(environ: Environment, blocks: int, rows: Iterable[LatencyRecord]) -> Table[LatencyRecord]:
    """Return the table of timed rows; its title names the device."""
    device = environ["device_type"]
    where = "GPU and wall time" if device == "cuda" else "CPU wall time"
    smoke = "" if blocks >= TRUSTED_BLOCKS else f"; {plural(blocks, 'block')}: a smoke test, not a measurement"
    return Table(
        "latency",
        f"{where} on {environ['device']}, {plural(environ['threads'], 'thread')}{smoke}",
        [column for column in COLUMNS if device == "cuda" or column.key not in GPU_COLUMNS],
        rows,
        above=[
            "Median over blocks in which implementations alternate. Ratios of times, block by block, with 95 % "
            "bootstrap intervals: vs MHA of the same model width; over dense: for MoA over dense MQA of the same K "
            "and D (the routing overhead), for MoH over the same layer with every head computed. A ratio is of "
            "replayed CUDA graphs where both implementations have one, else of wall time.",
            "Roofline bound: the larger of MACs over the peak rate and unavoidable bytes over the peak bandwidth, "
            "both measured here.",
        ],
        note_column="layer",
    )


def checks(rows: Iterable[LatencyRecord]) -> Table[LatencyRecord]:
    """Return the table of checked rows."""
    title = "Implementations against the float64 reference; nothing is timed"
    return Table("gates", title, CHECK_COLUMNS, rows, note_column="layer")


def sentence(rows: Sequence[LatencyRecord]) -> str:
    """Return how many rows were timed and how they compare with dense layers, and how many checks agree."""
    checked = [row for row in rows if row.blocks == 0]
    timed = [row for row in rows if row.wall_ms]
    parts = [f"{len(timed)} of {len(rows) - len(checked)} rows timed"] if len(rows) > len(checked) else []
    for verdict, dense in (("to_mha_verdict", "MHA"), ("over_dense_verdict", "dense layers of the same heads")):
        found = [getattr(row, verdict) for row in timed if getattr(row, verdict)]
        each = ", ".join(f"{found.count(word)} {word}" for word in dict.fromkeys(found))
        parts += [f"against {dense}: {each}"] if each else []
    if checked:
        agree = sum(row.status == AGREES for row in checked)
        parts.append(f"{agree} of {len(checked)} implementations agree with the reference")
    return f"{'; '.join(parts) or 'nothing timed'}."
