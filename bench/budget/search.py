"""Search attention sizes under budgets: the host model, the candidates within the bounds, their front and its table."""

import heapq
import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headcount.bench import records
from headcount.bench.accounts import ACCOUNTS, Assumptions, values
from headcount.bench.budget.bounds import NAMES, Bound, feasible_mask
from headcount.bench.budget.candidates import METRICS, WORDS, candidates, costs
from headcount.bench.card_times import kernels_of
from headcount.bench.case import Case, Config, describe_input, layers_of
from headcount.bench.column import Column
from headcount.bench.env import device_name
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Hardware, find_card
from headcount.bench.performance.model import load
from headcount.bench.performance.plan_time import DTYPE
from headcount.bench.performance.vector import Vector, evaluate
from headcount.bench.result import Row, Table
from headcount.bench.variants.variant import Letter, Variant
from headcount.models.configs.base import ModelConfig, as_model
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.registry import ATTENTIONS, MODELS
from headcount.models.configs.targets import format_fields, is_layer, join, length_words

CPU = "cpu"
"""The device of stored latencies by default."""
LAYERS = ("num_layers", "num_encoder_layers", "num_decoder_layers")

COLUMNS = {
    "macs": Column("macs", "MACs", kind="int", of="MACs", priority=0),
    "params": Column("params", "params", kind="int", of="params", priority=1),
    "active_params": Column("active_params", "params\nactive", kind="int", of="params", priority=1),
}


@dataclass(frozen=True)
class HostModel:
    """What has the searched attention, at some input lengths: a preset with some fields changed, or a layer alone.

    ``spec`` is the preset, or the variant of the layer. ``given`` are the assumptions of its cache account, ``stated``
    the sizes of letters that the user fixes.
    """

    variant: Variant
    spec: str
    overrides: Mapping[str, Any]
    lengths: Mapping[str, int | None]
    given: Assumptions = Assumptions()
    stated: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def example(self) -> Case:
        """The model with the variant's example attention. Raises ConfigError where it cannot be built."""
        return Case.of(self.spec, self.changes(self.variant.search.example), self.lengths)

    def changes(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return the fields of the preset or layer that give it an attention of these sizes."""
        return {**self.variant.fields(sizes), **self.overrides}


@dataclass(frozen=True)
class Answer:
    """The candidates within the budgets and the listed part of their front.

    ``ranges``: the tried sizes of each letter; ``bounds``: the budgets by metric; ``found``: all candidates within
    them, with a field for each letter and metric; ``times``: their recorded milliseconds, NaN without a record;
    ``listed``: indices of the listed rows, best first; ``searched``: number of candidates; ``ordered_by``: the metric
    that rows are ordered by first; ``compared``: the letter whose sizes have a front each; ``has_more``: whether these
    have more rows than are listed; ``expected``: milliseconds of a forward pass of the model on a card,
    None without.
    """

    host: HostModel
    ranges: Mapping[str, Sequence[int]]
    bounds: Mapping[str, Bound]
    found: np.ndarray
    times: np.ndarray
    listed: Sequence[int]
    searched: int
    ordered_by: str
    compared: str
    has_more: bool
    expected: np.ndarray | None = None


def preset_for(variant: str, name: str, config: Config) -> tuple[str, dict[str, Any]]:
    """Return a preset with this attention and the fields that make the rest of it ``config``, a change of ``name``.

    Where no preset has this attention in such a model, return ``name`` with the attention exchanged. Of a layer return
    one of this variant, of the same width.
    """
    # The search does not decide about biases: they stay, where both attentions can have them.
    own, other = ({f.name for f in fields(kind)} for kind in (layers_of(config)[0], ATTENTIONS[variant]))
    kept = {name: getattr(layers_of(config)[0], name) for name in {"bias"} & own & other}
    if not isinstance(config, ModelConfig):
        return variant, {"d_model": config.d_model, **kept}
    outer = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in ("attention", "layers")}
    names = [n for n, v in PRESETS.items() if (v["model"], v["attention"]) == (config.variant, variant)]
    if names:
        return names[0], outer
    return name, {"attention": variant, **outer, **kept}


def layer_fields(name: str, layers: int) -> dict[str, int]:
    """Return the fields that give preset ``name`` this many layers, in encoder and decoder each where it has both.

    Raises UsageError for a model without a number of layers.
    """
    model = PRESETS[name]["model"]
    found = {f.name: layers for f in fields(MODELS[model]) if f.name in LAYERS}
    if not found:
        raise UsageError(f"a {model} model has no number of layers; choose another model, or --set its fields")
    return found


def search(
    args: Namespace, host: HostModel, ranges: Mapping[str, Sequence[int]], bounds: Mapping[str, Bound]
) -> Answer:
    """Return the front of the candidates of ``ranges`` within ``bounds``; raise UsageError where none is within.

    ``args`` say of which metrics more is better, the order, the number and the distance of rows, and the records.
    """
    every = candidates(host.variant, ranges, host.example, host.given)
    found = every[feasible_mask(every, bounds)]
    expected = expected_ms(host, found, find_card(args.on)) if args.on else None
    if expected is None:
        times = _times(host, found, args.device or CPU, args.records or records.folders())
    else:
        # times measured on another device cannot be compared with those of the card
        times = np.full(len(found), np.nan)
    by_word = {word: np.ascontiguousarray(found[name]) for word, name in WORDS.items() if name in found.dtype.names}
    order = sorted(by_word, key=lambda word: (word != args.sort, word not in args.maximise, word != "active-params"))
    objectives = [-by_word[word] if word in args.maximise else by_word[word] for word in order]
    if expected is not None:
        # last, as the smallest sizes are the fastest and use the least of a budget
        objectives.append(expected)
        by_word["expected"] = expected
    compared = next((letter for letter in ranges if len(np.unique(found[letter])) > 1), next(iter(ranges)))
    fronts = [
        pareto_front(objectives, times, list(by_word.values()), float(args.min_distance), found[compared] == size)
        for size in np.unique(found[compared])
    ]

    def place(at: int) -> tuple:
        # points with a time are first, in their own order
        return (1, *(column[at] for column in objectives), at) if np.isnan(times[at]) else (0, at)

    rows = heapq.merge(*fronts, key=place) if args.sort else in_turns(fronts, place)
    listed = sorted(islice(rows, args.limit or None), key=place)
    has_more = next(rows, None) is not None
    first = WORDS[order[0]]
    return Answer(host, ranges, bounds, found, times, listed, len(every), first, compared, has_more, expected)


def in_turns(fronts: Iterable[Iterator[int]], key: Callable[[int], Any]) -> Iterator[int]:
    """Yield the first of each front, in the order of ``key``, then the second of each, and so on."""
    fronts = list(fronts)
    while fronts:
        heads = {at: front for front in fronts if (at := next(front, None)) is not None}
        yield from sorted(heads, key=key)
        fronts = list(heads.values())


def expected_ms(host: HostModel, found: np.ndarray, card: Hardware) -> np.ndarray:
    """Return the expected milliseconds of each candidate's forward pass on a card, by the closed form."""
    card.check(DTYPE)
    fitted = load()

    def time(sizes: Mapping[str, Vector]) -> Any:
        case = replace(host.example, sizes=sizes)
        kernels = kernels_of(case, case.ledger, Assumptions()).forward()
        return fitted.expected_us(kernels, card, DTYPE) / 1000

    return evaluate(time, {letter: found[letter] for letter in host.variant.search.letters})


def _times(host: HostModel, found: np.ndarray, device: str, folders: Sequence[Path]) -> np.ndarray:
    """Return each candidate's recorded milliseconds, NaN without a record of such a layer at this length."""
    times = np.full(len(found), np.nan)
    config = as_model(host.example.config)
    letters = {**config.letters(), **config.length_letters(host.example.lengths)}
    tokens = {letters[letter] for letter in ("T", "S") if letter in letters}
    if len(tokens) > 1:
        return times
    names = tuple(host.variant.search.letters)
    stored = records.layer_times(folders, device_name(device), config.attention, tokens.pop(), names)
    for sizes, ms in stored.items():
        same = [found[letter] == size for letter, size in zip(names, sizes, strict=True)]
        times[np.logical_and.reduce(same)] = ms
    return times


def pareto_front(
    objectives: Sequence[np.ndarray],
    times: np.ndarray,
    values: Sequence[np.ndarray],
    min_distance: float,
    members: np.ndarray | None = None,
) -> Iterator[int]:
    """Yield indices of the Pareto front: points with a time, then the others, best first by each objective in turn.

    A point dominates another if it is as good in every objective and better in one; the front is not dominated.
    Less is better in each objective. ``times`` (NaN where unknown) are an objective between two points that have one.
    With a ``min_distance`` above 0 a point without a time is left out where all its ``values`` are within that share
    of those of a point yielded before. With a mask ``members`` only these points of the front are yielded.
    """
    timed = ~np.isnan(times)
    members = np.ones(len(times), dtype=bool) if members is None else members
    yield from (int(i) for i in np.flatnonzero(timed & members) if find_dominating(i, objectives, times) is None)
    pool = np.flatnonzero(~timed & members)
    while len(pool):
        best = pool
        for column in objectives:
            best = best[column[best] == column[best].min()]
        at = int(best[0])
        # A point with a time, one that was left out as too near, or no member may dominate the best one.
        above = find_dominating(at, objectives, times)
        # Points sort after those that dominate them: drop the points that are better than one in no objective.
        drops = at if above is None else above
        left = np.logical_or.reduce([column[pool] < column[drops] for column in objectives])
        if above is None:
            yield from map(int, best[:1] if min_distance else best)
            if min_distance:
                left &= np.logical_or.reduce([np.abs(c[pool] - c[at]) > min_distance * c[at] for c in values])
        pool = pool[left]


def find_dominating(at: int, objectives: Sequence[np.ndarray], times: np.ndarray) -> int | None:
    """Return a point that dominates the one ``at``, or None; an unknown time (NaN) is neither better nor worse."""
    rivals = np.arange(len(times))
    for column in objectives:
        rivals = rivals[column[rivals] <= column[at]]
    better = np.logical_or.reduce([column[rivals] < column[at] for column in objectives])
    found = rivals[(better | (times[rivals] < times[at])) & ~(times[rivals] > times[at])]
    return int(found[0]) if len(found) else None


def no_cache(host: HostModel) -> str | None:
    """Return why the model has no cache, or None where it has one."""
    return values(["kv_bytes"], host.example, host.given)[1].get("kv_bytes")


@dataclass(frozen=True)
class BudgetRow(Row):
    """A listed point.

    Attributes:
        numbers: sizes by letter, and costs.
        ms: recorded milliseconds of the layer; None without a record.
        expected_ms: expected milliseconds of a forward pass of the model; None without a card.
        base, set: the preset and its changed fields that make the model, or the variant and the sizes of a layer.
        input: its lengths.
        target: base, set and input as a TARGET of the commands.
    """

    numbers: Mapping[str, int]
    ms: float | None
    expected_ms: float | None
    base: str
    set: Sequence[str]
    input: Mapping[str, int]
    target: str


def table(args: Namespace, answer: Answer, target: Case | None) -> Table[BudgetRow]:
    """Return a row for each listed point."""
    rows = [_row(answer, index) for index in answer.listed]
    timed = any(row.ms is not None for row in rows)
    columns = []
    for name in answer.found.dtype.names:
        if name in COLUMNS:
            column = COLUMNS[name]
        elif name in METRICS:
            column = ACCOUNTS[name].column(answer.host.given)
        else:
            column = Column(name, name, kind="int", priority=0)
        columns.append(replace(column, value=partial(_number, name)))
    if timed:
        columns.append(Column("ms", "layer", "ms", kind="fixed", digits=3))
    if answer.expected is not None:
        columns.append(Column("expected_ms", "expected", "ms", kind="fixed", digits=4, priority=0))
    columns.append(Column("target", "as a TARGET", priority=2, wraps=24))
    return Table(
        "budget",
        "; ".join(f"{NAMES[metric]} {bound.text()}" for metric, bound in answer.bounds.items()),
        columns,
        rows,
        above=_notes(args, answer, timed, target),
        facts={"bounds": {metric: vars(bound) for metric, bound in answer.bounds.items()}},
    )


def _row(answer: Answer, index: int) -> BudgetRow:
    host, found, ms = answer.host, answer.found, float(answer.times[index])
    numbers = {name: int(found[name][index]) for name in found.dtype.names}
    attention = {letter: numbers[letter] for letter in host.variant.search.letters}
    changed = format_fields(host.spec, host.changes(attention))
    return BudgetRow(
        numbers,
        ms=None if math.isnan(ms) else ms,
        expected_ms=None if answer.expected is None else float(answer.expected[index]),
        base=host.spec,
        set=changed,
        input=dict(host.example.lengths),
        target=join(host.spec, [*changed, *length_words(host.example.lengths)]),
    )


def _number(name: str, row: BudgetRow) -> int:
    return row.numbers[name]


def _notes(args: Namespace, answer: Answer, timed: bool, target: Case | None) -> list[str]:
    host, variant, given = answer.host, answer.host.variant, {text.partition("=")[0] for text in args.range}
    given |= {*host.stated}
    attention = layers_of(host.example.config)[0]
    conditions = variant.search.conditions(variant.search.example, attention)
    sizes = []
    for letter, known in variant.search.letters.items():
        tried = answer.ranges[letter]
        statement = "any integer" if args.all_integers else known.statement
        if letter in given:
            statement = describe_given(letter, tried, known)
        sizes.append(f"{letter} {tried[0]} to {tried[-1]}, {statement}" if len(tried) > 1 else f"{letter} {tried[0]}")
    more = " and of ".join(NAMES[WORDS[word]] for word in args.maximise)
    better = f"more is better of {more}, less of the rest" if more else "less is better"
    near = (
        f" Rows of the same {answer.compared} whose costs are all within {float(args.min_distance):.0%} of one another "
        "are printed once (--min-distance 0 for all)."
    )
    near = near if args.min_distance else ""
    chosen = ""
    if answer.has_more and not args.sort:
        letter = answer.compared
        chosen = (
            f" Of more rows than --limit {args.limit} the best of each {letter} are printed; --sort NAME prints the "
            "first by one cost instead."
        )
    reason = no_cache(host)
    cached = "" if is_layer(host.spec) else " of every decoding attention"
    cache = f"No cache: {reason}." if reason else f"Cache: keys and values of one context{cached}."
    where = "One layer" if is_layer(host.spec) else f"Around {host.spec}"
    timed_too = "" if answer.expected is None else " or in expected time"
    matched = [f"{value:,} {NAMES[metric]}" for metric, value in costs(target, host.given).items()] if target else []
    return [
        *([f"{target.name}: {', '.join(matched)}."] if target else []),
        *filter(None, [variant.search.remark(attention)]),
        f"{where}, input: {describe_input(host.example.lengths)}. Searched: {'; '.join(sizes)}; "
        f"{', '.join(conditions)}: {answer.searched:,} candidates, {len(answer.found):,} within the "
        "budget. --range and --all-integers try other sizes.",
        f"Pareto front: no other sizes are better than a row in one cost{timed_too} without being worse in another "
        f"({better}).{near}{chosen} Best first, by {NAMES[answer.ordered_by]}.",
        cache,
        *_time_notes(args, answer, timed),
    ]


def describe_given(letter: str, tried: Sequence[int], known: Letter) -> str:
    """Return what the sizes of a letter are that --range gives: every integer, or steps, or a list."""
    steps = steps_of(tried)
    if steps == {1}:
        usual = [size for size in known.friendly if tried[0] <= size <= tried[-1]]
        has_step = len(steps_of(known.friendly)) == 1 and len(usual) > 1
        example = f"; {letter}={usual[0]}:{usual[-1]}:{usual[1] - usual[0]} takes {known.statement}" if has_step else ""
        return f"every integer, as --range gives them{example}"
    return f"in steps of {min(steps)}" if len(steps) == 1 else f"{len(tried)} sizes as given"


def steps_of(sizes: Sequence[int]) -> set[int]:
    """Return the distances of neighbouring sizes."""
    return {later - earlier for earlier, later in pairwise(sizes)}


def _time_notes(args: Namespace, answer: Answer, timed: bool) -> list[str]:
    """Return what the times of rows are: recorded ones, expected ones on a card, or none."""
    if args.on:
        card = find_card(args.on)
        each = f"of each of the {len(answer.found):,} candidates within the budget"
        what = "layer" if is_layer(answer.host.spec) else "whole model"
        return [
            f"Time: a forward pass of the {what} on {card.name}, by its closed form, {each}.",
            load().statement(card),
        ]
    if timed:
        return ["Layer: its recorded forward pass by itself, without masks, by its fastest implementation."]
    if args.device is None and not args.records:
        return []
    return [f"No latency record of the {args.device or CPU} here has one of these layers at this length: no times."]
