"""python -m bench.budget: attention sizes that fit a budget, on the Pareto front of what they cost.

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
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from headcount.bench.cli import Parser, Work, add_output, serve, start
from headcount.bench.errors import UsageError

PROG = "python -m bench.budget"
if __name__ == "__main__":
    start(PROG, "headcount.bench.budget.__main__", "numpy")

from headcount.bench import records
from headcount.bench.accounts import Assumptions
from headcount.bench.budget.bounds import NAMES, Bound, parse
from headcount.bench.budget.bounds import around as around_value
from headcount.bench.budget.candidates import METRICS, costs
from headcount.bench.budget.ranges import chosen_ranges
from headcount.bench.budget.search import Surroundings, base_for, layer_fields, search
from headcount.bench.budget.table import WORDS, Like, no_cache, section
from headcount.bench.case import LENGTHS, Case, resolve_lengths, with_attention
from headcount.bench.output.arguments import Value
from headcount.bench.variants.variant import Variant, variant, variants_with
from headcount.documented import said
from headcount.models.configs.base import ModelConfig
from headcount.models.configs.numbers import whole
from headcount.models.configs.presets import assignments, parse_overrides, preset

MAXIMISED = ("params", "active-params")
DEFAULT = "moa"
"""What is searched where nothing says it."""
SEARCHED = variants_with("search")
SHARE = Value("share between 0 and 1", Fraction, lambda share: 0 <= share < 1)
ROWS = Value("number of rows", whole, lambda rows: rows >= 0)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.budget."""
    out = Parser(prog=prog, description=said(__name__).replace(PROG, prog))
    for word, metric in WORDS.items():
        out.add_argument(f"--{word}", metavar="BUDGET", help=f"{NAMES[metric]}: 1.2G, 64Ki, or 1.1G:1.2G")
    out.add_argument(
        "--attention", choices=SEARCHED, help=f"what is searched; the preset's unless given, else {DEFAULT}"
    )
    out.add_argument("--preset", metavar="NAME", help="the model around the attention")
    out.add_argument("--set", nargs="+", metavar="FIELD=VALUE", default=[], help="change fields of that model")
    out.add_argument("--d-model", type=int, metavar="N")
    out.add_argument("--layers", type=int, metavar="N", help="of encoder and decoder each, where it has both")
    out.add_argument("--like", metavar="PRESET[,FIELD=VALUE]", help="match this model, in its other fields too")
    out.add_argument("--match", nargs="+", choices=WORDS, help="what --like matches, macs without it")
    out.add_argument("--tolerance", metavar="SHARE", type=SHARE, help="how near --like is matched, 0.02 without it")
    out.add_argument(
        "--range", nargs="+", metavar="LETTER=LOW:HIGH[:STEP]", default=[], help="the sizes of a letter that are tried"
    )
    out.add_argument("--any", action="store_true", help="any integers instead of hardware-friendly multiples")
    out.add_argument(
        "--maximise",
        nargs="*",
        choices=WORDS,
        default=MAXIMISED,
        help="costs of which more is better; params and active-params without it",
    )
    out.add_argument("--sort", choices=WORDS, help="the cost that rows are ordered by")
    out.add_argument("--limit", type=ROWS, default=20, metavar="N", help="rows; 0 for all, which may take minutes")
    out.add_argument(
        "--apart",
        metavar="SHARE",
        type=SHARE,
        default="0.05",
        help="drop rows within SHARE of one already listed; 0.05 without it",
    )
    for name, what in LENGTHS.items():
        out.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=what)
    out.add_argument("--element-bytes", type=int, metavar="N", default=2, help="bytes of a cached number, 2 without it")
    out.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose stored latencies are shown")
    out.add_argument("--records", nargs="+", metavar="DIR", type=Path, help="where latency records are")
    out.add_argument("--plot", metavar="FILE", help="a scatter plot of the rows, .svg or .png")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; its exit code."""
    return serve(prog, parser(prog), plan, argv)


def plan(args: argparse.Namespace) -> Work:
    """The answer to ``args``: everything is found before it is printed, and drawn where a plot is asked for."""
    chosen, surroundings, like = _surroundings(args)
    bounds = _bounds(args, surroundings, like)
    answer = search(
        surroundings,
        chosen_ranges(args.range, chosen, args.any),
        bounds,
        maximise=[WORDS[word] for word in args.maximise],
        first=WORDS.get(args.sort),
        apart=float(args.apart),
        limit=args.limit,
        device=args.device,
        records=args.records or records.folders(),
    )
    found = section(args, chosen, answer, bounds, like)
    if args.plot:
        from headcount.bench.budget.plot import draw

        draw(args.plot, found.table.title, answer)
    said = f"{len(answer.listed)} rows of {len(answer.found):,} within the budget, of {answer.searched:,} candidates."
    return Work([found], remark=lambda: f", {answer.searched:,} candidates", result=lambda printed: said)


def _surroundings(args) -> tuple[Variant, Surroundings, Like | None]:
    """The variant, the model around it, and the model to match."""
    if args.like and args.preset:
        raise UsageError("--like brings its own model; --preset goes without it")
    given = {name: getattr(args, name) for name in LENGTHS}
    text = args.like or args.preset or ""
    name = text.partition(",")[0] if args.like else text
    own = parse_overrides(name, assignments(text)) if args.like else {}
    shown = preset(name, own) if name else None
    chosen = _searched(args.attention or (shown.attention.variant if shown else DEFAULT))
    overrides = own
    if shown is None:
        name = chosen.search.preset
    elif shown.attention.variant != chosen.name:
        name, overrides = base_for(chosen.name, name, shown)
    fields = chosen.fields(chosen.search.example)
    # Sizes of the model to match say nothing about those of its alternatives.
    overrides = {field: value for field, value in overrides.items() if field not in fields}
    if any(word.startswith("attention=") for word in args.set):
        raise UsageError("--attention, not --set, says which attention is searched")
    exchanged = [f"attention={chosen.name}"] if "attention" in overrides else []
    changed = parse_overrides(name, [*exchanged, *args.set])
    for letter, field in zip(chosen.search.example, fields, strict=True):
        if field in changed:
            size = changed[field] if isinstance(changed[field], int) else "N"
            raise UsageError(f"{field} is what is searched; --range {letter}={size} keeps it")
    overrides = {**overrides, **(chosen.search.defaults | overrides), **changed}
    if args.d_model is not None:
        overrides["d_model"] = args.d_model
    if args.layers is not None:
        overrides |= layer_fields(name, args.layers)
    around = Surroundings(chosen, name, overrides, given, _assumptions(args))
    like = _like(args.like, shown, own, around) if args.like else None
    return chosen, around, like


def _searched(name: str) -> Variant:
    if name not in SEARCHED:
        raise UsageError(f"no search over {name}: {variant(name).unsearched}; choose from {', '.join(SEARCHED)}")
    return SEARCHED[name]


def _assumptions(args) -> Assumptions:
    if args.element_bytes < 1:
        raise UsageError(f"--element-bytes must be at least 1, not {args.element_bytes}")
    return Assumptions(element_bytes=args.element_bytes)


def _like(text: str, config: ModelConfig, own, around: Surroundings) -> Like:
    """``config`` in the form in which its alternatives are counted, unless ``own`` fields of it say another."""
    known = SEARCHED.get(config.attention.variant)
    form = (
        {field: around.overrides.get(field, value) for field, value in known.search.defaults.items()} if known else {}
    )
    form = {field: value for field, value in form.items() if field not in own}
    config = with_attention(config, **form)
    name = ",".join((text, *(f"{field}={value}" for field, value in form.items())))
    case = Case(name, config, resolve_lengths(config, around.lengths))
    return Like(name, costs(case, around.given))


def _bounds(args, around: Surroundings, like: Like | None) -> dict[str, Bound]:
    match, tolerance = args.match or ["macs"], Fraction(1, 50) if args.tolerance is None else args.tolerance
    if not like and (args.match or args.tolerance is not None):
        raise UsageError("--match and --tolerance need --like, the model to match")
    asked = {word for word in WORDS if getattr(args, WORDS[word])} | {args.sort, *match, *args.maximise}
    if "kv-bytes" in asked and (reason := no_cache(around)):
        raise UsageError(f"{around.preset} has no cache to count: {reason}; leave kv-bytes out")
    bounds = {metric: parse(text) for metric in METRICS if (text := getattr(args, metric))}
    if like:
        bounds |= {WORDS[word]: around_value(like.costs[WORDS[word]], tolerance) for word in match}
    if not bounds:
        raise UsageError(f"no budget; give one of {', '.join(f'--{word}' for word in WORDS)}, or --like")
    return bounds
