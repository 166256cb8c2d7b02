"""``bench.macs --module``: the tables of one user module under every counter. Imports no torch."""

import re
from collections.abc import Iterator
from fractions import Fraction

from headcount.bench.contractions.summary import cut, folded, merged, sizes
from headcount.bench.isolated.module_count import ModuleCount
from headcount.bench.macs.entries import CAUSES, SHARE, causes_section, share
from headcount.bench.macs.ranks import TRANSFER_COLUMNS, collective_rows
from headcount.bench.table import TONES, Column, Row, Section, Table, plural
from headcount.formulas import prices


def sections(ledger: Section, count: ModuleCount, check: bool = False) -> Iterator[Section]:
    """Yield ``ledger``, every counter, why each reported count differs, and what the count leaves out.

    A counter that fails is a failure; with ``check`` so is a count that the trace does not explain.
    """
    yield ledger
    if count.collectives:
        layout = Table("module-collectives", "collectives of the rank", TRANSFER_COLUMNS)
        yield Section(layout, collective_rows(count.collectives, _dtype_bytes))
    if count.counters:
        yield _counters_section(count, check)
        yield causes_section("module-causes", CAUSES, count.counters)
    if count.elementwise:
        yield _elementwise_section(count)
    if count.unsupported:
        layout = Table(
            "unsupported",
            "unsupported operators",
            [Column("text", "operation", wraps=20, code=True)],
        )
        yield Section(layout, [Row({"text": line["text"]}, records=[line]) for line in count.unsupported])


def _dtype_bytes(name: str) -> int:
    """Return the bytes of an element: the name of a type has its bits, as in bfloat16 and float8_e4m3fn."""
    bits = re.search(r"\d+", name)
    return int(bits[0]) // 8 if bits else 1


BLANK = dict.fromkeys(("path", "kind", "sizes"), "") | dict.fromkeys(("macs", "share", "params"))


def where_counted(count: ModuleCount) -> list[str]:
    """Return the device and the passes of a count, and why it was not on meta, in words."""
    reason = [f"Not on meta: {count.why_not_meta.rstrip('.')}."] if count.why_not_meta else []
    return [f"Counted on {count.device}, {count.passes} over the whole batch.", *reason]


def ledger_section(spec: str, count: ModuleCount, depth: int | None) -> Section:
    """Return the count by module and kind."""
    params: dict[str, int] = {}
    for parameter in count.parameters:
        path = cut(folded(parameter["path"]), depth)
        params[path] = params.get(path, 0) + parameter["params"]
    notes = where_counted(count)
    notes.append("A * stands for the index of a repeated layer; sizes are rows m, summed k and columns n, b times.")
    rows = []
    for entry in merged(count.ledger, depth):
        values = {
            "path": entry.path or "(model)",
            "kind": entry.kind,
            "sizes": "" if depth is not None else sizes(entry),
            "macs": entry.size,
            "share": share(entry.size, count.macs),
            "params": params.pop(entry.path, None),
        }
        rows.append(Row(values))
    rows += [Row({**BLANK, "path": path or "(model)", "params": number}) for path, number in params.items()]
    total = {"path": "total", "macs": count.macs, "params": count.params, "share": share(count.macs, count.macs)}
    rows.append(Row({**BLANK, **total}, records=count.ledger.as_records(), total=True))
    layout = Table(
        "module",
        f"{spec}: {_title(count)}, {count.headline}",
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
    names = ("device", "why_not_meta", "macs", "headline", "dispatched", "with_elementwise", "params")
    names += ("trainable_params", "parameters", "audit", "libraries")
    names += ("bytes_moved", "causal_macs", "other_flops")
    facts = {"spec": spec, **{name: getattr(count, name) for name in names}}
    facts["uncalled_modules"] = count.uncalled_modules()
    below = [f"{count.trainable_params:,} of {count.params:,} parameters are trainable."]
    if count.with_elementwise != count.dispatched:
        line = (
            f"{count.dispatched:,} dispatched contractions, {count.with_elementwise:,} with elementwise contractions."
        )
        below.insert(0, line)
    return Section(layout, rows, below=[*below, *_costs(count), *count.notes], facts=facts, detail=True)


def _costs(count: ModuleCount) -> Iterator[str]:
    """Yield bytes moved, MACs of unmasked pairs and FLOPs of other operations as sentences."""
    moved = Column("intensity", "", kind="fixed", digits=2).text(Fraction(count.macs, count.bytes_moved or 1))
    rule = "each operation reads its operands and writes its result once"
    yield f"{count.bytes_moved:,} bytes moved, {moved} MACs a byte: {rule}."
    if count.causal_macs is not None:
        yield f"{count.causal_macs:,} MACs without the pairs that attention's masks hide."
    price = prices.PRICES
    other = [f"{kind} {flops:,} ({price[kind]} an element)" for kind, flops in count.other_flops.items() if flops]
    if other:
        yield f"FLOPs of operations without MACs, in no count: {', '.join(other)}."


def _title(count: ModuleCount) -> str:
    left_out = sum(line["calls"] for line in count.unsupported)
    return f"partial count without {plural(left_out, 'unsupported call')}" if left_out else "headcount"


def _verdict_if_equal(count: ModuleCount) -> str:
    """Return the verdict on a reported count that equals the headline: exact only where nothing is omitted."""
    if count.unsupported:
        return "the same part"
    return "as executed" if count.macs != count.with_elementwise else "exact"


_NOTE = "A tensor with itself (norms, variances) and a product added to another term (gates) are named, never counted."


def _elementwise_section(count: ModuleCount) -> Section:
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
    products = merged(count.elementwise, None)
    for entry, record in zip(products, products.as_records(), strict=True):
        values = {"path": entry.path or "(model)", "kind": entry.kind, "sizes": sizes(entry), "size": entry.size}
        rows.append(Row(values, records=[record]))
    return Section(layout, rows)


def _counters_section(count: ModuleCount, check: bool) -> Section:
    layout = Table(
        "module-counters",
        "counters",
        [
            Column("counter", "counter"),
            Column("version", "version", priority=2),
            Column("device", "device", priority=1),
            Column("macs", "reported\nMACs", kind="int", of="MACs", priority=0),
            Column("difference", "minus\nheadcount", kind="int", sign=True, of="MACs", priority=0),
            Column("explained", "explained\nby trace", priority=0, tones=TONES),
        ],
        note_column="explained",
    )
    rows = []
    for cell in count.counters:
        failures, notes = [], []
        if cell["failed"]:
            verdict, notes = "failed", [f"failed: {cell['failed']}"]
            failures = [f"{cell['counter']} failed: {cell['failed']}"]
        elif cell["explained"]:
            verdict = "explained" if cell["difference"] else _verdict_if_equal(count)
        else:
            verdict = "unexplained"
            notes = [f"{cell['counter']} reads {cell['macs']:,}, its rules predict {cell['predicted_macs']:,}"]
            failures = list(notes) if check else []
        if cell["unverified"]:
            unverified = f"its rules are unverified for {', '.join(cell['unverified'])}"
            notes.append(unverified)
            failures = [f"{failure} ({unverified})" for failure in failures]
        if cell["counted_there_because"]:
            notes.append(f"on {cell['device']}: {cell['counted_there_because'].rstrip('.')}")
        values = {key: cell[key] for key in ("counter", "version", "device", "macs", "difference")}
        rows.append(Row({**values, "explained": verdict}, notes=notes, records=[cell], failures=failures))
    return Section(layout, rows)
