"""python -m bench.budget: attention sizes within a budget, on the Pareto front of their costs.

    python -m bench.budget --macs 1.2G --params 200M --kv-bytes 64Ki
    python -m bench.budget --match-model transformer-big --attention moa
    python -m bench.budget mha --match-model moa:K=4,E=64,D=80,d_m=512,T=128
    python -m bench.budget --macs 700M --all-integers --range K=1:16 E=1:64
    python -m bench.budget --macs 1.2G --on 'H100 SXM'     the expected time of each row, one of its costs
    python -m bench.budget moa:d_m=512,T=128 --macs 50M     layers; letters that are given stay
    python -m bench.budget llama3-8b --ranks 64 --global-batch 128 --bytes 40G --on 'H100 SXM'

The rest of the model is the preset's. More parameters and more active parameters are better unless --maximise names
other costs; less of every other cost is better. No printed row is worse than another in every cost. Costs come from
closed forms; a count of a row's model gives the same integers. Exit code 2: wrong usage, or no candidate.
"""

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from headcount.bench.cli import COUNT, ELEMENT, RATE, SET, NameList, Parser, Value, add_output, serve, start
from headcount.bench.errors import UsageError, flag

PROG = "python -m bench.budget"
if __name__ == "__main__":
    start(PROG, "headcount.bench.budget.__main__", "numpy")


from headcount.bench.accounts import Assumptions
from headcount.bench.budget import plans
from headcount.bench.budget.bounds import NAMES, Bound, NoCandidate, bound_around, parse, parse_ranges
from headcount.bench.budget.candidates import METRICS, WORDS, costs
from headcount.bench.budget.search import Answer, HostModel, layer_fields, no_cache, preset_for, search, table
from headcount.bench.case import LENGTHS, Case, Config, layers_of, resolve_lengths, with_attention
from headcount.bench.closed_form.case import configuration_case
from headcount.bench.column import plural
from headcount.bench.hardware import find_card, names
from headcount.bench.output.figure import figure
from headcount.bench.performance.plan_time import BETWEEN_HELP, cluster_of, in_nodes
from headcount.bench.result import Result
from headcount.bench.targets.target import is_configuration, parse_target
from headcount.bench.variants.mha import NARROWED
from headcount.bench.variants.variant import Variant, variant, variants_with, with_width
from headcount.formulas.ledger import Ledger
from headcount.formulas.parts import ATTENTION, part_of
from headcount.formulas.plan import Plan
from headcount.models.configs.base import as_model
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.targets import is_layer, make, read, split
from headcount.models.configs.targets import parse as parse_words

MAXIMISED = ("params", "active-params")
DEFAULT = "moa"
"""The attention that is searched without --attention and without a preset."""
SEARCHED = variants_with("search") | NARROWED
SHARE = Value("share between 0 and 1", Fraction, lambda share: 0 <= share < 1)
ROWS = Value("number of rows", parse_int, lambda rows: rows >= 0)
OF_PLANS = ("global_batch", "bytes", "ranks_per_node", "between_nodes")
OF_SIZES = (
    *WORDS.values(), "attention", "d_model", "layers", "match_model", "match_metric", "tolerance", "range",
    "all_integers", "sort", "records", "plot",
)  # fmt: skip
"""Options of plans, and of sizes."""
MAX_DRAWN = 5000
"""At most so many grey points in a plot: more only make the file larger."""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.budget."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    add = out.add_argument
    for word, metric in WORDS.items():
        add(f"--{word}", metavar="BUDGET", help=f"{NAMES[metric]}: 1.2G, 64Ki, or 1.1G:1.2G")
    text = f"{', '.join(SEARCHED)} (default: the preset's, or {DEFAULT})"
    add("--attention", choices=SEARCHED, metavar="NAME", help=text)
    text = "preset around the attention, or moa:d_m=512,T=128"
    add("preset", nargs="?", metavar="TARGET", help=text)
    add("--set", **SET, help="change fields of that model")
    add("--d-model", type=int, metavar="N")
    add("--layers", type=int, metavar="N", help="of encoder and decoder each, where it has both")
    add("--match-model", metavar="PRESET", help="[,FIELD=VALUE] or layer: match costs, keep the rest")
    add("--match-metric", action=NameList, choices=WORDS, metavar="NAME", help="costs of --match-model (default: macs)")
    add("--tolerance", metavar="SHARE", type=SHARE, help="largest deviation from them (default: 0.02)")
    text = "E=16:64 tries every integer, E=16:64:8 steps of 8"
    add("--range", nargs="+", metavar="LETTER=LOW:HIGH", default=[], help=text)
    add("--all-integers", action="store_true", help="try all integers, not hardware-friendly multiples")
    add(
        "--maximise",
        action=NameList,
        nargs="*",
        choices=WORDS,
        default=MAXIMISED,
        metavar="NAME",
        help="more is better of these (default: params active-params)",
    )
    add("--sort", choices=WORDS, metavar="NAME", help="the cost that rows are ordered by")
    text = "rows, the best of each K in turn; 0 for all, in minutes (default: 20)"
    add("--limit", type=ROWS, default=20, metavar="N", help=text)
    text = "print rows of one K whose costs are as near as this only once (default: 0.05)"
    add("--min-distance", metavar="SHARE", type=SHARE, default="0.05", help=text)
    for name, what in LENGTHS.items():
        add(f"--{name.replace('_', '-')}", type=int, metavar="N", help=what)
    add("--cache-bytes", type=ELEMENT, metavar="N", default=2, help="bytes of a cached element (default: 2)")
    add("--device", choices=("cpu", "cuda"), help="device of stored latencies (default: cpu)")
    add("--on", metavar="CARD", help=f"expected times there: {', '.join(names())}")
    add("--records", nargs="+", metavar="DIR", type=Path, help="add measured times from these folders")
    add("--plot", metavar="FILE", help="a scatter plot of the rows, .svg or .png")
    add = out.add_argument_group("parallel plans instead of sizes").add_argument
    add("--ranks", type=COUNT, metavar="N", help="list plans of PRESET or config.json on N ranks")
    add("--global-batch", type=COUNT, metavar="N", help="sequences of a step over all ranks")
    add("--bytes", metavar="BUDGET", help="of a rank at most: 80G (default: those of --on)")
    add("--ranks-per-node", type=COUNT, metavar="N", help="(default: the card's, else 8)")
    add("--between-nodes", type=RATE, metavar="N", help=BETWEEN_HELP)
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), command, argv)


def command(args: argparse.Namespace) -> Result:
    """Return the answer to ``args``, found, and plotted where ``--plot`` asks for it, before it is printed."""
    if args.ranks is not None:
        return _plan_search(args)
    _refuse(args, OF_PLANS, "plans; --ranks N searches them")
    host, target = _host_model(args)
    bounds = _bounds(args, host, target)
    ranges = parse_ranges(args.range, host.variant, args.all_integers, host.stated)
    try:
        answer = search(args, host, ranges, bounds)
    except NoCandidate as error:
        raise UsageError(f"{error}{_excess(args, host, bounds)}") from None
    found = table(args, answer, target)
    if args.plot:
        plot(args.plot, found.title, answer)
    rows = [*found.rows]
    number = f"{plural(len(rows), 'row')} of {len(answer.found):,} within the budget, of {answer.searched:,} candidates"
    sentence = f"{number}; the first by {NAMES[answer.ordered_by]} is {rows[0].target}."
    times = {row.target: row.expected_ms for row in rows if row.expected_ms is not None}
    if times:
        fastest = min(times, key=times.__getitem__)
        sentence += f" {fastest}: expected to be the fastest of these, {times[fastest]:.3g} ms."
    return Result([found], lambda: sentence)


def _excess(args: argparse.Namespace, host: HostModel, bounds: Mapping[str, Bound]) -> str:
    """Return which parts exceed a budget whatever the attention is, and the search over one layer; empty for none."""
    case = host.example
    rest = Ledger(tuple(entry for entry in case.ledger if part_of(entry) != ATTENTION))
    for metric, bound in bounds.items():
        # a cache is of attention alone
        if is_layer(host.spec) or metric == "kv_bytes" or getattr(rest, metric) <= bound.high:
            continue
        parts = sorted(rest.group(part_of, metric).items(), key=lambda part: -part[1])
        of_parts = ", ".join(f"{part} {size:,}" for part, size in parts if size)
        config = as_model(case.config)
        letters = {**config.letters(), **config.length_letters(case.lengths)}
        words = [f"d_m={layers_of(case.config)[0].d_model}", f"T={letters['T']}"]
        words += [f"S={letters['S']}"] if letters.get("S", letters["T"]) != letters["T"] else []
        attention = next(name for name, one in SEARCHED.items() if one == host.variant)
        budgets = [f"--{word} {text}" for word, name in WORDS.items() if (text := getattr(args, name))]
        layer = f"{attention}:{','.join(words)}"
        return (
            f"; without its attention {host.spec} has {getattr(rest, metric):,} {NAMES[metric]} ({of_parts}); one "
            f"layer alone: headcount budget {' '.join([layer, *budgets])}"
        )
    return ""


def _plan_search(args: argparse.Namespace) -> Result:
    """Return the search over parallel plans. Raises UsageError where it lacks the model, the batch or the bytes."""
    card = find_card(args.on or "H100 SXM")
    # a card that is named has its memory
    most = parse(args.bytes).high if args.bytes else card.memory_bytes if args.on else None
    given = {"a preset or config.json": args.preset, "--global-batch N": args.global_batch, "--bytes 80G": most}
    if missing := [name for name, value in given.items() if not value]:
        raise UsageError(f"--ranks N needs {' and '.join(missing)}")
    _refuse(args, OF_SIZES, "a search over sizes, and --ranks searches plans")
    if is_layer(args.preset.partition(":")[0]):
        raise UsageError(f"--ranks divides a model, and {args.preset} is one layer")
    if is_configuration(split(args.preset)[0]):
        given = argparse.Namespace(set=args.set, input=None, **_given_lengths(args))
        case: Case = configuration_case(parse_target(args.preset, given), plan=Plan())
    else:
        name, fields, lengths = read(args.preset, args.set)
        case = Case.of(name, fields, lengths | _given_lengths(args))
    cluster = cluster_of(in_nodes(card, args.between_nodes, args.ranks_per_node))
    return plans.result(case, args.ranks, args.global_batch, most, args.limit, float(args.min_distance), cluster)


def _refuse(args: argparse.Namespace, names: Sequence[str], what: str) -> None:
    """Raise UsageError for the first option of these names that is given: it is of ``what``."""
    for name in names:
        if getattr(args, name):
            raise UsageError(f"{flag(name)} is of {what}")


def _host_model(args: argparse.Namespace) -> tuple[HostModel, Case | None]:
    """Return what has the searched attention, a model or a layer alone, and the one to match."""
    text = args.match_model or args.preset or SEARCHED[args.attention or DEFAULT].search.preset
    attention, name, own, own_lengths = _read(text)
    base, alternative = name, {}
    if args.match_model and args.preset:
        attention, base, alternative, lengths = _alternative(args, name, own_lengths)
        own_lengths |= lengths
    wanted = args.attention or attention
    searched = SEARCHED.get(wanted) or variant(wanted)
    if not searched.search:
        raise UsageError(f"no search over {searched.name}: {searched.unsearched}; choose from {', '.join(SEARCHED)}")
    lengths = own_lengths | _given_lengths(args)
    if is_layer(name):
        _check_layer(args, args.preset or text, base, searched, lengths)
        searched = with_width(searched)
    spec, overrides, config = name, own, None
    if args.match_model or not is_layer(name):
        config = make(name, own)
        if layers_of(config)[0].variant != searched.name:
            spec, overrides = preset_for(searched.name, name, config)
    overrides = {**overrides, **alternative}
    if args.d_model is not None:
        overrides["d_model"] = args.d_model
    fields = searched.fields_by_letter(searched.search.letters)
    # The attention sizes of the model to match do not limit those of its alternatives, but for the width of a layer.
    limiting = fields
    if args.match_model:
        limiting = [letter for letter, field in fields.items() if letter == "d_m" or field in alternative]
    stated = {letter: overrides[fields[letter]] for letter in limiting if fields.get(letter) in overrides}
    overrides = {field: value for field, value in overrides.items() if field not in fields.values()}
    if any(word.startswith("attention=") for word in args.set):
        raise UsageError("--attention, not --set, names the searched attention")
    exchanged = [f"attention={searched.name}"] if "attention" in overrides else []
    changed = parse_words(spec, [*exchanged, *args.set])
    for letter, field in fields.items():
        if field in changed:
            size = changed[field] if isinstance(changed[field], int) else "N"
            raise UsageError(f"{field} is searched; --range {letter}={size} fixes it")
    overrides = {**overrides, **(searched.search.defaults | overrides), **changed}
    if args.layers is not None:
        overrides |= layer_fields(spec, args.layers)
    given = Assumptions(cache_bytes=args.cache_bytes)
    host = HostModel(searched, spec, overrides, lengths, given, stated)
    return host, _match_target(args.match_model, config, own, host) if config and args.match_model else None


def _alternative(
    args: argparse.Namespace, matched: str, lengths: Mapping[str, int]
) -> tuple[str, str, dict[str, Any], dict[str, int]]:
    """Return attention, spec, fields and lengths of TARGET, a layer that is searched to match a layer.

    ``matched`` is the spec of --match-model, and ``lengths`` are its input lengths. Raises UsageError where one of the
    two is a model, and for two different lengths.
    """
    attention, name, own, own_lengths = _read(args.preset)
    if not is_layer(name) or not is_layer(matched):
        raise UsageError(
            f"TARGET goes with --match-model where both are layers; headcount budget --match-model {args.match_model} "
            f"--attention {attention} searches {attention} of the same cost"
        )
    if any(lengths[length] != own_lengths[length] for length in {*lengths} & {*own_lengths}):
        raise UsageError(f"{args.preset} and {args.match_model} have different lengths; give both the same")
    return attention, name, own, own_lengths


def _read(text: str) -> tuple[str, str, dict[str, Any], dict[str, int]]:
    """Return attention, spec, fields and lengths of a preset, or of a layer, which may leave letters to the search.

    Raises UsageError for a configuration.
    """
    kind, colon, words = text.partition(":")
    if kind not in SEARCHED and not is_layer(kind):
        if is_configuration(split(text)[0]):
            raise UsageError(
                f"{text}: sizes are searched around a preset; plans of a configuration by --ranks N --global-batch N "
                "--bytes 80G"
            )
        name, own, lengths = read(text)
        return layers_of(make(name, own))[0].variant, name, own, lengths
    spec = SEARCHED[kind].name if kind in SEARCHED else kind
    return (kind, *read(f"{spec}:{words}")) if colon else (kind, spec, {}, {})


def _check_layer(args: argparse.Namespace, text: str, name: str, searched: Variant, lengths: Mapping[str, int]) -> None:
    """Raise UsageError for options that one layer does not have, and for one without a length."""
    if args.layers is not None:
        raise UsageError(f"--layers is of a model, and {text} is one layer")
    if args.preset and searched.name != name:
        raise UsageError(f"{text} is a layer of {name}; --attention {args.attention} goes with a preset")
    if not {"seq_len", "tgt_len"} & {*lengths}:
        raise UsageError(f"{text} needs its length; add --seq-len 128")


def _given_lengths(args: argparse.Namespace) -> dict[str, int]:
    return {name: size for name in LENGTHS if (size := getattr(args, name)) is not None}


def _match_target(text: str, config: Config, own: Mapping[str, Any], host: HostModel) -> Case:
    """Return ``config`` in the form in which its alternatives are counted, but for its ``own`` fields."""
    known = SEARCHED.get(layers_of(config)[0].variant)
    defaults = known.search.defaults if known else {}
    form = {field: host.overrides.get(field, value) for field, value in defaults.items() if field not in own}
    config = with_attention(config, **form)
    name = ",".join((text, *(f"{field}={value}" for field, value in form.items())))
    return Case(name, config, resolve_lengths(config, host.lengths))


def _bounds(args: argparse.Namespace, host: HostModel, target: Case | None) -> dict[str, Bound]:
    metrics = args.match_metric or ["macs"]
    tolerance = Fraction(1, 50) if args.tolerance is None else args.tolerance
    if not target and (args.match_metric or args.tolerance is not None):
        raise UsageError("--match-metric and --tolerance need --match-model, the model to match")
    used = {word for word in WORDS if getattr(args, WORDS[word])} | {args.sort, *metrics, *args.maximise}
    if "kv-bytes" in used and (reason := no_cache(host)):
        raise UsageError(f"{host.spec} has no cache to count: {reason}; leave kv-bytes out")
    bounds = {metric: parse(text, metric) for metric in METRICS if (text := getattr(args, metric))}
    if target:
        of_target = costs(target, host.given)
        bounds |= {WORDS[word]: bound_around(of_target[WORDS[word]], tolerance) for word in metrics}
    if not bounds:
        raise UsageError(f"no budget; give one of {', '.join(f'--{word}' for word in WORDS)}, or --match-model")
    return bounds


def plot(path: str, title: str, answer: Answer) -> None:
    """Plot MACs against parameters, coloured by active parameters, with a label at each listed row.

    Raises UsageError and EnvironmentMissing as :func:`figure`.
    """
    found, listed = answer.found, list(answer.listed)
    step = -(-len(found) // MAX_DRAWN)
    unit, per_unit = ("G", 1e9) if found["macs"].max() >= 1e11 else ("M", 1e6)
    macs, params, active = found["macs"] / per_unit, found["params"] / 1e6, found["active_params"] / 1e6
    with figure(path, 9, 6) as (drawn, axes):
        axes.scatter(macs[::step], params[::step], s=4, color="0.8", label="fits")
        shown = axes.scatter(macs[listed], params[listed], c=active[listed], s=80, label="listed front")
        middle = sum(axes.get_xlim()) / 2
        for index in listed:
            text = " ".join(f"{found[letter][index]}{letter}" for letter in answer.host.variant.search.letters)
            # Labels grow towards the middle, so that none leaves the axes.
            side, offset = ("left", 5) if macs[index] < middle else ("right", -5)
            at = (macs[index], params[index])
            axes.annotate(text, at, fontsize=7, xytext=(offset, 5), textcoords="offset points", ha=side)
        drawn.colorbar(shown, label="active parameters (M)")
        axes.set(xlabel=f"MACs ({unit})", ylabel="parameters (M)")
        axes.set_title("\n".join(textwrap.wrap(title, 80)), fontsize=10)
        drawn.legend(loc="outside lower center", ncols=2)
