"""All candidates of a search and what each costs, from closed forms over whole arrays at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from headcount.bench.accounts import decode_step, kv_bytes
from headcount.bench.budget.families import Family
from headcount.bench.case import ledger_of, model_form, with_attention
from headcount.bench.errors import UsageError
from headcount.formulas.ledger import Size
from headcount.models.configs.base import ConfigError, ModelConfig

METRICS = ("macs", "params", "active_params", "kv_bytes")
MOST = 10_000_000
"""So many candidates and no more: each takes about 150 bytes."""


def costs(config: ModelConfig, lengths: Mapping[str, int], sizes: Mapping[str, Size] | None = None) -> dict[str, Size]:
    """MACs, parameters, active parameters and, of a model that decodes, the cache bytes of one context.

    ``sizes`` replaces letters of the closed form, by arrays too.
    """
    ledger = ledger_of(config, lengths, sizes)
    found = {"macs": ledger.macs, "params": ledger.params, "active_params": ledger.active_params}
    if no_cache(config):
        return found
    context = config.length_letters(lengths)["T"]
    return {**found, "kv_bytes": kv_bytes(decode_step(config, lengths, 1, context, sizes))}


def no_cache(config: ModelConfig) -> str | None:
    """Why a model keeps no cache; None where it decodes."""
    return getattr(model_form(config), "NO_STEP", None)


@dataclass(frozen=True)
class Candidates:
    """``sizes`` by letter and ``costs`` by metric, one element for each point that exists."""

    sizes: Mapping[str, np.ndarray]
    costs: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.costs["macs"])

    def select(self, kept: np.ndarray) -> "Candidates":
        """The candidates where ``kept`` (a mask or indices) says so."""
        return Candidates(
            {letter: sizes[kept] for letter, sizes in self.sizes.items()},
            {metric: values[kept] for metric, values in self.costs.items()},
        )

    def at(self, index: int) -> dict[str, int]:
        """The sizes of one candidate."""
        return {letter: int(sizes[index]) for letter, sizes in self.sizes.items()}


class SeveralCases(Exception):
    """A closed form asked whether a size has some value, which it has at some points and not at others."""

    def __init__(self, mask: np.ndarray) -> None:
        super().__init__("the points belong to different cases of the closed form")
        self.mask = mask


class Points(np.ndarray):
    """A letter's sizes at many points, which a closed form may compare with a number as if they were one.

    ``==`` and ``!=`` are true or false where they are so at every point, and raise SeveralCases otherwise.
    """

    def __eq__(self, other) -> bool:
        same = np.asarray(self) == other
        if same.any() and not same.all():
            raise SeveralCases(same)
        return bool(same.all())

    def __ne__(self, other) -> bool:
        return not self == other


def candidates(
    family: Family, ranges: Mapping[str, Sequence[int]], config: ModelConfig, lengths: Mapping[str, int]
) -> Candidates:
    """Every point of ``ranges`` that exists, with ``config``, which is the family's example, around it.

    Counts are exact: UsageError where one could exceed 63 bits, where no point exists, and for more than MOST.
    """
    largest = costs(config, lengths, {letter: max(sizes) for letter, sizes in ranges.items()})
    if max(largest.values()) >= 2**63:
        raise UsageError("the largest candidate's counts do not fit into 63 bits; give smaller ranges")
    # The points of the letters that depend on one another are one axis, each other letter is an axis of its own:
    # an entry is only as large as the letters that it has.
    coupled = _existing(family, {letter: ranges[letter] for letter in family.coupled}, config)
    free = [letter for letter in ranges if letter not in coupled]
    kept = [_buildable(family, letter, ranges[letter], config) for letter in free]
    shape = (len(coupled[family.coupled[0]]), *map(len, kept))
    if np.prod(shape, dtype=float) > MOST:
        raise UsageError(f"{np.prod(shape):,} candidates are more than {MOST:,}; give smaller ranges")
    _, *axes = np.ix_([0], *(np.array(sizes, dtype=np.int64) for sizes in kept))
    parts = []
    for part in _cases(coupled, dict(zip(free, axes, strict=True)), config, lengths):
        parts.append(Candidates(*({key: _flat(v, part) for key, v in named.items()} for named in part)))
    return Candidates(
        {letter: np.concatenate([part.sizes[letter] for part in parts]) for letter in ranges},
        {metric: np.concatenate([part.costs[metric] for part in parts]) for metric in parts[0].costs},
    )


def _flat(values, part) -> np.ndarray:
    shape = np.broadcast_shapes(*(np.shape(sizes) for sizes in part[0].values()))
    return np.broadcast_to(np.asarray(values), shape).ravel()


def _existing(family: Family, ranges: Mapping[str, Sequence[int]], config: ModelConfig) -> dict[str, np.ndarray]:
    """The points of coupled letters that meet the conditions."""
    if (number := np.prod([len(sizes) for sizes in ranges.values()], dtype=float)) > MOST:
        raise UsageError(f"{int(number):,} points of {', '.join(ranges)} are more than {MOST:,}; give smaller ranges")
    axes = np.ix_(*(np.array(sizes, dtype=np.int64) for sizes in ranges.values()))
    conditions = family.conditions(dict(zip(ranges, axes, strict=True)), config.attention)
    shape = tuple(len(sizes) for sizes in ranges.values())
    at = np.nonzero(np.broadcast_to(reduce(np.logical_and, conditions.values()), shape))
    if not len(at[0]):
        raise UsageError(f"no point of the ranges exists: {', '.join(conditions)} must hold")
    return {letter: axis.ravel()[i] for letter, axis, i in zip(ranges, axes, at, strict=True)}


def _buildable(family: Family, letter: str, sizes: Sequence[int], config: ModelConfig) -> list[int]:
    """The sizes of a letter by itself that the model accepts."""
    kept, reason = [], None
    for size in sizes:
        try:
            with_attention(config, **family.fields({letter: size}))
        except ConfigError as error:
            reason = error
        else:
            kept.append(size)
    if not kept:
        raise UsageError(f"no point of the ranges exists: {reason}")
    return kept


def _cases(
    coupled: Mapping[str, np.ndarray],
    free: Mapping[str, np.ndarray],
    config: ModelConfig,
    lengths: Mapping[str, int],
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Size]]]:
    """Sizes and costs, in as many parts as the closed form has cases among the points."""
    columns = {letter: sizes.reshape(-1, *[1] * len(free)).view(Points) for letter, sizes in coupled.items()}
    sizes = {**columns, **free}
    try:
        found = costs(config, lengths, sizes)
    except SeveralCases as several:
        for mask in (several.mask.ravel(), ~several.mask.ravel()):
            yield from _cases({letter: points[mask] for letter, points in coupled.items()}, free, config, lengths)
    else:
        yield sizes, found
