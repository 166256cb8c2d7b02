"""``bench.macs --module``: one module of the user's under every counter. Imports no torch: a child process counts."""

from collections.abc import Iterator
from typing import Any

from headcount.bench.contractions.summary import cut, folded, merged, sizes
from headcount.bench.isolated.ask import settings
from headcount.bench.isolated.count_module import count, formulas
from headcount.bench.macs.entries import CAUSES, SHARE, causes_section, share
from headcount.bench.table import TONES, Column, Row, Section, Table
from headcount.formulas.ledger import Ledger

__all__ = ["count", "formulas", "sections", "settings"]


def sections(spec: str, answer: dict[str, Any], depth: int | None) -> Iterator[Section]:
    """The right count by module and kind, every counter, and why each reading differs."""
    yield _ledger_section(spec, answer, depth)
    if answer["counters"]:
        yield _counters_section(answer)
        yield causes_section("module-causes", CAUSES, answer["counters"])
    if answer["elementwise"]:
        yield _elementwise_section(answer)
    uncounted = _unknown(answer)
    if uncounted:
        layout = Table(
            "uncounted",
            "operations that nobody knows",
            [Column("text", "operation", wraps=20, code=True)],
        )
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
                "macs": entry.size,
                "share": share(entry.size, answer["macs"]),
                "params": params.pop(entry.path, None),
            }
        )
    for path, number in params.items():
        rows.append({**BLANK, "path": path or "(model)", "params": number})
    rows.append(
        {
            **BLANK,
            "path": "total",
            "macs": answer["macs"],
            "params": total,
            "share": share(answer["macs"], answer["macs"]),
        }
    )
    layout = Table(
        "module",
        f"{spec}: {_which(answer)}, {answer['headline']}",
        [
            Column("path", "module", code=True),
            Column("kind", "kind"),
            Column("sizes", "sizes", priority=3),
            Column("macs", "MACs", kind="int", of="MACs", priority=0),
            SHARE,
            Column("params", "params", kind="int", of="params", priority=2),
        ],
        notes_above=notes,
    )
    facts = {
        "spec": spec,
        "device": answer["device"],
        "why_not_meta": answer["why_not_meta"],
        "macs": answer["macs"],
        "headline": answer["headline"],
        "dispatched": answer["dispatched"],
        "with_elementwise": answer["with_elementwise"],
        "params": total,
        "trainable_params": answer["trainable_params"],
        "parameters": answer["params"],
        "audit": answer["audit"],
    }
    below = [f"{answer['trainable_params']:,} of {total:,} parameters are trainable."]
    if answer["with_elementwise"] != answer["dispatched"]:
        below.insert(
            0,
            f"{answer['dispatched']:,} dispatched contractions, {answer['with_elementwise']:,} with elementwise "
            "contractions.",
        )
    out = [Row(row) for row in rows]
    out[-1] = Row(rows[-1], records=answer["ledger"], total=True)
    return Section(layout, out, below=below, facts=facts, detail=True)


def _unknown(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for line in answer["audit"] if line["state"] == "unknown"]


def _which(answer: dict[str, Any]) -> str:
    left_out = sum(line["calls"] for line in _unknown(answer))
    return f"a part of the count, without {left_out} calls that nobody knows" if left_out else "the right count"


def _equal(answer: dict[str, Any]) -> str:
    """What a reading is that equals the headline: right only where that is all."""
    if _unknown(answer):
        return "the same part"
    left_out = answer["macs"] != answer["with_elementwise"]
    return "as dispatched" if left_out else "right"


_APART = "A tensor with itself (norms, variances) and a product beside another term (gates) are named, never counted."


def _elementwise_section(answer: dict[str, Any]) -> Section:
    """Products that no operation of a product holds: which of them are contractions, and what is named apart."""
    layout = Table(
        "module-elementwise",
        "products written elementwise and summed",
        [
            Column("path", "module", code=True),
            Column("call", "call", priority=2),
            Column("kind", "kind"),
            Column("sizes", "sizes", priority=3),
            Column("size", "multiplications", kind="int", of="MACs", priority=0),
        ],
        notes_above=[_APART],
    )
    lines: dict[tuple, dict[str, Any]] = {}
    for line in answer["elementwise"]:
        key = (folded(line["path"]), line["call"], line["kind"], tuple(line["dims"].items()))
        one = lines.setdefault(key, {**line, "path": key[0], "times": 0, "size": 0})
        one["times"] += line["times"]
        one["size"] += line["size"]
    rows = []
    for line in lines.values():
        text = " ".join(f"{letter}={size}" for letter, size in line["dims"].items())
        values = {key: line[key] for key in ("call", "kind", "size")}
        times = f"{line['times']} x " if line["times"] > 1 else ""
        rows.append(Row({**values, "path": line["path"] or "(model)", "sizes": times + text}, records=[line]))
    return Section(layout, rows)


def _counters_section(answer: dict[str, Any]) -> Section:
    layout = Table(
        "module-counters",
        "counters",
        [
            Column("counter", "counter"),
            Column("macs", "reading", kind="int", of="MACs", priority=0),
            Column("difference", "reading\nless right", kind="int", sign=True, of="MACs", priority=0),
            Column("explained", "by its calls", priority=0, tones=TONES),
        ],
        note_column="explained",
    )
    rows = []
    for cell in answer["counters"]:
        failures, notes = [], []
        if cell["failed"]:
            verdict, notes = "failed", [f"failed: {cell['failed']}"]
        elif cell["explained"]:
            verdict = "explained" if cell["difference"] else _equal(answer)
        else:
            verdict = "unexplained"
            failures = [f"{cell['counter']} reads {cell['macs']:,}, its rules predict {cell['predicted_macs']:,}"]
            notes = list(failures)
        if cell["unverified"]:
            unverified = f"its rules are unverified for {', '.join(cell['unverified'])}"
            notes.append(unverified)
            failures = [f"{failure} ({unverified})" for failure in failures]
        values = {key: cell[key] for key in ("counter", "macs", "difference")}
        rows.append(Row({**values, "explained": verdict}, notes=notes, records=[cell], failures=failures))
    return Section(layout, rows)
