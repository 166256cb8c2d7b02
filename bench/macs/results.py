"""What came out, in one sentence: the last line of bench.macs."""

from collections.abc import Iterable, Sequence
from typing import Any

from headcount.bench.measure import CLOSED_FORM
from headcount.bench.table import Row, Section
from headcount.formulas.ledger import flops
from headcount.formulas.published import tables

NOTHING = "nothing printed"
QUANTITIES = {
    "macs": "MACs",
    "params": "parameters",
    "active": "active parameters",
    "activated": "shares of heads",
    "shared": "shares of shared heads",
}


def macs(number: int, in_flops: bool) -> str:
    """A number of multiply-accumulates in words."""
    return f"{flops(number):,} FLOPs" if in_flops else f"{number:,} MACs"


def counted(printed: Sequence[Section], in_flops: bool) -> str:
    """Of tables, presets and grids: verdicts, what presets cost, how many points, and how many counts are wrong."""
    published = [section for section in printed if section.table.name in tables.names()]
    parts = [_verdicts(published)] if published else []
    records = [record for section in printed for row in section.rows for record in row.records]
    for section in printed:
        rows = section.rows
        if section.detail and rows and rows[0].records:
            parts += [_preset(record, in_flops) for record in rows[0].records[:1] if record.get("preset")]
        if section.table.name.startswith("grid"):
            parts.append(section.below[-1].rstrip("."))
    return "; ".join([*parts, *_counts(records)]) + "." if parts else ""


def _verdicts(published: Sequence[Section]) -> str:
    found = [row.values["verdict"] for section in published for row in section.rows]
    judged = {column.quantity for section in published for column in tables.load(section.table.name).judged}
    what = QUANTITIES[next(iter(judged))] if len(judged) == 1 else "rows"
    each = ", ".join(f"{found.count(v)} {v}" for v in tables.VERDICTS if v in found and v != NOTHING)
    return f"{len(found) - found.count(NOTHING)} printed {what}: {each}"


def _preset(record: dict[str, Any], in_flops: bool) -> str:
    active = f", {record['active_params']:,} of them active" if record["active_params"] != record["params"] else ""
    return f"{record['preset']}: {macs(record['macs'], in_flops)}, {record['params']:,} parameters{active}"


def _counts(records: Iterable[dict[str, Any]]) -> list[str]:
    counts = [r for r in records if r.get("counter") not in (None, CLOSED_FORM) and r.get("macs") is not None]
    wrong = sum(record["macs"] != record["predicted_macs"] for record in counts)
    return [f"{wrong} of {len(counts)} counts differ from their counter's rules"] if counts else []


def compared(printed: Sequence[Section], in_flops: bool) -> str:
    """Of a comparison: by how much A does more or less than B, and where the ranking turns."""
    total = printed[0].rows[-1].values
    difference = total["difference"] if "difference" in total else total["difference_exact"]
    said = f"A: {macs(abs(difference), in_flops)} {'more' if difference > 0 else 'less'} than B"
    said = said if difference else f"A: as many {'FLOPs' if in_flops else 'MACs'} as B"
    if printed[-1].table.name != "compare-turns":
        return f"{said}."
    turning = [row for row in printed[-1].rows if row.values["counted"] != "never turns"]
    letters = ", ".join(dict.fromkeys(row.values["letter"] for row in turning))
    where = f"the ranking turns at {len(turning)} sizes ({letters})" if turning else "the ranking never turns"
    return f"{said}; {where}."


def converted(printed: Sequence[Section], in_flops: bool) -> str:
    """Of a conversion: what the ideal form costs of the dense model."""
    ideal = printed[0].rows[-1].values
    return f"Ideal: {macs(ideal['macs'], in_flops)}, {float(ideal['share']):.2f} % of dense. {printed[0].below[0]}"


def of_module(printed: Sequence[Section], in_flops: bool) -> str:
    """Of a module: its count, and how many readings are explained."""
    facts = printed[0].facts
    cells = _rows(printed, "module-counters")
    explained = sum(row.values["explained"] not in ("failed", "unexplained") for row in cells)
    readings = f"; {explained} of {len(cells)} readings explained by their calls" if cells else ""
    return f"{macs(facts['macs'], in_flops)} ({facts['headline']}), {facts['params']:,} parameters{readings}."


def audited(printed: Sequence[Section], in_flops: bool) -> str:
    """Of an audit: how many cells are exact, explained, failed and unexplained."""
    rows = _rows(printed, "audit")
    cells = [record for row in rows for record in row.records if record["counter"] != "right"]
    failed = sum(record.get("macs") is None for record in cells)
    exact = sum(record.get("macs") == record["exact"] for record in cells)
    wrong = sum(len(row.failures) for row in rows)
    other = len(cells) - failed - exact - wrong
    return f"{len(cells)} cells: {exact} exact, {other} explained, {failed} failed; {wrong} not explained."


def _rows(printed: Sequence[Section], name: str) -> Sequence[Row]:
    return [row for section in printed if section.table.name == name for row in section.rows]
