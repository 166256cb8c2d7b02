"""A measurement as JSON records: one for the closed form and one for each counter, raw integers throughout."""

from typing import Any

from headcount.bench.measure import CLOSED_FORM, Measurement
from headcount.formulas.ledger import Ledger


def as_records(preset: str | None, measured: Measurement, **facts: Any) -> list[dict[str, Any]]:
    """Records with ``preset``, ``counter``, ``device``, ``input``, ``macs``, ``params``, ``active_params`` and
    ``ledger``; ``facts`` stand in each."""
    entries = ledger_records(measured.ledger)
    common = {
        "input": dict(measured.lengths),
        "params": measured.ledger.params,
        "counted_params": measured.counted_params,
        "active_params": measured.ledger.active_params,
        **facts,
        "ledger": entries,
    }
    closed = {"preset": preset, "counter": CLOSED_FORM, "device": None, "macs": measured.ledger.macs, **common}
    counted = [
        {
            "preset": preset,
            "counter": count.counter,
            "device": count.device,
            "macs": count.macs,
            "predicted_macs": count.predicted_macs,
            "additions": dict(count.additions),
            "not_counted": count.reason,
            "counted_there_because": count.why_there,
            "tool": getattr(count.details, "tool", None),
            "version": getattr(count.details, "version", None),
            "uncounted": getattr(count.details, "uncounted", None),
            **common,
        }
        for count in measured.counts
    ]
    return [closed, *counted]


def ledger_records(ledger: Ledger) -> list[dict[str, Any]]:
    """The entries of a ledger of integers, in order."""
    return [
        {
            "path": entry.path,
            "kind": entry.kind,
            "dims": dict(entry.dims),
            "times": entry.times,
            "weight": dict(entry.weight),
            "size": entry.size,
            "macs": entry.macs,
            "params": entry.params,
            "active_params": entry.active_params,
            "trainable": entry.trainable,
        }
        for entry in ledger
    ]
