"""What counters make of each spelling of a layer, as the cells of a heat map: the error of a reading, or why there is
none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from headcount.bench.table import Row


@dataclass(frozen=True)
class Cell:
    """One counter on one spelling on one device, of ``exact`` multiply-accumulates.

    ``difference``: its reading less ``exact``; None where it failed or refused, and then ``reason`` says why.
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
        """The difference in percent of ``exact``; None without a reading."""
        return None if self.difference is None else Fraction(100 * self.difference, self.exact)


def cells(rows: Iterable[Row]) -> list[Cell]:
    """The cells of the audit's matrix, row after row, and in a row the counters in their order, ``headcount`` first.

    ``rows``: those of the first of the two sections that ``bench.macs --audit`` makes.
    """
    return [_cell(row.values["written"], **record) for row in rows for record in row.records]


def _cell(written: str, *, spelling: str, device: str, counter: str, exact: int, **read) -> Cell:
    # what could not be run at all says so in front of the reason
    reason = (read.get("failed") or "").removeprefix("failed: ")
    difference = None if reason else read["macs"] - exact
    return Cell(spelling, written, device, counter, exact, difference, reason, tuple(read.get("causes", ())))
