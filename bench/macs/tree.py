"""The modules of a counted user module as a table: outputs, parameters, MACs and totals. Imports no torch."""

from dataclasses import replace

from headcount.bench.contractions import summary
from headcount.bench.isolated.module_count import ModuleCount
from headcount.bench.table import Section, plural


def section(spec: str, count: ModuleCount, depth: int | None = 3) -> Section:
    """Return the tree of the target ``spec``, ``depth`` levels deep, with totals, notes and uncalled modules below.

    JSON has the products, parameters and operations too, as ``bench.macs --module`` prints them.
    """
    notes = [f"Counted on {count.device}, one forward pass over the whole batch."]
    if count.why_not_meta:
        notes.append(f"Not on meta: {count.why_not_meta.rstrip('.')}.")
    if count.with_elementwise != count.macs:
        apart = count.with_elementwise - count.dispatched
        notes.append(f"Not in it: {apart:,} MACs written elementwise and summed (--elementwise include counts them).")
    if count.unsupported:
        calls = sum(line["calls"] for line in count.unsupported)
        notes.append(f"A partial count, without {plural(calls, 'unsupported call')}.")
    names = "device why_not_meta macs headline dispatched with_elementwise params trainable_params active_params"
    names += " weight_bytes inputs parameters audit libraries notes bytes_moved causal_macs other_flops measured"
    facts = {name: getattr(count, name) for name in names.split()}
    facts |= {
        "class": count.name,
        "spec": spec,
        "ledger": count.ledger.as_records(),
        "uncalled_modules": count.uncalled_modules(),
    }
    return replace(summary.section(count, [*notes, *count.notes], depth), facts=facts)
