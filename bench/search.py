"""A search under budgets: the model around the attention, the candidates, what fits, and the front of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bench.bounds import Bound, feasible
from bench.candidates import METRICS, Candidates, candidates, costs
from bench.env import device_name
from bench.errors import UsageError
from bench.families import Family
from bench.front import listing
from bench.ledgers import ledger_of
from bench.recorded_times import layer_times
from bench.subjects import spelled
from models.config import MODELS, ModelConfig, field_types
from models.presets import PRESETS, preset

LAYERS = ("num_layers", "num_encoder_layers", "num_decoder_layers")


@dataclass(frozen=True)
class Surroundings:
    """The model around the searched attention: a preset with some fields changed, at some input lengths."""

    family: Family
    preset: str
    overrides: Mapping[str, Any]
    lengths: Mapping[str, int]

    def config(self, sizes: Mapping[str, int]) -> ModelConfig:
        """The model with these sizes of its attention."""
        return preset(self.preset, self._changes(sizes))

    def assignments(self, sizes: Mapping[str, int]) -> list[str]:
        """The ``FIELD=VALUE`` texts that make the preset this model."""
        return spelled(self.preset, self._changes(sizes))

    def _changes(self, sizes):
        by_letter = type(preset(self.preset).attention).fields_by_letter
        return {**self.overrides, **{by_letter[letter]: size for letter, size in sizes.items()}}


@dataclass(frozen=True)
class Answer:
    """``found``: every candidate within the budgets; ``times``: of those with a record, else NaN; ``listed``: the
    indices of the listed part of the front, best first; ``searched``: how many candidates there were."""

    surroundings: Surroundings
    found: Candidates
    times: np.ndarray
    listed: Sequence[int]
    searched: int


def base_for(variant: str, like: ModelConfig) -> tuple[str, dict[str, Any]]:
    """A preset with this attention and the fields that make the rest of it ``like``. UsageError where no preset
    has this attention in such a model."""
    names = [n for n, v in PRESETS.items() if (v["model"], v["attention"]) == (like.variant, variant)]
    if not names:
        raise UsageError(f"no preset puts {variant} into a model like this one ({like.variant})")
    outer = [field.name for field in fields(MODELS[like.variant]) if field.name != "attention"]
    return names[0], {name: getattr(like, name) for name in outer}


def layer_fields(name: str, layers: int) -> dict[str, int]:
    """The fields that give preset ``name`` this many layers, in encoder and decoder each where it has both."""
    known = field_types(PRESETS[name]["model"], PRESETS[name]["attention"])
    return {field: layers for field in LAYERS if field in known}


def search(
    around: Surroundings,
    ranges: Mapping[str, Sequence[int]],
    bounds: Mapping[str, Bound],
    *,
    maximise: Sequence[str],
    first: str | None,
    apart: float,
    limit: int,
    device: str = "cpu",
    records: Path | None = None,
) -> Answer:
    """The front of the candidates of ``ranges`` within ``bounds``; UsageError where nothing is within.

    ``maximise`` are the metrics of which more is better, ``first`` the one that rows are ordered by.
    """
    every = candidates(around.family, ranges, around.config(around.family.example), around.lengths)
    found = every.select(feasible(every, bounds))
    times = _times(around, found, device, records)
    order = sorted(METRICS, key=lambda metric: (metric != first, metric not in maximise, metric != "active_params"))
    objectives = [-found.costs[m] if m in maximise else found.costs[m] for m in order]
    walk = listing(objectives, times, list(found.costs.values()), apart)
    return Answer(around, found, times, _first(walk, limit), len(every))


def _first(walk: Iterator[int], limit: int) -> list[int]:
    return [i for _, i in zip(range(limit), walk, strict=False)] if limit else list(walk)


def check(answer: Answer, index: int) -> None:
    """ArithmeticError where the model of a listed row does not cost, in plain integers, what the row says."""
    around = answer.surroundings
    config = around.config(answer.found.at(index))
    row = {metric: int(values[index]) for metric, values in answer.found.costs.items()}
    if costs(ledger_of(config, around.lengths)) != row:
        raise ArithmeticError(f"{answer.found.at(index)}: arrays and integers give different costs")


def _times(around: Surroundings, found: Candidates, device: str, records: Path | None) -> np.ndarray:
    """Each candidate's recorded milliseconds, NaN where there is no record of such a layer at such a length."""
    times = np.full(len(found), np.nan)
    lengths = {size for name, size in around.lengths.items() if name != "batch_size"}
    if records is None or not records.exists() or len(lengths) > 1:
        return times
    letters = tuple(found.sizes)
    config = around.config(around.family.example)
    stored = layer_times(records, device_name(device), config.attention.variant, config.d_model, lengths.pop(), letters)
    for sizes, ms in stored.items():
        same = [found.sizes[letter] == size for letter, size in zip(letters, sizes, strict=True)]
        times[np.logical_and.reduce(same)] = ms
    return times
