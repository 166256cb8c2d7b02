"""The generated blocks of README.md and CONTRIBUTING.md."""

from collections.abc import Callable, Mapping
from functools import partial

from headcount.bench.table import Column
from headcount.reports import audit, latency, markdown, tables
from headcount.reports.facts import Facts


def blocks(facts: Facts) -> Mapping[str, Callable[[], str]]:
    """A maker for each block that these files may hold."""
    makers = {
        "table3": partial(tables.counted, name="moa-table3"),
        "verdicts": tables.verdicts,
        "speed": speed,
        "clock": clock,
        "audit": audit.matrix,
        "mutants": mutants,
    }
    return {name: partial(make, facts) for name, make in makers.items()}


def speed(facts: Facts) -> str:
    """How long the commands took where they were last timed."""
    timed = facts.stored_json("commands.json")
    if timed is None:
        return "Not measured: `make benchmark` has not been run."
    machine = timed["machine_info"]
    lines = [f"Timed by `make benchmark` on {machine['cpu']}, {machine['cores']} cores, start-up included:", ""]
    for found in timed["benchmarks"]:
        info = found["extra_info"]
        if "command" not in info:
            continue
        first = f", first row after {info['first_row_s']:.1f} s"
        peak = info["said"].partition("peak memory ")[2]
        lines.append(
            f"- `{info['command']}`: {found['stats']['median']:.1f} s (median of {found['stats']['rounds']} runs)"
            f"{first}, peak memory {peak}"
        )
    return "\n".join(lines)


def clock(facts: Facts) -> str:
    """Forward and training time of the paper's base and big layers on every measured device."""
    devices = latency.by_device(facts)
    parts = []
    for device, rows in devices.items():
        # a GPU takes microseconds
        unit, per_ms, digits = ("us", 1000, 1) if rows[0]["environment"]["device_type"] == "cuda" else ("ms", 1, 2)
        kept = [r for r in rows if r["name"] in ("moa-8K8E128D", "moa-16K32E256D") and r["subject"] == "layer"]
        shown = [
            {
                "arm": r["arm"],
                "run by": r["implementation_used"] or r["implementation"],
                "T": r["seq_len"],
                "pass": r["pass"],
                "median": latency.median_ms(r) * per_ms,
                "tax": r["tax"] and f"{r['tax']['value']:.2f} [{r['tax']['low']:.2f}, {r['tax']['high']:.2f}]",
                "vs MHA": r["to_mha"]
                and f"{r['to_mha']['value']:.2f} [{r['to_mha']['low']:.2f}, {r['to_mha']['high']:.2f}]",
            }
            for r in latency.headline(kept)
        ]
        columns = [
            Column("arm", "arm"),
            Column("run by", "run by"),
            Column("T", "T", kind="int"),
            Column("pass", "pass"),
            Column("median", "median", unit=unit, kind="fixed", digits=digits),
            Column("tax", "tax", align="right"),
            Column("vs MHA", "vs MHA", align="right"),
        ]
        parts += [
            f"On {device}, {rows[0]['environment']['threads']} threads, {rows[0]['dtype']}:",
            markdown.table(columns, shown),
        ]
    if not any(rows[0]["environment"]["device_type"] == "cuda" for rows in devices.values()):
        parts.append(f"CUDA: {latency.NOT_MEASURED['cuda']}")
    return "\n\n".join(parts)


def mutants(facts: Facts) -> str:
    """What became of the mutants of each room where they were last run."""
    rooms = facts.stored_json("mutants.json")
    if not rooms:
        return "Not run yet: `make mutate`."
    return "\n".join(
        f"- {room}/: {found['mutants']:,} mutants, {found['alive']} alive, {found['unexplained']} without a reason; "
        f"{found['seconds']:,} s on {found['machine']['cpu']}, {found['machine']['cores']} cores."
        for room, found in rooms.items()
    )
