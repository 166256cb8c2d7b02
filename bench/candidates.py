"""All candidates of a search and what each costs, from closed forms over whole arrays at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.errors import UsageError
from bench.families import Family
from bench.ledgers import ledger_of
from formulas.decoding import kept_elements
from formulas.ledger import Ledger
from models.config import ModelConfig

METRICS = ("macs", "params", "active_params", "kv_bytes")
BYTES_PER_VALUE = 2
"""Of a cached key or value: bfloat16."""


def costs(ledger: Ledger) -> dict[str, object]:
    """MACs, parameters, active parameters and cache bytes of a ledger."""
    return {
        "macs": ledger.macs,
        "params": ledger.params,
        "active_params": ledger.active_params,
        "kv_bytes": BYTES_PER_VALUE * kept_elements(ledger),
    }


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


def candidates(
    family: Family, ranges: Mapping[str, Sequence[int]], config: ModelConfig, lengths: Mapping[str, int]
) -> Candidates:
    """Every point of ``ranges`` that exists, with ``config`` around it.

    Counts are exact: UsageError where one could exceed 63 bits.
    """
    largest = ledger_of(config, lengths, {letter: max(sizes) for letter, sizes in ranges.items()})
    if max(costs(largest).values()) >= 2**63:
        raise UsageError("the largest candidate's counts do not fit into 63 bits; give smaller ranges")
    # One axis for each letter: an entry is only as large as the letters that it has.
    axes = dict(zip(ranges, np.ix_(*(np.array(sizes, dtype=np.int64) for sizes in ranges.values())), strict=True))
    shape = tuple(len(sizes) for sizes in ranges.values())
    exists = np.flatnonzero(np.broadcast_to(family.exists(axes), shape))
    if not len(exists):
        raise UsageError(f"no point of the ranges exists: {family.condition} must hold")
    at = np.unravel_index(exists, shape)
    found = costs(ledger_of(config, lengths, axes))
    return Candidates(
        {letter: axis.ravel()[i] for (letter, axis), i in zip(axes.items(), at, strict=True)},
        {metric: np.broadcast_to(values, shape)[at] for metric, values in found.items()},
    )
