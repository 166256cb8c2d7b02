"""The table of a search: the listed sizes, what each costs, and what was searched."""

import argparse
import math
from collections.abc import Mapping, Sequence

import numpy as np

from headcount.bench.accounts import ACCOUNTS, values
from headcount.bench.budget.bounds import NAMES, Bound
from headcount.bench.budget.candidates import METRICS, WORDS, costs
from headcount.bench.budget.search import Answer, HostModel
from headcount.bench.case import Case, describe_input
from headcount.bench.table import Column, Row, Section, Table
from headcount.models.configs.presets import format_overrides

COLUMNS = {
    "macs": Column("macs", "MACs", kind="int", of="MACs", priority=0),
    "params": Column("params", "params", kind="int", of="params", priority=1),
    "active_params": Column("active_params", "params\nactive", kind="int", of="params", priority=1),
}


def no_cache(host: HostModel) -> str | None:
    """Return why the model has no cache, or None where it has one."""
    return values(["kv_bytes"], host.example, host.given)[1].get("kv_bytes")


def section(
    args: argparse.Namespace,
    answer: Answer,
    ranges: Mapping[str, Sequence[int]],
    bounds: Mapping[str, Bound],
    target: Case | None,
) -> Section:
    """Return a row for each listed point."""
    host, found = answer.host, answer.found
    timed = not np.isnan(answer.times[list(answer.listed)]).all()
    columns = [
        COLUMNS.get(name)
        or (ACCOUNTS[name].column(host.given) if name in METRICS else Column(name, name, kind="int", priority=0))
        for name in found.dtype.names
    ]
    layout = Table(
        "budget",
        "; ".join(f"{NAMES[metric]} {bound.text()}" for metric, bound in bounds.items()),
        [
            *columns,
            *([Column("ms", "layer", "ms", kind="fixed", digits=3)] if timed else []),
            Column("preset", "as a preset", priority=2, wraps=24),
        ],
        notes_above=_notes(args, answer, ranges, timed, target),
    )
    rows = []
    for index in answer.listed:
        row, ms = found[index], float(answer.times[index])
        sizes = dict(zip(found.dtype.names, row.tolist(), strict=True))
        attention = {letter: sizes[letter] for letter in host.variant.search.letters}
        changed = format_overrides(host.preset, host.changes(attention))
        record = {
            **sizes,
            "ms": None if math.isnan(ms) else ms,
            "base": host.preset,
            "set": changed,
            "input": dict(host.example.lengths),
            "preset": f"--preset {host.preset}" + (f" --set {' '.join(changed)}" if changed else ""),
        }
        rows.append(Row(record, records=[record]))
    return Section(layout, rows, facts={"bounds": {m: vars(b) for m, b in bounds.items()}})


def _notes(
    args: argparse.Namespace,
    answer: Answer,
    ranges: Mapping[str, Sequence[int]],
    timed: bool,
    target: Case | None,
) -> list[str]:
    host, variant, given = answer.host, answer.host.variant, {text.partition("=")[0] for text in args.range}
    attention = host.example.config.attention
    conditions = variant.search.conditions(variant.search.example, attention)
    sizes = []
    for letter, known in variant.search.letters.items():
        statement = "as given" if letter in given else "any integer" if args.all_integers else known.statement
        sizes.append(f"{letter} {ranges[letter][0]} to {ranges[letter][-1]}, {statement}")
    more = ", ".join(NAMES[WORDS[word]] for word in args.maximise) or "nothing"
    near = f", rows at least {float(args.min_distance):.0%} apart in one cost (--min-distance 0 for all)"
    near = near if args.min_distance else ""
    reason = no_cache(host)
    cache = f"No cache: {reason}." if reason else "Cache: keys and values of one context of every decoding attention."
    recorded = "Layer: its recorded forward pass by itself, without masks, by its fastest implementation."
    missing = f"No latency record of the {args.device} here has one of these layers at this length: no times."
    matched = [f"{value:,} {NAMES[metric]}" for metric, value in costs(target, host.given).items()] if target else []
    return [
        *([f"{target.name}: {', '.join(matched)}."] if target else []),
        *filter(None, [variant.search.remark(attention)]),
        f"Around {host.preset}, input: {describe_input(host.example.lengths)}. Searched: {'; '.join(sizes)}; "
        f"{', '.join(conditions)}: {answer.searched:,} candidates, {len(answer.found):,} within the "
        "budget. --range and --all-integers try other sizes.",
        f"On the front of these, where more is better of {more}, less of the rest{near}, by "
        f"{NAMES[answer.ordered_by]}. {cache} python -m bench.macs takes each row as printed.",
        recorded if timed else missing,
    ]
