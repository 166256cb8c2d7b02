"""The table of a search: the listed sizes, what each costs, and what was searched."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headcount.bench.accounts import ACCOUNTS, values
from headcount.bench.budget.bounds import NAMES, Bound
from headcount.bench.budget.candidates import METRICS
from headcount.bench.budget.search import Answer, HostModel, check
from headcount.bench.case import describe_input
from headcount.bench.table import Column, Row, Section, Table

HEADS = {"macs": "MACs", "params": "params", "active_params": "params\nactive"}
WORDS = {metric.replace("_", "-"): metric for metric in METRICS}
"""The metrics by their words in options."""


@dataclass(frozen=True)
class MatchTarget:
    """The model to match: the name that the user gave it, and its costs."""

    name: str
    costs: Mapping[str, int]


def no_cache(host: HostModel) -> str | None:
    """Return why the model has no cache, or None where it has one."""
    return values(["kv_bytes"], host.example, host.given)[1].get("kv_bytes")


def section(
    args: argparse.Namespace,
    answer: Answer,
    ranges: Mapping[str, Sequence[int]],
    bounds: Mapping[str, Bound],
    target: MatchTarget | None,
) -> Section:
    """Return a row for each listed point; raise ArithmeticError where a row's costs are not those of its model."""
    host, costs = answer.host, answer.found.costs
    timed = any(answer.times[i] == answer.times[i] for i in answer.listed)
    layout = Table(
        "budget",
        "; ".join(f"{NAMES[metric]} {bound.text()}" for metric, bound in bounds.items()),
        [
            *(Column(letter, letter, kind="int", priority=0) for letter in host.variant.search.letters),
            *(_column(metric, host) for metric in costs),
            *([Column("ms", "layer", "ms", kind="fixed", digits=3)] if timed else []),
            Column("preset", "as a preset", priority=2, wraps=24),
        ],
        notes_above=_notes(args, answer, ranges, timed, target),
    )
    rows = []
    for index in answer.listed:
        check(answer, index)
        sizes = answer.found.at(index)
        changed = host.assignments(sizes)
        cells: dict[str, object] = {**sizes, **{m: int(v[index]) for m, v in costs.items()}}
        cells["ms"] = float(answer.times[index]) if answer.times[index] == answer.times[index] else None
        record = {**cells, "base": host.preset, "set": changed, "input": dict(host.example.lengths)}
        cells["preset"] = f"--preset {host.preset}" + (f" --set {' '.join(changed)}" if changed else "")
        rows.append(Row(cells, records=[{**record, "preset": cells["preset"]}]))
    return Section(layout, rows, facts={"bounds": {m: vars(b) for m, b in bounds.items()}})


def _column(metric: str, host: HostModel) -> Column:
    if metric in ACCOUNTS:
        return ACCOUNTS[metric].column(host.given)
    of, priority = ("MACs", 0) if metric == "macs" else ("params", 1)
    return Column(metric, HEADS[metric], kind="int", of=of, priority=priority)


def _notes(
    args: argparse.Namespace,
    answer: Answer,
    ranges: Mapping[str, Sequence[int]],
    timed: bool,
    target: MatchTarget | None,
) -> list[str]:
    host, variant, given = answer.host, answer.host.variant, {text.partition("=")[0] for text in args.range}
    attention = host.example.config.attention
    conditions = variant.search.conditions(variant.search.example, attention)
    by_statement: dict[str, list[str]] = {}
    for letter, known in variant.search.letters.items():
        statement = "as given" if letter in given else "any integer" if args.all_integers else known.statement
        by_statement.setdefault(statement, []).append(f"{letter} {ranges[letter][0]} to {ranges[letter][-1]}")
    sizes = "; ".join(f"{', '.join(letters)}, {statement}" for statement, letters in by_statement.items())
    if not args.all_integers:
        sizes += " (--all-integers for every integer)"
    rest = ""
    if target and not args.match_model.startswith(host.preset):
        rest = f" with the other sizes of {args.match_model}"
    more = ", ".join(NAMES[WORDS[word]] for word in args.maximise) or "nothing"
    near = ""
    if args.min_distance:
        near = f", rows at least {float(args.min_distance):.0%} apart in one cost (--min-distance 0 for all)"
    reason = no_cache(host)
    cache = f"No cache: {reason}." if reason else "Cache: keys and values of one context of every decoding attention."
    listed = f"the first {len(answer.listed)}" if len(answer.listed) == args.limit else f"all {len(answer.listed)}"
    notes = [
        f"Around {host.preset}{rest}, input: {describe_input(host.example.lengths)}. Searched: {sizes}; "
        f"{', '.join(conditions)}: {answer.searched:,} candidates, {len(answer.found):,} within the "
        "budget. --range sets other bounds.",
        f"On the front of these, where more is better of {more}, less of the rest{near}; {listed} by "
        f"{NAMES[answer.ordered_by]}. {cache} python -m bench.macs takes each row as printed.",
    ]
    if remark := variant.search.remark(attention):
        notes.insert(0, remark)
    if target:
        notes.insert(
            0, f"{target.name}: " + ", ".join(f"{value:,} {NAMES[m]}" for m, value in target.costs.items()) + "."
        )
    recorded = "Layer: its recorded forward pass by itself, without masks, by its fastest implementation."
    missing = f"No latency record of the {args.device} here has one of these layers at this length: no times."
    notes.append(recorded if timed else missing)
    return notes
