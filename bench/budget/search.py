"""A search under budgets: the model around the attention, the candidates, what fits, and the front of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headcount.bench.accounts import Assumptions
from headcount.bench.budget.bounds import Bound, feasible
from headcount.bench.budget.candidates import METRICS, Candidates, candidates, costs
from headcount.bench.budget.front import listing
from headcount.bench.case import Case
from headcount.bench.env import device_name
from headcount.bench.errors import UsageError
from headcount.bench.records import layer_times
from headcount.bench.variants.variant import Variant
from headcount.models.configs.base import ModelConfig
from headcount.models.configs.presets import PRESETS, parse_overrides, spelled
from headcount.models.configs.registry import ATTENTIONS, MODELS

LAYERS = ("num_layers", "num_encoder_layers", "num_decoder_layers")


@dataclass(frozen=True)
class Surroundings:
    """The model around the searched attention: a preset with some fields changed, at some input lengths; ``given``
    is what its cache is counted under."""

    variant: Variant
    preset: str
    overrides: Mapping[str, Any]
    lengths: Mapping[str, int | None]
    given: Assumptions = Assumptions()

    @cached_property
    def example(self) -> Case:
        """The model with the variant's example of an attention. ConfigError where it cannot be built."""
        return Case.of(self.preset, self._changes(self.variant.search.example), self.lengths)

    def printed(self, sizes: Mapping[str, int]) -> Case:
        """The model with an attention of these sizes, from the texts that a row prints."""
        return Case.of(self.preset, parse_overrides(self.preset, self.assignments(sizes)), self.lengths)

    def assignments(self, sizes: Mapping[str, int]) -> list[str]:
        """The ``FIELD=VALUE`` texts that make the preset this model."""
        return spelled(self.preset, self._changes(sizes))

    def _changes(self, sizes):
        return {**self.overrides, **self.variant.fields(sizes)}


@dataclass(frozen=True)
class Answer:
    """``found``: every candidate within the budgets; ``times``: of those with a record, else NaN; ``listed``: the
    indices of the listed part of the front, best first; ``searched``: how many candidates there were;
    ``ordered_by``: the metric that comes first in the order."""

    surroundings: Surroundings
    found: Candidates
    times: np.ndarray
    listed: Sequence[int]
    searched: int
    ordered_by: str


def base_for(variant: str, name: str, like: ModelConfig) -> tuple[str, dict[str, Any]]:
    """A preset with this attention and the fields that make the rest of it ``like``, which is a change of ``name``.

    Where no preset has this attention in such a model it is ``name`` with the attention exchanged.
    """
    outer = {
        f.name: getattr(like, f.name) for f in fields(MODELS[like.variant]) if f.name not in ("attention", "layers")
    }
    names = [n for n, v in PRESETS.items() if (v["model"], v["attention"]) == (like.variant, variant)]
    if names:
        return names[0], outer
    own, other = ({f.name for f in fields(config)} for config in (like.attention, ATTENTIONS[variant]))
    # Whether there are biases is no part of the search: they stay, where both can have them.
    return name, {"attention": variant, **outer, **{f: getattr(like.attention, f) for f in {"bias"} & own & other}}


def layer_fields(name: str, layers: int) -> dict[str, int]:
    """The fields that give preset ``name`` this many layers, in encoder and decoder each where it has both.

    UsageError for a model that has no such number.
    """
    model = PRESETS[name]["model"]
    known = {f.name for f in fields(MODELS[model])}
    found = {field: layers for field in LAYERS if field in known}
    if not found:
        raise UsageError(f"a {model} model has no number of layers; choose another model, or --set its fields")
    return found


def search(
    around: Surroundings,
    ranges: Mapping[str, Sequence[int]],
    bounds: Mapping[str, Bound],
    *,
    maximise: Sequence[str],
    first: str | None,
    apart: float,
    limit: int,
    device: str,
    records: Sequence[Path],
) -> Answer:
    """The front of the candidates of ``ranges`` within ``bounds``; UsageError where nothing is within.

    ``maximise`` are the metrics of which more is better, ``first`` the one that rows are ordered by.
    """
    every = candidates(around.variant, ranges, around.example, around.given)
    found = every.select(feasible(every, bounds))
    times = _times(around, found, device, records)
    known = [metric for metric in METRICS if metric in found.costs]
    order = sorted(known, key=lambda metric: (metric != first, metric not in maximise, metric != "active_params"))
    objectives = [-found.costs[m] if m in maximise else found.costs[m] for m in order]
    walk = listing(objectives, times, list(found.costs.values()), apart)
    return Answer(around, found, times, _first(walk, limit), len(every), order[0])


def _first(walk: Iterator[int], limit: int) -> list[int]:
    return [i for _, i in zip(range(limit), walk, strict=False)] if limit else list(walk)


def check(answer: Answer, index: int) -> None:
    """ArithmeticError where the model that a listed row prints does not cost, in plain integers, what the row says."""
    around, sizes = answer.surroundings, answer.found.at(index)
    row = {metric: int(values[index]) for metric, values in answer.found.costs.items()}
    if costs(around.printed(sizes), around.given) != row:
        raise ArithmeticError(f"{sizes}: arrays and integers give different costs")


def _times(around: Surroundings, found: Candidates, device: str, records: Sequence[Path]) -> np.ndarray:
    """Each candidate's recorded milliseconds, NaN where there is no record of such a layer at such a length."""
    times = np.full(len(found), np.nan)
    config = around.example.config
    letters = {**config.letters(), **config.length_letters(around.example.lengths)}
    tokens = {letters[letter] for letter in ("T", "S") if letter in letters}
    if len(tokens) > 1:
        return times
    names = tuple(found.sizes)
    stored = layer_times(records, device_name(device), config.attention, tokens.pop(), names)
    for sizes, ms in stored.items():
        same = [found.sizes[letter] == size for letter, size in zip(names, sizes, strict=True)]
        times[np.logical_and.reduce(same)] = ms
    return times
