"""``headcount fit``: whether a model with its cache, or a training step, fits into the memory of a card."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from math import ceil

from headcount.bench.accounts import RECIPES, Assumptions, NoAccount
from headcount.bench.budget.choice import IDLE, MOST_RANKS, Choice
from headcount.bench.budget.demand import ACTIVATIONS, CACHE, Demand, states
from headcount.bench.card_times import DECODE, FORWARD, PREFILL, TRAINING, TimeRow
from headcount.bench.cli import COUNT, ELEMENT, RATE, Parser, Value, add_output, serve
from headcount.bench.closed_form.case import ConfigurationCase, case_of
from headcount.bench.closed_form.store import one_process
from headcount.bench.closed_form.times import time_table
from headcount.bench.column import BAD, GOOD, Column, bytes_column
from headcount.bench.counting.count import count
from headcount.bench.counting.result import Unknown
from headcount.bench.errors import UsageError
from headcount.bench.hardware import HARDWARE, Hardware, by_name, names
from headcount.bench.performance.plan_time import BETWEEN_HELP, DTYPE, DTYPE_BYTES, in_nodes
from headcount.bench.result import Result, Row, Table, columns_of, format_bytes, shown
from headcount.bench.targets.config_fields import type_bytes
from headcount.bench.targets.target import add_target_options, parse_target
from headcount.formulas.plan import Plan, PlanError
from headcount.formulas.plan import parse as parse_plan
from headcount.models.configs.base import ConfigError
from headcount.models.configs.numbers import TYPE_BITS, parse_bytes
from headcount.models.configs.suggest import choices
from headcount.models.configs.targets import has_closed_form

PROG = "headcount fit"
DESCRIPTION = """Whether a model fits on a card: exit code 0 where it does, else 1.

    headcount fit llama3-8b --on "H100 SXM" --context 8192 --batch-size 32
    headcount fit llama3-8b --on all --weights int4 --cache fp8
    headcount fit llama3-8b --on 80G --train --seq-len 4096 --plan tp=8,sp
    headcount fit llama3-405b --on "H200 SXM" --ranks 16
    headcount fit config.json --on 24G --context 4096
"""
RESERVE = Value("number of bytes", parse_bytes, lambda number: number >= 0)
FITS = "fits"
MOST = 2**30
"""Batches and contexts above are not searched."""
READING = (
    ", without the cache, while the context of one sequence is read, with the logits of the last token alone where "
    "the model's code can do that"
)
"""What activations of a configuration that generates are of."""
Largest = Callable[[int], Mapping[str, int]]
"""Returns the largest batch and context, by name, that fit into so many bytes; those that are known."""
_bytes = partial(bytes_column, priority=0)


@dataclass(frozen=True)
class PartRow(Row):
    """What holds bytes of the card; None where it is not known."""

    part: str = shown(Column, "part")
    bytes: int | None = shown(_bytes, "held")
    share: Fraction | None = shown(Column, "of the card", unit="%", kind="fixed", digits=2)
    total: bool = False
    failures: Sequence[str] = ()


@dataclass(frozen=True)
class CardRow(Row):
    """A card, what is left of its memory, negative where too much is needed, and the most that fits.

    ``fewest_cards``: with how many it fits, under ``plan``; ``tokens_per_s``: the expected tokens of these cards in a
    second of decode or training steps, where they fit. None where that is not known.
    """

    card: str = shown(Column, "card")
    memory_bytes: int = shown(_bytes, "memory")
    needed_bytes: int = shown(_bytes, "needed")
    left_bytes: int = shown(_bytes, "left", sign=True)
    verdict: str = shown(Column, "verdict", priority=0, tones={FITS: GOOD, "does not fit": BAD})
    largest_batch: int | None = shown(Column, "largest\nbatch", kind="int")
    largest_context: int | None = shown(Column, "largest\ncontext", kind="int")
    fewest_cards: int | None = shown(Column, "fewest\ncards", kind="int")
    plan: str | None = shown(Column, "plan")
    tokens_per_s: float | None = shown(Column, "tokens per\nsecond", kind="fixed", digits=0)
    failures: Sequence[str] = ()


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, description=DESCRIPTION)
    out.add_argument("target", metavar="TARGET", help="preset, moa:K=8,E=32,…, config.json, hf:NAME or FILE.py:NAME")
    out.add_argument("--on", metavar="CARD", help=f"all, bytes as 80G, or {', '.join(names())}")
    add_target_options(out.add_argument_group("the model"))
    add = out.add_argument_group("what it does").add_argument
    add(
        "--context",
        type=COUNT,
        metavar="N",
        help="tokens in the cache of each sequence; 16Ki is 16,384, and 16k 16,000 (default: the input's)",
    )
    add("--weights", type=ELEMENT, metavar="TYPE", help="int4, fp8 …: bytes of a weight (default: the model's own)")
    add("--cache", type=ELEMENT, metavar="TYPE", help="of a key or value (default: the model's own)")
    add("--train", action="store_true", help="a training step in place of a cache")
    add("--optimizer", choices=RECIPES, metavar="NAME", default="adamw-mixed", help=", ".join(RECIPES))
    add("--plan", metavar="PLAN", help="tp=8,sp: one rank under a parallel plan")
    add("--ranks", type=COUNT, metavar="N", help="the plan of N ranks that fits and is fastest")
    add("--between-nodes", type=RATE, metavar="N", help=BETWEEN_HELP)
    add("--ranks-per-node", type=COUNT, metavar="N", help="(default: the card's, else 8)")
    add("--reserve", type=RESERVE, metavar="N", default=0, help="bytes kept for CUDA and fragments, 1G (default: 0)")
    add_output(out)
    return out


@one_process()
def command(args: argparse.Namespace) -> Result:
    """Return what the target needs of the card. Raises UsageError for a card, a plan or a target that is none."""
    if not args.on:
        raise UsageError(f"--on CARD is needed: all, bytes as 80G, or {', '.join(names())}")
    cards = _cards(args.on)
    demand = _demand(args)
    parts, largest, counted = _parts_of(demand)
    notes = [*_notes(args, demand, counted)]
    if len(cards) > 1:
        return _of_cards(args, demand, parts, cards, largest, notes)
    ((card, memory),) = cards.items()
    needed, room = sum(parts.values()), memory - args.reserve
    words = f"{args.target}{_under(demand)} needs {format_bytes(needed)} of {format_bytes(room)} on {card}"
    fits = needed <= room
    sentence = f"{words}: fits, {format_bytes(room - needed)} are left." if fits else ""
    sentence = sentence or f"{words}: does not fit, {format_bytes(needed - room)} are too many."
    rows = [PartRow(name, size, _share(size, room)) for name, size in parts.items()]
    rows.append(PartRow("total", needed, _share(needed, room), True, () if fits else [f"{args.target} does not fit"]))
    most = largest(room)
    below = [f"Largest {name}: {number:,}." for name, number in most.items() if number]
    if not fits:
        below += _advice(args, demand, card, most, room)
    times, reason = _times(args, demand, card)
    if reason:
        below.append(f"No times: {reason}.")
    table = Table("fit", f"{args.target} on {card}, {memory:,} bytes", columns_of(PartRow), rows, notes, below)
    table = replace(table, facts={"memory_bytes": memory, "reserve_bytes": args.reserve, "fits": fits, "largest": most})
    return Result([table, *times], lambda: sentence)


def _times(args: argparse.Namespace, demand: Demand, card: str) -> tuple[list[Table[TimeRow]], str]:
    """Return the times on a card, none of a module, or the reason where they are not known."""
    sheet, reason = _sheet(args, demand, card)
    if sheet is None:
        return [], reason
    passes = (TRAINING,) if demand.training else (PREFILL, DECODE, FORWARD)
    try:
        return [time_table(demand.target, sheet, _time_types(args), plan=demand.plan, passes=passes)], ""
    except UsageError as error:
        return [], str(error)


def _time_types(args: argparse.Namespace) -> Assumptions:
    """Return the types of times: bfloat16, but for weights and caches of bytes that are given."""
    return Assumptions(weight_bytes=args.weights, cache_bytes=args.cache, optimizer=args.optimizer)


def _sheet(args: argparse.Namespace, demand: Demand, card: str) -> tuple[Hardware | None, str]:
    """Return the card, in its nodes, on which the demand has times; else None and why, empty of bytes and modules."""
    sheet, target = by_name(card), demand.target
    if sheet is None or demand.is_module:
        return None, ""
    if type_bytes(target.spec, target.dtype) != DTYPE_BYTES:
        return None, f"they are in {DTYPE}, and the model is not; --dtype {DTYPE} has them"
    if DTYPE not in sheet.macs_per_s:
        return None, f"the {DTYPE} rate of {sheet.name} is not known"
    if demand.plan is not None and sheet.link_bytes_per_s is None:
        return None, f"the rate of {sheet.name}'s links in a node is not known"
    return in_nodes(sheet, args.between_nodes, args.ranks_per_node), ""


def _cards(text: str) -> dict[str, int]:
    """Return bytes of memory by card. Raises UsageError for an unknown one, and one whose memory is not known."""
    known = {one.short_name: one.memory_bytes for one in HARDWARE.values() if one.memory_bytes is not None}
    if text == "all":
        return known
    if card := by_name(text):
        if card.memory_bytes is None:
            raise UsageError(f"the memory of {card.name} is not known; give its bytes, as --on 32G")
        return {card.short_name: card.memory_bytes}
    try:
        memory = parse_bytes(text)
    except ValueError:
        raise UsageError(f"unknown card {text!r}; {choices(text, ('all', *known))}, or bytes as 80G") from None
    if memory < 1:
        raise UsageError(f"--on {text}: a card has at least 1 byte; bytes are written as 80G")
    return {"the card": memory}


def _demand(args: argparse.Namespace) -> Demand:
    given = {"weight_bytes": args.weights, "cache_bytes": args.cache, "optimizer": args.optimizer}
    if args.train and (args.context or args.weights or args.cache):
        raise UsageError("--train goes without --context, --weights and --cache: --seq-len sets its tokens")
    target = parse_target(args.target, argparse.Namespace(**{**vars(args), "plan": None, "ranks": None}))
    if has_closed_form(target.spec):
        if target.inputs:
            raise UsageError(f"{target.spec} is no code of yours: its lengths set its inputs")
        if target.dtype and target.dtype not in TYPE_BITS:
            raise UsageError(f"--dtype {target.dtype}: weights are of one of {', '.join(TYPE_BITS)}")
    given["element_bytes"] = type_bytes(target.spec, target.dtype)
    demand = Demand(target, Assumptions(**given), args.train)
    divided = args.plan or args.ranks
    if not divided and (args.between_nodes or args.ranks_per_node):
        raise UsageError("--between-nodes and --ranks-per-node go with --plan or --ranks")
    if divided and demand.is_module:
        raise UsageError("--plan and --ranks divide presets, layers and config.json, whose ranks have a closed form")
    if args.plan and args.ranks:
        raise UsageError("--plan is one plan, and --ranks finds one")
    if args.context:
        length = demand.length if has_closed_form(target.spec) else "seq_len"
        demand = demand.at(**{length: args.context})
    if divided:
        demand = _divided(demand, parse_plan(args.plan or "dp=1"))
    return _of_ranks(args, demand) if args.ranks else demand


def _divided(demand: Demand, plan: Plan) -> Demand:
    """Return the demand under a plan, with the bytes of a configuration's weight where none are given.

    Raises UsageError for weights of several sizes, and what the derivation of a closed form does.
    """
    demand = replace(demand, plan=plan)
    case, given = demand.case, demand.given
    if not isinstance(case, ConfigurationCase) or given.weight_bytes or demand.training:
        return demand
    size = Fraction(case.config.weight_bytes, case.params)
    if size.denominator != 1:
        raise UsageError(f"{case.name}: its weights have several types; --weights TYPE gives the bytes of all")
    return demand if size == given.bytes_each["weight"] else replace(demand, given=replace(given, weight_bytes=size))


def _of_ranks(args: argparse.Namespace, demand: Demand) -> Demand:
    """Return the demand under the plan of --ranks that is proposed. Raises UsageError where none divides the sizes."""
    (card, memory), *others = _cards(args.on).items()
    sheet, _ = _sheet(args, demand, card)
    # of several cards no one decides
    room, sheet = (None, None) if others else (memory - args.reserve, sheet)
    found = Choice(demand, _time_types(args)).of_ranks(args.ranks, room, sheet)
    if found is None:
        raise UsageError(f"no plan of {args.ranks:,} ranks fits the sizes of {demand.target.spec}")
    return found


def _parts_of(demand: Demand) -> tuple[dict[str, int], Largest, str]:
    """Return the bytes of each part, the largest lengths by the memory, and what activations of a run are of, as text.

    By a closed form, else by a count.
    """
    if demand.has_ledger:
        return demand.parts(), _largest_of(demand), ""
    generates = demand.is_file and not demand.training
    if demand.is_file:
        with suppress(UsageError, ConfigError, NoAccount):
            return demand.parts(), _largest_of(demand), READING if generates else ""
    return *_count_parts(demand), ", of one sequence with its cache and all logits" if generates else ""


def _count_parts(demand: Demand) -> tuple[dict[str, int], Largest]:
    """Return the bytes of each part of a module that runs, and the largest batch of a configuration by the memory.

    Raises UsageError where activations or bytes of weights are not known.
    """
    given, needed = demand.given, "saved_bytes" if demand.training else "peak_forward_bytes"
    columns = [needed] if demand.training else ["kv_bytes", needed]
    target, generates = demand.target, demand.is_file and not demand.training
    # the context of one sequence is read at a time, and each has a cache
    batch = target.lengths.get("batch_size", 1) if generates else 1
    one = replace(target, lengths={**target.lengths, "batch_size": 1}) if generates else target
    counted = count(one, columns=columns, given=replace(given, has_run_types=True))
    found: dict[str, int] = {}
    if demand.training:
        found = states(given.optimizer, counted.params, counted.trainable_params)
    elif given.weight_bytes:
        found["weights"] = ceil(given.weight_bytes * counted.params)
    elif counted.weight_bytes is None:
        raise UsageError(f"{target.spec}: the bytes of its weights are not known; --weights TYPE gives them")
    else:
        found["weights"] = counted.weight_bytes
    measured = counted.columns or {}
    # unknown of a model that keeps no cache
    if isinstance(cached := measured.get("kv_bytes"), int):
        found[CACHE] = batch * cached
    activations = measured[needed]
    if isinstance(activations, Unknown):
        raise UsageError(f"{target.spec}: its activations are not known: {activations.reason}")
    found[ACTIVATIONS] = activations

    def largest(memory: int) -> dict[str, int]:
        if not generates or not isinstance(cached, int) or not cached:
            return {}
        others = sum(size for name, size in found.items() if name != CACHE)
        return {"batch": max(0, (memory - others) // cached)}

    return found, largest


def _largest_of(demand: Demand) -> Largest:
    """Return a function of bytes: the largest batch and context, or length, that fit with everything else as it is."""
    plan = demand.plan or Plan()
    # ranks divide the tokens evenly
    unit = plan.cp * (plan.tp if plan.sp and demand.training else 1)

    @cache
    def of_batch(number: int) -> int | None:
        return demand.at(batch_size=number).needed()

    @cache
    def of_length(number: int) -> int | None:
        length = demand.next_known(number * unit)
        return None if length is None else demand.at(**{demand.length: length}).needed()

    def largest(memory: int) -> dict[str, int]:
        found = {"batch": _last_below(of_batch, memory)}
        if {"tgt_len", "seq_len"} & demand.case.lengths.keys():
            found["length" if demand.training else "context"] = _last_below(of_length, memory) * unit
        return found

    return largest


def _last_below(needed: Callable[[int], int | None], memory: int) -> int:
    """Return the largest number up to MOST whose bytes fit; 0 where those of 1 do not.

    Bytes are nearly linear: the line through both ends is tried first, and half of the range after each miss.
    """
    low, high, at_low, at_high = 0, 1, 0, needed(1)
    while at_high is not None and at_high <= memory:
        low, at_low = high, at_high
        if low >= MOST:
            return MOST
        high = 2 * high
        at_high = needed(high)
    is_near = True
    while high - low > 1:
        middle = (low + high) // 2
        if is_near and at_high is not None:
            # below high, whose bytes do not fit
            middle = max(low + 1, low + (memory - at_low) * (high - low) // (at_high - at_low))
        found = needed(middle)
        is_near = not is_near
        if found is not None and found <= memory:
            low, at_low = middle, found
        else:
            high, at_high = middle, found
    return low


def _share(size: int, memory: int) -> Fraction | None:
    return Fraction(100 * size, memory) if memory > 0 else None


def _notes(args: argparse.Namespace, demand: Demand, counted: str) -> Iterator[str]:
    """Yield how each part is counted; ``counted``: what activations of a run are of."""
    closed, is_file = demand.has_ledger, demand.is_file
    lengths = demand.case.lengths if closed else demand.target.lengths
    if lengths:
        sizes = ", ".join(f"{name} {size:,}" for name, size in lengths.items())
        yield f"Input: {sizes}{' of a rank and microbatch' if demand.plan else ''}."
    if demand.plan:
        yield f"The rank that needs most of {demand.plan.ranks:,} under {demand.plan}."
        if demand.chosen:
            yield demand.chosen
    if demand.training:
        recipe = " + ".join(f"{size} {name}" for name, size in RECIPES[args.optimizer].items())
        yield f"Bytes of a trained parameter, {args.optimizer}: {recipe}."
    elif closed or is_file or demand.given.weight_bytes:
        yield f"Of weights and cache: {demand.given.bytes_statement()}"
    else:
        yield "Weights: in their own types."
    if closed:
        reading = "in the largest layer, its input and the last token's logits, while one sequence's context is read"
        what = "of each operation once" if demand.training else reading
        kernels = "as transformers runs them," if is_file else "of fused kernels, which keep nothing else"
        lesser, alone = "", ""
        if demand.alone is not None:
            lesser = "the lesser of two bounds: "
            alone = "; or the most bytes that are alive at once where one card runs the whole model"
        case = demand.case
        if isinstance(case, ConfigurationCase) and demand.training and case.config.results:
            yield "Activations: what the forward pass keeps for the gradients as transformers runs it, in its types."
        else:
            yield f"Activations: {lesser}the results {what}, {kernels} and no T x S numbers{alone}."
    else:
        what = "that the forward pass keeps for the gradients" if demand.training else "that are alive at once at most"
        yield f"Activations: the bytes {what}, as the model runs on meta, in the types of its tensors{counted}."
    if is_file:
        with suppress(UsageError, ConfigError):
            yield from case_of(demand.target, plan=demand.plan).notes
    kept = f"{args.reserve:,} bytes are" if args.reserve else "Nothing is"
    yield f"{kept} kept for CUDA and for fragments of the allocator (--reserve)."


def _choice(args: argparse.Namespace, demand: Demand) -> Choice | None:
    """Return the plans of what has none; None of a module, and of a configuration that plans do not divide."""
    if demand.is_module:
        return None
    try:
        return Choice(_divided(demand, Plan()), _time_types(args))
    except (UsageError, ConfigError, PlanError):
        return None


def _advice(
    args: argparse.Namespace, demand: Demand, card: str, largest: Mapping[str, int], room: int
) -> Iterator[str]:
    """Yield changes of one thing each with which the target fits."""
    choice = None if args.plan else _choice(args, demand)
    if not demand.has_ledger and choice is None:
        return
    own = choice.demand if choice and not demand.has_ledger else demand
    changes: dict[str, Demand] = {}
    if not demand.training:
        narrower = {"fp8": Fraction(1), "int4": Fraction(1, 2)}
        for name, size in narrower.items():
            changes[f"--weights {name}"] = replace(own, given=replace(own.given, weight_bytes=size))
        changes["--cache fp8"] = replace(own, given=replace(own.given, cache_bytes=Fraction(1)))
    fitting = [text for text, one in changes.items() if one.fits(room)]
    fewest = choice and choice.of_fewest(room, _sheet(args, choice.demand, card)[0])
    if fewest:
        fitting.append(f"--plan {fewest.plan}")
    if fitting:
        yield f"It fits with one of: {', '.join(fitting)}."
    elif not any(largest.values()):
        more = "" if choice is None else f" and no plan of up to {MOST_RANKS} cards"
        yield f"No batch, no length, no narrower weights{more} alone makes it fit."
    if fewest:
        yield f"The plan is of the fewest cards. {fewest.chosen}"


def _of_cards(
    args: argparse.Namespace,
    demand: Demand,
    parts: Mapping[str, int],
    cards: Mapping[str, int],
    largest: Largest,
    notes: Sequence[str],
) -> Result:
    """Return a row for each card, with failures where none fits."""
    needed = sum(parts.values())
    fitting = [card for card, memory in cards.items() if needed <= memory - args.reserve]
    failures = [] if fitting else [f"{args.target} fits on no card"]
    is_divided = demand.plan is not None
    choice = Choice(demand, _time_types(args)) if is_divided else _choice(args, demand)
    rows, has_idle = [], False
    for card, memory in sorted(cards.items(), key=lambda item: item[1]):
        room = memory - args.reserve
        most = largest(room)
        fits, rate = needed <= room, None
        fitting_demand = demand if fits else None
        if choice:
            sheet, _ = _sheet(args, demand if fits else choice.demand, card)
            if not fits and not is_divided:
                fitting_demand = choice.of_fewest(room, sheet)
                has_idle |= fitting_demand is not None and choice.is_idle(fitting_demand.plan)
            rate = choice.tokens_per_s(fitting_demand.plan, sheet) if fitting_demand else None
        rows.append(
            CardRow(
                card=card,
                memory_bytes=memory,
                needed_bytes=needed,
                left_bytes=room - needed,
                verdict=FITS if fits else "does not fit",
                largest_batch=most.get("batch") or None,
                largest_context=most.get("context", most.get("length")) or None,
                fewest_cards=fitting_demand.ranks if fitting_demand and not is_divided else None,
                plan=str(fitting_demand.plan) if fitting_demand and not fits else None,
                tokens_per_s=rate,
            )
        )
    rows[-1] = replace(rows[-1], failures=failures)
    held = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    notes = [f"Needed: {held}.", *notes]
    columns = columns_of(CardRow)
    is_timed = any(row.tokens_per_s is not None for row in rows)
    absent = [*(["fewest_cards", "plan"] if is_divided else []), *([] if is_timed else ["tokens_per_s"])]
    columns = [column for column in columns if column.key not in absent]
    if choice and not is_divided and len(fitting) < len(cards):
        notes.append(
            f"Fewest cards: up to {MOST_RANKS}. Plan: of those that fit the one with the "
            f"{choice.what}; where times are not known the one that holds least."
        )
        notes += [IDLE] if has_idle else []
    if choice and is_timed:
        notes.append(f"Tokens per second: expected of a {choice.timed_pass}, not measured, on all cards of the plan.")
    table = Table("fit", f"{args.target}: bytes by card", columns, rows, notes)
    words = f"{args.target}{_under(demand)} needs {needed:,} bytes"
    found = f"{words} and fits on {len(fitting)} of {len(cards)} cards"
    return Result([table], lambda: f"{found}{'' if is_divided else _fewest(rows)}.")


def _under(demand: Demand) -> str:
    return "" if demand.plan is None else f" under {demand.plan}"


def _fewest(rows: Sequence[CardRow]) -> str:
    """Return the smallest card that one fits on, or the fewest cards, as the end of a sentence; empty without any."""
    if fitting := [row.card for row in rows if row.left_bytes >= 0]:
        return f", the smallest {fitting[0]}"
    least = min((row.fewest_cards for row in rows if row.fewest_cards), default=None)
    if least is None:
        return ""
    *cards, last = (f"{row.card} ({row.plan})" for row in rows if row.fewest_cards == least)
    return f"; the fewest are {least:,} of {' or '.join(filter(None, (', '.join(cards), last)))}"


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code."""
    return serve(prog, parser(prog), command, argv)
