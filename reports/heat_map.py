"""The cells of the heat map: each counter's error on each formulation of a layer, or why there is no count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from headcount.bench.table import Row


@dataclass(frozen=True)
class Cell:
    """One counter on one formulation on one device, of ``exact`` multiply-accumulates.

    ``difference``: the reported count minus ``exact``; None with a ``reason`` where the counter failed or refused.
    ``causes``: the calls that sum to the difference, each with ``what``, ``name``, ``place``, ``calls``, ``macs``.
    """

    spelling: str
    written: str
    device: str
    counter: str
    exact: int
    difference: int | None
    reason: str = ""
    causes: tuple[Mapping[str, Any], ...] = ()

    @property
    def error(self) -> Fraction | None:
        """The difference in percent of ``exact``; None without a count."""
        return None if self.difference is None else Fraction(100 * self.difference, self.exact)


def cells(rows: Iterable[Row]) -> list[Cell]:
    """Return the cells row by row, with the counters in their order, ``headcount`` first.

    ``rows``: the rows of the first section of ``bench.macs --audit``.
    """
    return [_cell(row.values["written"], **record) for row in rows for record in row.records]


def _cell(written: str, *, spelling: str, device: str, counter: str, exact: int, **read) -> Cell:
    # a formulation that could not run has a prefix before the reason
    reason = (read.get("failed") or "").removeprefix("failed: ")
    difference = None if reason else read["macs"] - exact
    return Cell(spelling, written, device, counter, exact, difference, reason, tuple(read.get("causes", ())))
