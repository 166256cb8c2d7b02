"""Blocks of latency: stored measurements, comparisons with estimates, and Triton's compiled kernels."""

import csv
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import headcount
from headcount.bench import records
from headcount.bench.column import INTERVAL, Column, plural
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency import efficiencies, estimate, table
from headcount.bench.latency.campaign import campaign_cases
from headcount.bench.latency.implementations import layer_impls, model_impls
from headcount.bench.latency.statistics import paired_ratio, quantile
from headcount.bench.latency.table import median_ms
from headcount.bench.performance import model, sources
from headcount.bench.records import LatencyRecord
from headcount.bench.result import Table
from headcount.bench.variants.variant import variants_with
from headcount.reports import counting, document, latency
from headcount.reports.blocks.claims import quote
from headcount.reports.document import File, link
from headcount.reports.facts import Facts
from headcount.reports.latency import headline_rows, slowness
from headcount.reports.plots import timing

overhead_plot, break_even_plot = timing.OVERHEAD, timing.BREAK_EVEN

ON_CUDA = "python -m bench.latency --device cuda --record"
NOT_MEASURED = {
    "cuda": f"not measured: no record of a CUDA device is stored. `{ON_CUDA}` makes one.",
    "cpu": "not measured: no record of a CPU is stored. `python -m bench.latency --record` makes one.",
}


def _per_device(
    facts: Facts,
    find: Callable[[list], Any],
    show: Callable[[str, Any], Sequence[str]],
    kinds: Iterable[str] = NOT_MEASURED,
    **which: bool,
) -> str:
    """Return for each device of these kinds a heading and the texts that ``show`` makes of the result of ``find``; a
    kind without results is reported as not measured."""
    found = latency.results(facts, find, **which)
    parts = []
    for kind in kinds:
        for device, own in found[kind].items():
            parts += [f"**{kind.upper()}**: {device}", *show(kind, own)]
        parts += [] if found[kind] else [f"**{kind.upper()}**: {NOT_MEASURED[kind]}"]
    return "\n\n".join(parts)


def environments(facts: Facts) -> str:
    """Return the environments of each device's records, with the time of the first record of each."""
    rows: dict[tuple, dict[str, Any]] = {}
    for one in sorted((row.environment for row in latency.newest_records(facts)), key=itemgetter("device", "time")):
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


def overheads(facts: Facts) -> str:
    """Return the span of the routing overhead of the fastest implementations for each device."""
    where, lines = link("each with its interval", "time"), []
    for kind, devices in latency.results(facts, latency.least_overheads).items():
        lines += [] if devices else [f"- {kind.upper()}: {NOT_MEASURED[kind]}"]
        for device, least in devices.items():
            lines.append(
                f"- {device}: the routing overhead of the fastest implementation is {min(least):.2f} to "
                f"{max(least):.2f} over {len(least)} layers, lengths and passes: {where}."
            )
    return "\n".join(lines)


OVERVIEW_LENGTH = 2048
"""Tokens of a layer's row in the overview, or the nearest length that was measured."""
OTHERS = "others"
KINDS = {
    "attention": r"sdpa|fmha|flash|scaled_dot_product",
    "products": r"nvjet|gemm|cublas|\b(mm|addmm|bmm|baddbmm)\b",
}
"""What the kernels of libraries compute, by patterns of their names; all others work element by element or on sums."""
UNMEASURED = "not measured"
LEAST_SHARE = 5
"""The least percentage of a call's time for which a kind of kernels is named."""


def overview(facts: Facts) -> str:
    """Return the time of each model and layer, its ratio to the dense one in words, and where the time goes; for a GPU
    also of those that only a campaign names."""
    numbers = {"ms": {"kind": "fixed", "digits": 4, "words": True}}

    def show(kind: str, rows: Sequence[LatencyRecord]) -> list[str]:
        planned = _unmeasured_rows(rows) if kind == "cuda" else []
        found = _overview_rows(rows) + planned
        by_subject = ([row for row in found if subject in row] for subject in ("model", "layer"))
        return [document.records(own, numbers) for own in by_subject if own]

    return _per_device(facts, lambda rows: rows if _overview_rows(rows) else [], show)


PASSES = {"decode": "decode steps", "forward": "forward passes", "both": "forward and backward passes"}


def outcomes(facts: Facts) -> str:
    """Return in how many of their passes MoA and MoH are faster than dense models and layers, on each GPU."""
    sentences = []
    for device, records_of_device in latency.results(facts, _overview_records)["cuda"].items():
        verdicts: dict[str, dict[str, list[str]]] = {}
        for row in records_of_device:
            if row.over_dense:
                words = row.layer.split("-")
                family = next(one.label for name, one in variants_with("label").items() if name in words)
                verdicts.setdefault(family, {}).setdefault(PASSES[row.which], []).append(row.over_dense_verdict)
        families = []
        for family, found in sorted(verdicts.items()):
            counts = [f"{own.count('faster')} of {len(own)} {what}" for what, own in found.items()]
            families.append(f"{family} is faster in {' and '.join(counts)}")
        sentences.append(f"Compared with dense models and layers on an {device}, {'; '.join(families)}.")
    return " ".join(sentences)


def _overview_records(rows: Sequence[LatencyRecord]) -> list[LatencyRecord]:
    """Return the record of each model, then of each layer at one length; first those with a ratio."""
    headline = [row for row in headline_rows(rows) if row.wall_ms]
    lengths: dict[tuple[str, str], set[int]] = {}
    for row in headline:
        lengths.setdefault((row.name, row.which), set()).add(row.seq_len)

    def is_shown(row: LatencyRecord) -> bool:
        nearest = _nearest_length(lengths[row.name, row.which])
        return row.subject == "model" or (row.seq_len == nearest and row.routing == "balanced")

    return sorted(filter(is_shown, headline), key=lambda row: (row.subject != "model", row.over_dense is None))


def _overview_rows(rows: Sequence[LatencyRecord]) -> list[dict[str, Any]]:
    """Return a row for each of the records of the overview."""
    dense: dict[tuple[str, str], LatencyRecord] = {}
    for row in rows:
        # a case may time several implementations of its dense layer
        dense[row.cell, row.role] = min(dense.get((row.cell, row.role), row), row, key=slowness)
    found = []
    for row in _overview_records(rows):
        if ratio := row.over_dense:
            other = dense[row.cell, "mqa" if row.overhead else "dense"]
            compared = f"{_dense_name(other.layer, row.layer)}, {median_ms(other):.4f}"
        else:
            compared = _dense_name(find_compared(row.subject, row.name), row.layer)
        unmeasured = UNMEASURED if compared else None
        found.append(
            {
                row.subject: row.layer,
                "T x B": f"{row.seq_len:,} x {row.batch_size:,}",
                "pass": row.which,
                "implementation": row.implementation_used or row.implementation,
                "ms": median_ms(row),
                "dense, ms": compared,
                "over dense": f"{interval(ratio)} {row.over_dense_verdict}" if ratio else unmeasured,
                "time by kernel": describe_kernels(row.kernels),
            }
        )
    return found


def _unmeasured_rows(rows: Sequence[LatencyRecord]) -> list[dict[str, Any]]:
    """Return a row for each model and layer of the campaign with the passes that have no time."""
    measured = {(row.subject, row.name, row.which) for row in rows if row.wall_ms}
    passes: dict[tuple[str, str, int], dict[str, None]] = {}
    for case in campaign_cases():
        if (case.subject, case.name, case.which) not in measured:
            length = OVERVIEW_LENGTH if case.subject == "layer" else case.seq_len
            passes.setdefault((case.subject, case.name, length), {})[case.which] = None
    found = []
    for (subject, name, length), missing in passes.items():
        compared = find_compared(subject, name)
        unmeasured = UNMEASURED if compared else None
        found.append(
            {
                subject: name,
                "T x B": f"{length:,}",
                "pass": ", ".join(missing),
                "implementation": None,
                "ms": UNMEASURED,
                "dense, ms": _dense_name(compared, name),
                "over dense": unmeasured,
                "time by kernel": UNMEASURED,
            }
        )
    return found


def _nearest_length(lengths: Iterable[int]) -> int:
    """Return the length that is nearest to that of the overview."""
    return min(lengths, key=lambda length: abs(length - OVERVIEW_LENGTH))


ALL_HEADS = "all heads"
"""The same layer with every head computed."""


def _dense_name(compared: str | None, name: str) -> str | None:
    """Return what to call the dense layer or model that ``name`` is compared with."""
    return ALL_HEADS if compared == name else compared


def find_compared(subject: str, name: str) -> str | None:
    """Return the dense layer or model that the ratio of ``name`` is to be over, ``name`` itself where that is the same
    layer with every head computed; None for a dense one."""
    impls = model_impls if subject == "model" else layer_impls
    roles = {spec.role: spec.name for spec in impls(name, None, None)}
    return roles.get("mqa", roles.get("dense"))


def describe_kernels(kernels: Sequence[dict[str, Any]] | None) -> str:
    """Return the share of each kind of kernels, of which own ones have names, or that none were measured.

    Kinds of less than LEAST_SHARE percent are among the others.
    """
    if not kernels:
        return UNMEASURED
    times: dict[str, float] = {}
    for kernel in kernels:
        kind = _kind_of(kernel["name"])
        times[kind] = times.get(kind, 0.0) + kernel["us"]
    shares: dict[str, float] = {}
    for kind, us in sorted(times.items(), key=lambda pair: -pair[1]):
        share = 100 * us / sum(times.values())
        kind = kind if share >= LEAST_SHARE else OTHERS
        shares[kind] = shares.get(kind, 0.0) + share
    shown = sorted(shares, key=OTHERS.__eq__)
    return ", ".join(f"{kind} {shares[kind]:.0f} %" for kind in shown)


def _kind_of(kernel: str) -> str:
    """Return what a kernel of a library computes, or the name of an own one."""
    if sources.is_own(kernel):
        return f"`{kernel.removesuffix('_kernel')}`"
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, kernel)), OTHERS)


def times(facts: Facts) -> str:
    """Return the times of each layer, a table for each device."""
    return _per_device(
        facts,
        lambda rows: headline_rows([row for row in rows if row.subject == "layer"]),
        lambda kind, rows: [format_rows(rows, (*TIMES, "gpu_ms" if kind == "cuda" else "wall_ms"))],
    )


def format_rows(rows: Sequence[LatencyRecord], keys: Sequence[str]) -> str:
    """Return the columns ``keys`` of records, with their notes. A column without values, or of balanced routing alone,
    is left out."""
    columns = [column for column in table.COLUMNS if column.key in keys]
    columns = [one for one in columns if any(one.read(row) not in (None, "balanced") for row in rows)]
    columns = [_in_words(column) if column.key in RATIOS else column for column in columns]
    return document.rows_of(Table("times", "", columns, rows, note_column=columns[-1].key))


def _in_words(column: Column) -> Column:
    """Return a column of ratios whose cells also state the verdict."""

    def words(record: LatencyRecord) -> str | None:
        ratio, verdict = getattr(record, column.key), getattr(record, f"{column.key}_verdict")
        return ratio and f"{interval(ratio)} {verdict or ''}".strip()

    return replace(column, words=True, value=words)


def _data(facts: Facts) -> str:
    """Return all measurements of every stored row of every device as CSV."""
    rows = []
    for record in latency.newest_records(facts):
        values = {column.key: column.read(record) for column in (*table.COLUMNS, *table.CHECK_COLUMNS)}
        ratios = {key: values.pop(key) or {} for key in RATIOS}
        row = {"device": record.environment["device"], "subject": record.subject, "name": record.name} | values
        row["status"] = record.status
        rows.append(row | {f"{key}_{part}": ratios[key].get(part) for key in ratios for part in INTERVAL})
    return document.table_as_csv(rows)


times_csv = File("times.csv", _data)


def commands(facts: Facts) -> str:
    """Return the commands that stored the records."""
    commands = (row.environment["command"] for row in latency.newest_records(facts))
    lines = dict.fromkeys(f"python -m {' '.join(words)}" for words in commands)
    return "\n".join(map(document.fold, lines))


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
    return f"{quote(expected)}\n\n{_per_device(facts, _verdicts, _show_verdicts, with_loop=True)}"


def _verdicts(rows: Sequence[LatencyRecord]) -> list[dict[str, Any]]:
    """Return a row for each case with a loop: the fastest other implementation against the loop and the dense
    layers."""
    found = []
    for cell in dict.fromkeys(r.cell for r in headline_rows(rows) if r.which != "decode"):
        timed = [r for r in rows if r.cell == cell and r.subject == "layer" and r.wall_ms]
        others = {r.role: r for r in sorted(timed, key=latency.slowness, reverse=True)}
        others["loop"] = next((r for r in timed if r.implementation == latency.LOOP), None)
        fast = [r for r in timed if r.role == "subject" and r.implementation != latency.LOOP]
        if not (others["loop"] and fast):
            continue
        best = min(fast, key=latency.slowness)
        row = {"layer": best.layer, "T": best.seq_len, "pass": best.which, "fastest": best.implementation}
        found.append(row | {head: _against(best, others.get(role), role) for role, (head, _) in VERDICTS.items()})
    return found


def _against(best: LatencyRecord, other: LatencyRecord | None, role: str) -> str | None:
    """Return the ratio of times with its verdict, after that of MACs for a dense layer; None where it was not timed.

    Of replayed graphs where both have one, else of wall time: a loop that waits for the device has no graph.
    """
    if other is None:
        return None
    by = best.common_timing(other)
    ratio = paired_ratio(best.samples(by), other.samples(by))
    _, bound = VERDICTS[role]
    verdict = "holds" if ratio.high <= bound else "fails" if ratio.low > bound else "undecided"
    macs = "" if role == "loop" else f"{best.macs / other.macs:.2f}, "
    return f"{macs}{interval(asdict(ratio))} {verdict}"


def interval(ratio: records.Interval) -> str:
    """Return a ratio with its interval."""
    return f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def _show_verdicts(kind: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the forward passes, if there are any, and how many of all rows have each verdict."""
    forward = [row for row in rows if row["pass"] == "forward"]
    parts = []
    for head, _ in VERDICTS.values():
        found = [(row[head] or "").rpartition("] ")[2] for row in rows]
        counts = [f"{n} {verdict}" for verdict in ("holds", "fails", "undecided") if (n := found.count(verdict))]
        parts.append(f"{head}: {', '.join(counts) or 'not timed'}")
    return [document.records(forward or rows), f"Of {len(rows)} timing cases: {'; '.join(parts)}."]


def break_even(facts: Facts) -> str:
    """Return the share of heads below which skipping them pays, a table for each device."""
    return _per_device(facts, latency.ratios, _break_even_table)


def _break_even_table(kind: str, found: dict[str, dict[int, records.Interval]]) -> list[str]:
    shares = sorted({share for own in found.values() for share in own}, reverse=True)
    rows = []
    for shape, own in found.items():
        row = {"shape": shape} | {f"{share}%": interval(own[share]) if share in own else None for share in shares}
        rows.append(row | {"break-even": latency.crossing({share: ratio["value"] for share, ratio in own.items()})})
    return [document.records(rows, dict.fromkeys(list(rows[0])[1:], {"align": "right"}))]


KERNELS = "kernels.csv"
KERNELS_CHANGED = "The kernels have changed since this table was made; `make kernels` compiles those of today."
ESTIMATES = ("layer", "implementation", "seq_len", "batch_size", "gpu_ms", "timed_by", "estimate_ms", "over_estimate")
AGAIN_ABOUT = "Rows that one run timed twice: the second median over the first."
AGAIN = dict.fromkeys(("least", "median", "most"), {"kind": "fixed", "digits": 3})


def estimates(facts: Facts) -> str:
    """Return tables for each CUDA device: estimates of the headline rows, and how repeated measurements agree."""

    def show(kind: str, found: Sequence[LatencyRecord]) -> list[str]:
        rows = [row for row in latency.headline_rows(found) if row.which == "forward" and row.wall_ms]
        rows = [row for row in rows if estimate.bound_of_record(row) is not None]
        device = found[0].environment["device"]
        repeated = _repeats([record for record in facts.latencies() if record.environment["device"] == device])
        again = [AGAIN_ABOUT, document.records(repeated, AGAIN)] if repeated else []
        return [format_rows(rows, ESTIMATES) if rows else "No estimate: no data sheet of this device.", *again]

    return _per_device(facts, list, show, ["cuda"])


def _repeats(measured: Sequence[LatencyRecord]) -> list[dict[str, Any]]:
    """Return for each kind of timing the ratio of the second to the first median of what one commit timed twice."""
    row_of = attrgetter("name", "layer", "implementation", "seq_len", "batch_size", "dtype", "which", "routing")
    pairs: dict[tuple, dict[bool, LatencyRecord]] = {}
    for record in measured:
        if not record.smoke and record.status == records.TIMED:
            pairs.setdefault((record.environment["commit"], *row_of(record)), {})[record.again] = record
    ratios: dict[str, list[float]] = {}
    for pair in pairs.values():
        if len(pair) == 2:
            by = pair[False].common_timing(pair[True])
            once, again = (quantile(pair[second].samples(by), 0.5) for second in (False, True))
            ratios.setdefault(by, []).append(again / once)
    return [
        {"timed by": by, "rows": len(own), "least": min(own), "median": median(own), "most": max(own)}
        for by, own in sorted(ratios.items())
    ]


def kernels(facts: Facts) -> dict[str, str]:
    """Return a row for each Triton kernel as compiled without a GPU."""
    every = list(csv.DictReader((records.shipped() / KERNELS).read_text("utf-8").splitlines()))
    names, triton, archs = (dict.fromkeys(row[column] for row in every) for column in ("kernel", "triton", "arch"))
    memory = {"unit": "KiB", "kind": "fixed", "scale": 1024, "digits": 1}
    rows = [_kernel(name, [row for row in every if row["kernel"] == name]) for name in names]
    is_current = {row["source"] for row in every} == {_source_digest()}
    return {
        "triton": ", ".join(triton),
        "devices": ", ".join(f"sm_{arch}" for arch in archs),
        "record": KERNELS,
        "changed": "" if is_current else f"\n\n{KERNELS_CHANGED}",
        "table": document.records(rows, {"shared memory of a block, most": memory}),
    }


def _source_digest() -> str:
    """Return the hash of the kernels' sources that the table has for those it was compiled from."""
    folder = Path(headcount.__file__).parent / "models" / "kernels"
    sources = [(folder / f"{name}.py").read_bytes() for name in ("triton_attention", "triton_configs", "triton_rows")]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:12]


def _kernel(name: str, rows: Sequence[Mapping[str, str]]) -> dict[str, str | int]:
    return {
        "kernel": name,
        "configurations": len(rows),
        "fit": sum(row["verdict"] == "ok" for row in rows),
        "registers of a thread, most": max(int(row["registers"]) for row in rows),
        "shared memory of a block, most": max(int(row["shared_bytes"]) for row in rows),
        "spills": sum(int(row["spills"]) for row in rows),
        "without tensor cores": sum(int(row["tensor"]) == 0 for row in rows),
        "blocks on a multiprocessor, least": min(int(row["blocks"]) for row in rows),
    }


# Expected times


def expected(facts: Facts) -> str:
    """Return the constants of expected times, their errors on rows that were not fitted, and what is not used."""
    folder = records.shipped() / efficiencies.RECORDS
    rows, unused = efficiencies.listed_rows(folder)
    changed = set(facts.result(counting.changed_kernels))
    found = efficiencies.all_evidence(rows)
    same = [row for row in rows if row.key not in changed]
    title = "fitted and tested on rows with the kernels of today"
    if row := efficiencies.evidence(title, same, attrgetter("is_fitted")):
        found.insert(1, row)
    missed = efficiencies.missed(found)
    values = model.load().values
    parts = [
        f"Fitted on {sum(row.is_fitted for row in rows)} rows of {len(rows)}. " + _verdict(missed),
        document.rows_of(efficiencies.evidence_table(found)),
        _least_sentence(rows),
        document.rows_of(efficiencies.constants(values)),
        f"Other kernels today than when measured, {plural(len(changed), 'row')}; the kernels that ran are used.",
        document.records(_by_implementation(sorted(changed))),
        f"Not used, {plural(len(unused), 'row')}.",
        document.records(_by_implementation(sorted(unused), unused)),
    ]
    return "\n\n".join(parts)


def _verdict(missed: Sequence[str]) -> str:
    return "All wanted figures are reached." if not missed else f"{'; '.join(missed)}."


def _least_sentence(rows: Sequence[efficiencies.MeasuredRow]) -> str:
    card = HARDWARE[efficiencies.CARD]
    shares = [model.least_us(row.kernels, card, row.record.dtype) / row.us for row in rows]
    above = sum(share > 1 for share in shares)
    return (
        f"*At least* is above the measured time in {above} of {plural(len(rows), 'row')}; it is "
        f"{median(shares):.2f} of it in the median, {max(shares):.2f} at most."
    )


def _by_implementation(keys: Sequence[str], reasons: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of each layer and implementation together, with the lengths of each pass."""
    found: dict[tuple[str, ...], dict[str, set[int]]] = {}
    for key in keys:
        name, implementation, seq_len, _, _, which, _ = key.split()
        reason = (reasons[key],) if reasons else ()
        found.setdefault((name, implementation, *reason), {}).setdefault(which, set()).add(int(seq_len))
    heads = ("layer", "implementation", "because")
    return [
        dict(zip(heads, words, strict=False))
        | {"T": "; ".join(f"{which} {', '.join(f'{n:,}' for n in sorted(own))}" for which, own in passes.items())}
        for words, passes in found.items()
    ]


def _expected_data(facts: Facts) -> str:
    """Return every row with its half, its measured, least and expected time, as CSV."""
    rows, _ = efficiencies.listed_rows(records.shipped() / efficiencies.RECORDS)
    changed = set(facts.result(counting.changed_kernels))
    card, us = HARDWARE[efficiencies.CARD], efficiencies.expected_us(rows, model.load().values)
    heads = ("layer", "implementation", "seq_len", "batch_size", "dtype", "pass", "routing")
    found = []
    for row in sorted(rows, key=attrgetter("key")):
        found.append(
            dict(zip(heads, row.key.split(), strict=True))
            | {
                "half": "fitted" if row.is_fitted else "tested",
                "kernels": "others today" if row.key in changed else "as today",
                "measured_us": round(row.us, 3),
                "least_us": round(model.least_us(row.kernels, card, row.record.dtype), 3),
                "expected_us": round(us[row.key], 3),
            }
        )
    return document.table_as_csv(found)


expected_csv = File("expected.csv", _expected_data)
