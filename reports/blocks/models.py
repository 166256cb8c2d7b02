"""Blocks of the models of four libraries: shares, why counts differ, and what changed since the versions before."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from headcount.reports import document, model_costs
from headcount.reports.document import File
from headcount.reports.facts import Facts
from headcount.reports.model_costs import COUNTED, ModelCost, changes, read

MOST = 30
"""The most reasons and changes that are listed."""
PERCENT = {"unit": "%", "kind": "fixed", "digits": 1}

csv = File(model_costs.TABLE.name, lambda facts: model_costs.TABLE.read_text("utf-8"))


def numbers(facts: Facts) -> dict[str, Any]:
    """Return the numbers of models, and the versions that counted them."""
    rows = read(model_costs.TABLE)
    return {
        "models": f"{len(rows):,}",
        "counted": sum(row.state == COUNTED for row in rows),
        "versions": _versions(rows),
        **{
            kind: sum(getattr(share, kind) for share in model_costs.shares(rows)) for kind in ("equal", "other", "none")
        },
        "most": MOST,
        "seconds": model_costs.TIME_S,
        "gib": model_costs.MEMORY_BYTES // 2**30,
        "messages": max(row.followed or 0 for row in rows),
    }


EXAMPLES = (
    "llama", "mixtral", "qwen3_moe", "deepseek_v3", "gpt2", "bert", "whisper", "FluxTransformer2DModel",
    "convit_base", "vit_b_16", "resnet50",
)  # fmt: skip
"""Well-known models of each library, which the page shows before a search."""


def examples(facts: Facts) -> str:
    """Return the costs of EXAMPLES."""
    by_name = {row.model: row for row in read(model_costs.TABLE) if row.state == COUNTED}
    rows = [
        {
            "model": f"{by_name[name].model} ({by_name[name].library})",
            "parameters": by_name[name].parameters,
            "active": by_name[name].active_parameters,
            "MACs": by_name[name].macs,
            "cache per token": by_name[name].cache_per_token,
            "FlopCounterMode": by_name[name].flop_counter_macs,
        }
        for name in EXAMPLES
    ]
    return document.records(rows)


def _versions(rows: Sequence[ModelCost]) -> str:
    return ", ".join(dict.fromkeys(name for row in rows for name in row.versions.split(", ")))


def shares(facts: Facts) -> str:
    """Return a row of shares for each library, and one for all."""
    rows = [
        {
            "library": share.library,
            "models": share.models,
            "built": share.built,
            "first command": share.first,
            "share of built": share.first_percent,
            "after messages": share.counted,
            "share": share.percent,
        }
        for share in model_costs.shares(read(model_costs.TABLE))
    ]
    return document.records(rows, dict.fromkeys(("share of built", "share"), PERCENT))


def flop_counter(facts: Facts) -> str:
    """Return for each library how often FlopCounterMode gives the same number, another one and none."""
    rows = [
        {"library": share.library, "equal": share.equal, "another number": share.other, "no number": share.none}
        for share in model_costs.shares(read(model_costs.TABLE))
    ]
    return document.records(rows)


def causes(facts: Facts) -> str:
    """Return the operations that FlopCounterMode counts otherwise: models, and the largest share of a model's MACs."""
    found: dict[str, list[tuple[float, ModelCost]]] = {}
    for row in read(model_costs.TABLE):
        if row.flop_counter_macs is not None and row.macs:
            for macs, cause in row.causes:
                found.setdefault(cause, []).append((100 * abs(macs) / row.macs, row))
    rows = []
    for cause, own in sorted(found.items(), key=lambda one: -len(one[1])):
        share, row = max(own, key=lambda one: one[0])
        rows.append(
            {"operation": cause, "models": len(own), "largest share": share, "of": f"{row.library} {row.model}"}
        )
    return document.records(rows, {"largest share": PERCENT}) if rows else "No count differs."


def reasons(facts: Facts) -> str:
    """Return the most frequent reasons for which there is no count, without names of classes and numbers."""
    missing = [row for row in read(model_costs.TABLE) if row.state != COUNTED]
    # a name of a class, and what is in quotation marks, is of one model
    found = Counter((row.state, re.sub(r"\b[A-Z]\w+(?=\.forward)|'[^']*'", "…", row.reason)) for row in missing)
    rows = [{"state": state, "reason": why, "models": number} for (state, why), number in found.most_common(MOST)]
    return document.records(rows) if rows else "Every model is counted."


def changed(facts: Facts) -> str:
    """Return what changed since the versions before."""
    old = read(model_costs.PREVIOUS)
    if not old:
        return "These are the first versions: nothing to compare with."
    found = changes(old, read(model_costs.TABLE))
    counts = Counter(change.what for change in found)
    rows = []
    for change in [change for change in found if change.what == "changed"][:MOST]:
        row = {"library": change.new.library, "model": change.new.model}
        for when, one in (("before", change.old), ("now", change.new)):
            row |= {f"parameters {when}": one.parameters, f"MACs {when}": one.macs}
        rows.append(row)
    text = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing changed"
    return "\n\n".join([f"Since {_versions(old)}: {text}.", *([document.records(rows)] if rows else [])])
