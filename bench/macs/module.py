"""``bench.macs --module``: one module of the user's under every counter. Imports no torch: a child process counts."""

from collections.abc import Iterator, Sequence
from typing import Any

from headcount.bench.contractions.rows import cut, folded, merged, sizes
from headcount.bench.counters.base import CounterError
from headcount.bench.isolated.ask import ask, settings
from headcount.bench.macs.entries import CAUSES, SHARE, causes_section, share
from headcount.bench.table import Column, Row, Section, Table
from headcount.formulas.ledger import Ledger

__all__ = ["count", "sections", "settings"]


def count(
    spec: str,
    given: dict[str, int],
    counters: Sequence[str],
    *,
    device: str | None = None,
    allow_uncounted: bool = False,
) -> dict[str, Any]:
    """What a process of its own found for the module that ``spec`` builds (bench.macs.module_answer).

    Raises what bench.isolated.ask does, and CounterError for operations that nobody knows.
    """
    details = {"settings": given, "counters": list(counters), "device": device, "allow_uncounted": allow_uncounted}
    answer = ask("count", spec, **details)
    if "uncounted" in answer:
        reason = f"operations that may hold products: {'; '.join(answer['uncounted'])} (--allow-uncounted lists them)"
        raise CounterError("right", spec, reason)
    return answer


def sections(spec: str, answer: dict[str, Any], depth: int | None) -> Iterator[Section]:
    """The right count by module and kind, every counter, and why each reading differs."""
    yield _ledger_section(spec, answer, depth)
    if answer["counters"]:
        yield _counters_section(answer)
        yield causes_section("module-causes", CAUSES, answer["counters"])
    uncounted = [line for line in answer["audit"] if line["state"] == "unknown"]
    if uncounted:
        layout = Table("uncounted", "operations that nobody knows", [Column("text", "operation", width=60)])
        yield Section(layout, [Row({"text": line["text"]}, records=[line]) for line in uncounted])


BLANK = dict.fromkeys(("path", "kind", "sizes"), "") | dict.fromkeys(("macs", "share", "params"))


def _ledger_section(spec: str, answer: dict[str, Any], depth: int | None) -> Section:
    measured = Ledger.from_records(answer["ledger"])
    params: dict[str, int] = {}
    for parameter in answer["params"]:
        path = cut(folded(parameter["path"]), depth)
        params[path] = params.get(path, 0) + parameter["params"]
    total = sum(params.values())
    notes = [f"Counted on {answer['device']}, one forward pass over the whole batch."]
    if answer["why_not_meta"]:
        notes.append(f"Not on meta: {answer['why_not_meta'].rstrip('.')}.")
    notes.append("A * stands for the index of a repeated layer; sizes are rows m, summed k and columns n, b times.")
    rows = []
    for entry in merged(measured, depth):
        rows.append(
            {
                "path": entry.path or "(model)",
                "kind": entry.kind,
                "sizes": "" if depth is not None else sizes(entry),
                "macs": entry.macs,
                "share": share(entry.macs, measured.macs),
                "params": params.pop(entry.path, None),
            }
        )
    for path, number in params.items():
        rows.append({**BLANK, "path": path or "(model)", "params": number})
    rows.append({**BLANK, "path": "total", "macs": measured.macs, "params": total})
    layout = Table(
        "module",
        f"{spec}: the right count",
        [
            Column("path", "module", width=40),
            Column("kind", "kind", width=13),
            Column("sizes", "sizes", width=36),
            Column("macs", "MACs", kind="int", width=18),
            SHARE,
            Column("params", "params", kind="int", width=14),
        ],
        notes_above=notes,
    )
    facts = {
        "spec": spec,
        "device": answer["device"],
        "why_not_meta": answer["why_not_meta"],
        "macs": measured.macs,
        "params": total,
        "trainable_params": answer["trainable_params"],
        "audit": answer["audit"],
    }
    below = [f"{answer['trainable_params']:,} of {total:,} parameters are trainable."]
    out = [Row(row) for row in rows]
    out[-1] = Row(rows[-1], records=answer["ledger"])
    return Section(layout, out, below=below, facts=facts)


def _counters_section(answer: dict[str, Any]) -> Section:
    layout = Table(
        "module-counters",
        "counters",
        [
            Column("counter", "counter", width=15),
            Column("macs", "reading", kind="int", width=18),
            Column("difference", "reading\nless right", kind="int", sign=True, width=18),
            Column("explained", "by its calls", width=14),
        ],
        note_column="explained",
    )
    rows = []
    for cell in answer["counters"]:
        failures, notes = [], []
        if cell["failed"]:
            verdict, notes = "failed", [f"failed: {cell['failed']}"]
        elif cell["explained"]:
            verdict = "explained" if cell["difference"] else "right"
        else:
            verdict = "unexplained"
            failures = [f"{cell['counter']} reads {cell['macs']:,}, its rules predict {cell['predicted_macs']:,}"]
            notes = list(failures)
        if cell["unverified"]:
            notes.append(f"its rules are unverified for {', '.join(cell['unverified'])}")
        values = {key: cell[key] for key in ("counter", "macs", "difference")}
        rows.append(Row({**values, "explained": verdict}, notes=notes, records=[cell], failures=failures))
    return Section(layout, rows)
