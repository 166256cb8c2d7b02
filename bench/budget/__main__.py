"""``python -m bench.budget``: attention sizes that fit a budget, on the Pareto front of what they cost.

    python -m bench.budget --macs 1.2G --attention moa                    K, E, D within 1.2 G multiply-accumulates
    python -m bench.budget --macs 1.2G --params 200M --kv-bytes 64Ki      several budgets at once
    python -m bench.budget --like transformer-big --attention moa         MAC-matched to a model within 2 %
    python -m bench.budget --like llama3-8b --attention moh               h, s, r, g, d_h of mixture-of-head attention
    python -m bench.budget --macs 700M --any --range K=1:16 E=1:64        any integers, in these ranges

Everything else about the model is the preset's. More parameters and more active parameters are better unless
--maximise says otherwise, less of everything else is. Answers come from closed forms; each is a preset with
changed fields, which bench.macs counts to the same integers. Exit codes: 0 fine; 2 wrong usage, or a budget that
nothing meets.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from headcount.bench import records
from headcount.bench.budget.bounds import NAMES, Bound, parse
from headcount.bench.budget.bounds import around as around_value
from headcount.bench.budget.candidates import METRICS, costs, no_cache
from headcount.bench.budget.families import FAMILIES, Family, family, parse_range
from headcount.bench.budget.search import Answer, Surroundings, base_for, check, layer_fields, search
from headcount.bench.case import describe_input, resolve_lengths, with_attention
from headcount.bench.cli import Parser, run
from headcount.bench.errors import UsageError
from headcount.bench.macs.subjects import assignments
from headcount.bench.render import FORMATS, Row, Section, emit
from headcount.bench.table import Column, Table, open_output
from headcount.models.configs.base import ModelConfig
from headcount.models.configs.presets import parse_overrides, preset

PROG = "python -m bench.budget"
LENGTHS = ("seq_len", "src_len", "tgt_len", "batch_size")
MAXIMISED = ("params", "active-params")
HEADS = {"macs": "MACs", "params": "params", "active_params": "params\nactive", "kv_bytes": "cache\nbytes (2 each)"}
WORDS = {metric.replace("_", "-"): metric for metric in METRICS}


def parser() -> argparse.ArgumentParser:
    """The command line of bench.budget."""
    out = Parser(prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for word, metric in WORDS.items():
        out.add_argument(f"--{word}", metavar="BUDGET", help=f"{NAMES[metric]}: 1.2G, 64Ki, or 1.1G:1.2G")
    out.add_argument("--attention", choices=FAMILIES, help="what is searched; the preset's unless given, else moa")
    out.add_argument("--preset", metavar="NAME", help="the model around the attention")
    out.add_argument("--set", nargs="+", metavar="FIELD=VALUE", default=[], help="change fields of that model")
    out.add_argument("--d-model", type=int, metavar="N")
    out.add_argument("--layers", type=int, metavar="N", help="of encoder and decoder each, where it has both")
    out.add_argument("--like", metavar="PRESET[,FIELD=VALUE]", help="match this model, in its other fields too")
    out.add_argument("--match", nargs="+", choices=WORDS, help="what --like matches, macs without it")
    out.add_argument("--tolerance", metavar="SHARE", type=_share, help="how near --like is matched, 0.02 without it")
    out.add_argument("--range", nargs="+", metavar="LETTER=LOW:HIGH[:STEP]", default=[], help="sizes of one letter")
    out.add_argument("--any", action="store_true", help="any integers instead of hardware-friendly multiples")
    out.add_argument("--maximise", nargs="*", choices=WORDS, default=MAXIMISED, help="of what more is better")
    out.add_argument("--sort", choices=WORDS, help="what rows are ordered by")
    out.add_argument("--limit", type=_rows, default=20, metavar="N", help="rows; 0 for all, which may take minutes")
    out.add_argument("--apart", metavar="SHARE", type=_share, default="0.05", help="leave out what is so near a row")
    for name in LENGTHS:
        out.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N")
    out.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose latency records count")
    out.add_argument("--records", nargs="+", metavar="DIR", type=Path, help="where latency records are")
    out.add_argument("--plot", metavar="FILE", help="a scatter plot of the rows, .svg or .png")
    out.add_argument("--format", choices=FORMATS, default="text")
    out.add_argument("--out", metavar="PATH", help="write there instead of stdout")
    return out


def _share(text: str) -> Fraction:
    try:
        share = Fraction(text)
    except ZeroDivisionError:
        raise ValueError(text) from None
    if not 0 <= share < 1:
        raise ValueError(text)
    return share


def _rows(text: str) -> int:
    if (rows := int(text)) < 0:
        raise ValueError(text)
    return rows


_share.__name__ = "share between 0 and 1"
_rows.__name__ = "number of rows"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _main(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    chosen, surroundings, like = _surroundings(args)
    bounds = _bounds(args, surroundings, like)
    answer = search(
        surroundings,
        _ranges(args, chosen),
        bounds,
        maximise=[WORDS[word] for word in args.maximise],
        first=WORDS.get(args.sort),
        apart=float(args.apart),
        limit=args.limit,
        device=args.device,
        records=args.records or records.folders(),
    )
    section = _section(args, chosen, answer, bounds, like)
    if args.plot:
        from headcount.bench.budget.plot import draw

        draw(args.plot, section.table.title, answer)
    with open_output(args.out) as stream:
        emit([section], args.format, stream)
    print(f"{time.perf_counter() - started:.1f} s, {answer.searched:,} candidates", file=sys.stderr)
    return 0


@dataclass(frozen=True)
class Like:
    """The model to match, by the name that the user gave it, and what it costs."""

    name: str
    costs: Mapping[str, int]


def _surroundings(args) -> tuple[Family, Surroundings, Like | None]:
    """The family, the model around it, and the model to match."""
    if args.like and args.preset:
        raise UsageError("--like brings its own model; --preset goes without it")
    given = {name: getattr(args, name) for name in LENGTHS}
    text = args.like or args.preset or ""
    name = text.partition(",")[0] if args.like else text
    own = parse_overrides(name, assignments(text)) if args.like else {}
    shown = preset(name, own) if name else None
    chosen = family(args.attention or (shown.attention.variant if shown else "moa"))
    overrides = own
    if shown is None:
        name = chosen.preset
    elif shown.attention.variant != chosen.variant:
        name, overrides = base_for(chosen.variant, name, shown)
    fields = chosen.fields(chosen.example)
    # Sizes of the model to match say nothing about those of its alternatives.
    overrides = {field: value for field, value in overrides.items() if field not in fields}
    if any(word.startswith("attention=") for word in args.set):
        raise UsageError("--attention, not --set, says which attention is searched")
    exchanged = [f"attention={chosen.variant}"] if "attention" in overrides else []
    changed = parse_overrides(name, [*exchanged, *args.set])
    for letter, field in zip(chosen.example, fields, strict=True):
        if field in changed:
            size = changed[field] if isinstance(changed[field], int) else "N"
            raise UsageError(f"{field} is what is searched; --range {letter}={size} keeps it")
    overrides = {**overrides, **(chosen.defaults | overrides), **changed}
    if args.d_model is not None:
        overrides["d_model"] = args.d_model
    if args.layers is not None:
        overrides |= layer_fields(name, args.layers)
    lengths = resolve_lengths(preset(name, {**overrides, **fields}), given)
    like = _like(args.like, shown, own, overrides, given) if args.like else None
    return chosen, Surroundings(chosen, name, overrides, lengths), like


def _like(text: str, config: ModelConfig, own, overrides, given) -> Like:
    """``config`` in the form in which its alternatives are counted, unless ``own`` fields of it say another."""
    known = FAMILIES.get(config.attention.variant)
    form = {field: overrides.get(field, value) for field, value in known.defaults.items()} if known else {}
    form = {field: value for field, value in form.items() if field not in own}
    config = with_attention(config, **form)
    name = ",".join((text, *(f"{field}={value}" for field, value in form.items())))
    return Like(name, costs(config, resolve_lengths(config, given)))


def _bounds(args, around: Surroundings, like: Like | None) -> dict[str, Bound]:
    no_cache_of = no_cache(around.example)
    match, tolerance = args.match or ["macs"], Fraction(1, 50) if args.tolerance is None else args.tolerance
    if not like and (args.match or args.tolerance is not None):
        raise UsageError("--match and --tolerance need --like, the model to match")
    asked = {word for word in WORDS if getattr(args, WORDS[word])} | {args.sort, *match, *args.maximise}
    if no_cache_of and "kv-bytes" in asked:
        raise UsageError(f"{around.preset} keeps no cache: {no_cache_of}; leave kv-bytes out")
    bounds = {metric: parse(text) for metric in METRICS if (text := getattr(args, metric))}
    if like:
        bounds |= {WORDS[word]: around_value(like.costs[WORDS[word]], tolerance) for word in match}
    if not bounds:
        raise UsageError(f"no budget; give one of {', '.join(f'--{word}' for word in WORDS)}, or --like")
    return bounds


def _ranges(args, chosen: Family) -> dict[str, Sequence[int]]:
    given = dict(parse_range(text, chosen) for text in args.range)
    return {
        letter: given.get(letter, known.any_size if args.any else known.friendly)
        for letter, known in chosen.letters.items()
    }


def _section(args, chosen: Family, answer: Answer, bounds: dict[str, Bound], like: Like | None) -> Section:
    around, costs = answer.surroundings, answer.found.costs
    timed = any(answer.times[i] == answer.times[i] for i in answer.listed)
    layout = Table(
        "budget",
        "; ".join(f"{NAMES[metric]} {bound.text()}" for metric, bound in bounds.items()),
        [
            *(Column(letter, letter, kind="int", width=4) for letter in chosen.letters),
            *(Column(metric, HEADS[metric], kind="int", width=_width(v[answer.listed])) for metric, v in costs.items()),
            *([Column("ms", "layer", "ms", kind="fixed", digits=3)] if timed else []),
            Column("preset", "as a preset", width=40),
        ],
        notes_above=_notes(args, chosen, answer, timed, like),
    )
    rows = []
    for index in answer.listed:
        check(answer, index)
        sizes = answer.found.at(index)
        changed = around.assignments(sizes)
        values: dict[str, object] = {**sizes, **{m: int(v[index]) for m, v in costs.items()}}
        values["ms"] = float(answer.times[index]) if answer.times[index] == answer.times[index] else None
        record = {**values, "base": around.preset, "set": changed, "input": dict(around.lengths)}
        values["preset"] = f"--preset {around.preset}" + (f" --set {' '.join(changed)}" if changed else "")
        rows.append(Row(values, records=[{**record, "preset": values["preset"]}]))
    return Section(layout, rows, facts={"bounds": {m: vars(b) for m, b in bounds.items()}})


def _width(values: np.ndarray) -> int:
    return max(11, *(len(f"{value:,}") for value in values))


def _notes(args, chosen: Family, answer: Answer, timed: bool, like: Like | None) -> list[str]:
    around, given = answer.surroundings, {text.partition("=")[0] for text in args.range}
    example = around.example
    listed = f"the first {len(answer.listed)}" if len(answer.listed) == args.limit else f"all {len(answer.listed)}"
    shown = f"{listed} by {NAMES[answer.ordered_by]}"
    ranges = _ranges(args, chosen)
    by_statement: dict[str, list[str]] = {}
    for letter, known in chosen.letters.items():
        statement = "as given" if letter in given else "any integer" if args.any else known.statement
        by_statement.setdefault(statement, []).append(f"{letter} {ranges[letter][0]} to {ranges[letter][-1]}")
    sizes = "; ".join(f"{', '.join(letters)}, {statement}" for statement, letters in by_statement.items())
    if not args.any:
        sizes += " (--any for every integer)"
    rest = f" with the other sizes of {args.like}" if like and not args.like.startswith(around.preset) else ""
    known = [word for word in args.maximise if WORDS[word] in answer.found.costs]
    more = ", ".join(NAMES[WORDS[word]] for word in known) or "nothing"
    near = f", rows at least {float(args.apart):.0%} apart in one cost (--apart 0 for all)" if args.apart else ""
    cache = (
        "Cache: keys and values of one context of every attention that decodes, two bytes each."
        if not no_cache(example)
        else f"No cache: {no_cache(example)}."
    )
    notes = [
        f"Around {around.preset}{rest}, input: {describe_input(around.lengths)}. Searched: {sizes}; "
        f"{chosen.condition(example.attention)}: {answer.searched:,} candidates, {len(answer.found):,} within the "
        "budget. --range sets other bounds.",
        f"On the front of these, where more is better of {more}, less of the rest{near}; {shown}. {cache} "
        "python -m bench.macs takes each row as printed.",
    ]
    if remark := chosen.remark(example.attention):
        notes.insert(0, remark)
    if like:
        notes.insert(0, f"{like.name}: " + ", ".join(f"{value:,} {NAMES[m]}" for m, value in like.costs.items()) + ".")
    recorded = "Layer: its recorded forward pass by itself, without masks, by its fastest implementation."
    missing = f"No latency record of the {args.device} here has one of these layers at this length: no times."
    notes.append(recorded if timed else missing)
    return notes


if __name__ == "__main__":
    sys.exit(main())
