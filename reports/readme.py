"""The README's generated blocks."""

import io
from collections.abc import Callable, Mapping
from typing import Any

from bench.table import Column, Markdown, Table
from formulas.published import tables
from reports import results


def blocks() -> Mapping[str, Callable[[], str]]:
    """A maker for each block that the README may hold."""
    return {
        "table3": lambda: tables_block("moa-table3"),
        "verdicts": verdicts_block,
        "speed": speed_block,
    }


def markdown(table: Table, rows: list[dict[str, Any]], notes: list[list[str]] | None = None) -> str:
    """A table as markdown without its heading."""
    stream = io.StringIO()
    out = Markdown(stream)
    out.begin(table)
    for i, row in enumerate(rows):
        out.row(row, notes[i] if notes else ())
    out.end()
    return stream.getvalue().partition("\n\n")[2].strip()


def tables_block(name: str) -> str:
    """One published table: printed, under its rule, exact, and one counter after the other."""
    table = results.published(name)
    counters = list(dict.fromkeys(r["counter"] for r in table["rows"] if r["counter"] != "closed-form"))
    columns = [
        Column("row", "row"),
        Column("macs_printed", "MACs printed", align="right"),
        Column("macs_under_rule", "under the rule", kind="int"),
        Column("macs", "exact", kind="int"),
        *(Column(counter, counter, kind="int") for counter in counters),
        Column("verdict", "verdict"),
    ]
    rows, notes = [], []
    for record in (r for r in table["rows"] if r["counter"] == "closed-form"):
        counted = {r["counter"]: r["macs"] for r in table["rows"] if r["row"] == record["row"]}
        rows.append({**record, **{counter: counted[counter] for counter in counters}})
        notes.append([record["because"]] if record["because"] else [])
    return f"Rule: {table['rule']}\n\n" + markdown(Table(name, name, columns, note_column="verdict"), rows, notes)


def verdicts_block() -> str:
    """How many rows of each table come out, and how."""
    rows = []
    for name in tables.NAMES:
        found = [r["verdict"] for r in results.published(name)["rows"] if r["counter"] == "closed-form"]
        rows.append({"table": name, "rows": len(found), **{v: found.count(v) for v in tables.VERDICTS}})
    columns = [Column("table", "table"), Column("rows", "rows", kind="int")]
    columns += [Column(verdict, verdict, kind="int") for verdict in tables.VERDICTS]
    return markdown(Table("verdicts", "verdicts", columns), rows)


def speed_block() -> str:
    """How long the commands took where they were last timed."""
    timed = results.command_times()
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
