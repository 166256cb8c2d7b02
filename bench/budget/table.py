"""The table of a search: the listed sizes, what each costs, and what was searched."""

from collections.abc import Mapping
from dataclasses import dataclass

from headcount.bench.accounts import ACCOUNTS, values
from headcount.bench.budget.bounds import NAMES, Bound
from headcount.bench.budget.candidates import METRICS
from headcount.bench.budget.ranges import chosen_ranges
from headcount.bench.budget.search import Answer, Surroundings, check
from headcount.bench.case import describe_input
from headcount.bench.table import Column, Row, Section, Table
from headcount.bench.variants.variant import Variant

HEADS = {"macs": "MACs", "params": "params", "active_params": "params\nactive"}
WORDS = {metric.replace("_", "-"): metric for metric in METRICS}
"""What an option calls a cost."""


@dataclass(frozen=True)
class Like:
    """The model to match, by the name that the user gave it, and what it costs."""

    name: str
    costs: Mapping[str, int]


def no_cache(around: Surroundings) -> str | None:
    """Why the model has no account of a cache, if it has none."""
    return values(["kv_bytes"], around.example, around.given)[1].get("kv_bytes")


def section(args, chosen: Variant, answer: Answer, bounds: dict[str, Bound], like: Like | None) -> Section:
    """A row for each listed point; ``args`` are those of the command. ArithmeticError where a row is wrong."""
    around, costs = answer.surroundings, answer.found.costs
    timed = any(answer.times[i] == answer.times[i] for i in answer.listed)
    layout = Table(
        "budget",
        "; ".join(f"{NAMES[metric]} {bound.text()}" for metric, bound in bounds.items()),
        [
            *(Column(letter, letter, kind="int", priority=0) for letter in chosen.search.letters),
            *(_column(metric, around) for metric in costs),
            *([Column("ms", "layer", "ms", kind="fixed", digits=3)] if timed else []),
            Column("preset", "as a preset", priority=2, wraps=24),
        ],
        notes_above=_notes(args, chosen, answer, timed, like),
    )
    rows = []
    for index in answer.listed:
        check(answer, index)
        sizes = answer.found.at(index)
        changed = around.assignments(sizes)
        cells: dict[str, object] = {**sizes, **{m: int(v[index]) for m, v in costs.items()}}
        cells["ms"] = float(answer.times[index]) if answer.times[index] == answer.times[index] else None
        record = {**cells, "base": around.preset, "set": changed, "input": dict(around.example.lengths)}
        cells["preset"] = f"--preset {around.preset}" + (f" --set {' '.join(changed)}" if changed else "")
        rows.append(Row(cells, records=[{**record, "preset": cells["preset"]}]))
    return Section(layout, rows, facts={"bounds": {m: vars(b) for m, b in bounds.items()}})


def _column(metric: str, around: Surroundings) -> Column:
    if metric in ACCOUNTS:
        return ACCOUNTS[metric].column(around.given)
    of, priority = ("MACs", 0) if metric == "macs" else ("params", 1)
    return Column(metric, HEADS[metric], kind="int", of=of, priority=priority)


def _notes(args, chosen: Variant, answer: Answer, timed: bool, like: Like | None) -> list[str]:
    around, given = answer.surroundings, {text.partition("=")[0] for text in args.range}
    attention = around.example.config.attention
    conditions = chosen.search.conditions(chosen.search.example, attention)
    listed = f"the first {len(answer.listed)}" if len(answer.listed) == args.limit else f"all {len(answer.listed)}"
    shown = f"{listed} by {NAMES[answer.ordered_by]}"
    ranges = chosen_ranges(args.range, chosen, args.any)
    by_statement: dict[str, list[str]] = {}
    for letter, known in chosen.search.letters.items():
        statement = "as given" if letter in given else "any integer" if args.any else known.statement
        by_statement.setdefault(statement, []).append(f"{letter} {ranges[letter][0]} to {ranges[letter][-1]}")
    sizes = "; ".join(f"{', '.join(letters)}, {statement}" for statement, letters in by_statement.items())
    if not args.any:
        sizes += " (--any for every integer)"
    rest = f" with the other sizes of {args.like}" if like and not args.like.startswith(around.preset) else ""
    more = ", ".join(NAMES[WORDS[word]] for word in args.maximise) or "nothing"
    near = f", rows at least {float(args.apart):.0%} apart in one cost (--apart 0 for all)" if args.apart else ""
    cache = (
        f"No cache: {reason}."
        if (reason := no_cache(around))
        else "Cache: keys and values of one context of every attention that decodes."
    )
    notes = [
        f"Around {around.preset}{rest}, input: {describe_input(around.example.lengths)}. Searched: {sizes}; "
        f"{', '.join(conditions)}: {answer.searched:,} candidates, {len(answer.found):,} within the "
        "budget. --range sets other bounds.",
        f"On the front of these, where more is better of {more}, less of the rest{near}; {shown}. {cache} "
        "python -m bench.macs takes each row as printed.",
    ]
    if remark := chosen.search.remark(attention):
        notes.insert(0, remark)
    if like:
        notes.insert(0, f"{like.name}: " + ", ".join(f"{value:,} {NAMES[m]}" for m, value in like.costs.items()) + ".")
    recorded = "Layer: its recorded forward pass by itself, without masks, by its fastest arm."
    missing = f"No latency record of the {args.device} here has one of these layers at this length: no times."
    notes.append(recorded if timed else missing)
    return notes
