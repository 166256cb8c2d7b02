"""Tables of one counted target: the tree of its modules, and every counter's count of it. Imports no torch."""

import re
from dataclasses import replace

from headcount.bench import result
from headcount.bench.contractions import summary
from headcount.bench.contractions.summary import folded, merged
from headcount.bench.counters.base import as_record
from headcount.bench.counting.result import Count
from headcount.bench.macs.entries import CAUSES, causes_table, counters_section
from headcount.bench.macs.ranks import TRANSFER_COLUMNS, transfer_rows
from headcount.bench.output.figure import figure
from headcount.bench.table import Column, Row, Section, Table, plural
from headcount.formulas.summary import sizes

LONGEST = 50
"""The most characters of a label of a plot."""


def sections(count: Count, depth: int, elementwise: bool, check: bool) -> list[Section]:
    """Return the tree of a counted target, ``depth`` levels deep, every counter, and why each count differs.

    Products written elementwise are listed where ``elementwise``. A counter that fails is a failure; with ``check`` so
    is a count that the trace does not explain.
    """
    found = [_tree(count, depth)]
    if count.collectives:
        rows = transfer_rows(count.collectives, _dtype_bytes)
        found.append(result.Table("module-collectives", "collectives of the rank", TRANSFER_COLUMNS, rows))
    if count.tools:
        tools = list(map(as_record, count.tools))
        found.append(counters_section("module-counters", "counters", tools, check))
        found.append(causes_table("module-causes", CAUSES, tools))
    if count.elementwise and elementwise:
        found.append(_elementwise_section(count))
    if count.unsupported:
        columns = [Column("text", "operation", wraps=20, code=True)]
        rows = [Row({"text": line.text()}, records=[vars(line)]) for line in count.unsupported]
        found.append(Section(Table("unsupported", "unsupported operators", columns), rows))
    return found


def _dtype_bytes(name: str) -> int:
    """Return the bytes of an element: the name of a type has its bits, as in bfloat16 and float8_e4m3fn."""
    bits = re.search(r"\d+", name)
    return int(bits[0]) // 8 if bits else 1


def _tree(count: Count, depth: int) -> Section:
    """Return the tree of modules with totals and notes below; JSON has the whole count."""
    reason = [f"Not on meta: {count.why_there.rstrip('.')}."] if count.why_there else []
    passes = "one forward and backward pass" if count.target and count.target.backward else "one forward pass"
    notes = [f"Counted on {count.device}, {passes} over the whole batch.", *reason]
    if count.with_elementwise != count.macs:
        apart = count.with_elementwise - count.dispatched
        notes.append(f"Not in it: {apart:,} MACs written elementwise and summed (--elementwise include counts them).")
    if count.unsupported:
        calls = sum(line.calls for line in count.unsupported)
        notes.append(f"A partial count, without {plural(calls, 'unsupported call')}.")
    return replace(summary.section(count, [*notes, *count.notes], depth), facts={"count": count.to_json()})


_NOTE = "A tensor with itself (norms, variances) and a product added to another term (gates) are named, never counted."


def _elementwise_section(count: Count) -> Section:
    """Return the products written elementwise, contractions and others, with repeated layers as one row."""
    layout = Table(
        "module-elementwise",
        "products written elementwise and summed",
        [
            Column("path", "module", code=True),
            Column("kind", "kind"),
            Column("sizes", "sizes", priority=3),
            Column("size", "multiplications", kind="int", of="MACs", priority=0),
        ],
        notes_above=[_NOTE],
    )
    rows = []
    products = merged(count.elementwise)
    for entry, record in zip(products, products.as_records(), strict=True):
        values = {"path": entry.path or "(model)", "kind": entry.kind, "sizes": sizes(entry), "size": entry.size}
        rows.append(Row(values, records=[record]))
    return Section(layout, rows)


def plot(path: str, count: Count, depth: int | None) -> None:
    """Draw the share of MACs of each module with products of its own, of ``depth`` names, in the order of the model.

    Raises what output.figure.figure does.
    """
    sizes = count.ledger.group(lambda entry: ".".join(folded(entry.path).split(".")[:depth]) or "(model)")
    labels = [label if len(label) <= LONGEST else f"…{label[-LONGEST:]}" for label, size in sizes.items() if size]
    shares = [100 * size / count.macs for size in sizes.values() if size]
    with figure(path, 8, 1.2 + 0.28 * len(labels)) as (_, axes):
        # labels may be equal
        drawn = axes.barh(range(len(labels)), shares, color="steelblue")
        axes.bar_label(drawn, [f"{share:.1f}" if share >= 0.05 else "<0.1" for share in shares], padding=3, fontsize=8)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel="share of MACs in %", xlim=(0, 1.1 * max(shares, default=1)))
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{count.name or '(model)'}: {count.macs:,} MACs", fontsize=10)
