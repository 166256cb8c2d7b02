"""The stored counts of the models of four libraries: rows of models.csv, shares, and what changed between versions."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import headcount
from headcount.bench.output import files
from headcount.bench.output.csv_format import table_as_csv

TABLE = headcount.CHECKOUT / "reports" / "generated" / "models.csv"
PREVIOUS = headcount.CHECKOUT / "reports" / "records" / "previous_models.csv"
"""The rows, and those of the versions before; make models writes both."""
TIME_S, MEMORY_BYTES = 240, 8 * 2**30
"""Limits of the process that counts a model."""
COUNTED, REFUSED, NOT_BUILT, NOT_RUN = "counted", "refused", "not built", "not run"
"""States of a row: with its count; without one; the library itself does not build the model at its defaults, or run it.
"""
SIZES = ("followed", "parameters", "active_parameters", "macs", "cache_per_token", "flop_counter_macs")
"""Columns of integers."""


@dataclass(frozen=True)
class ModelCost:
    """What one forward pass of a model costs at the library's default sizes. What is unknown is None.

    Attributes:
        library: transformers, diffusers, timm or torchvision.
        model: its name in the library: a model_type, a class or a function.
        class_name: the class that was built.
        options: those of the command that counts it, headcount count config.json, or that was refused last.
        followed: how many of them were given because the message of the command before named them.
        inputs: name, sizes and type of each input.
        parameters: parameters, each tensor once.
        active_parameters: parameters that one token uses.
        macs: multiply-accumulates.
        cache_per_token: numbers that one more token of a sequence adds to the cache.
        flop_counter_macs: half of the FLOPs that torch's FlopCounterMode prints.
        differences: operations that make the difference to ``macs``, each with its MACs, or why it prints nothing.
        not_called: parts that did not run, with their parameters, and options that add inputs which the model takes.
        state: COUNTED, REFUSED, NOT_BUILT or NOT_RUN.
        reason: why there is no count.
        versions: of the packages that decide the count.
        source: digest of the code that made the row.
    """

    library: str
    model: str
    class_name: str = ""
    options: str = ""
    followed: int | None = 0
    inputs: str = ""
    parameters: int | None = None
    active_parameters: int | None = None
    macs: int | None = None
    cache_per_token: int | None = None
    flop_counter_macs: int | None = None
    differences: str = ""
    not_called: str = ""
    state: str = COUNTED
    reason: str = ""
    versions: str = ""
    source: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the row."""
        return self.library, self.model

    @property
    def causes(self) -> list[tuple[int, str]]:
        """MACs and description of each of ``differences``."""
        parts = (re.fullmatch(r"([+-]\d+) (.*)", part) for part in self.differences.split("; "))
        return [(int(part[1]), part[2]) for part in parts if part]

    @property
    def size(self) -> tuple[int | None, int | None]:
        """What two versions are compared by."""
        return self.parameters, self.macs


def read(path: Path) -> list[ModelCost]:
    """Return the rows of a file; none of a file that is missing."""
    if not path.exists():
        return []
    rows = csv.DictReader(path.read_text("utf-8").splitlines())
    return [ModelCost(**{k: _integer(text) if k in SIZES else text for k, text in row.items()}) for row in rows]


def _integer(text: str) -> int | None:
    return int(text) if text else None


def write(path: Path, rows: Iterable[ModelCost]) -> None:
    """Write the rows in the order of library and model."""
    names = [one.name for one in fields(ModelCost)]
    files.write(path, table_as_csv([vars(row) for row in sorted(rows, key=lambda row: row.key)], names))


@dataclass(frozen=True)
class Share:
    """How many models of a library are counted, and how many of these by the ``first`` command.

    ``equal``, ``other`` and ``none``: counted models for which FlopCounterMode gives the same MACs, others, and none.
    """

    library: str
    models: int
    built: int
    first: int
    counted: int
    equal: int
    other: int
    none: int

    @property
    def first_percent(self) -> float | None:
        """Those counted by the first command, of those that the library builds; None where it builds none."""
        return 100 * self.first / self.built if self.built else None

    @property
    def percent(self) -> float | None:
        """Counted ones of those that the library builds; None where it builds none."""
        return 100 * self.counted / self.built if self.built else None


def shares(rows: Sequence[ModelCost]) -> list[Share]:
    """Return a share for each library, in the order of their first rows, and one for all."""
    libraries = dict.fromkeys(row.library for row in rows)
    groups = {name: [row for row in rows if row.library == name] for name in libraries}
    return [_share(name, own) for name, own in {**groups, "all": rows}.items()]


def _share(library: str, rows: Sequence[ModelCost]) -> Share:
    states = Counter(row.state for row in rows)
    counted = [row for row in rows if row.state == COUNTED]
    none = sum(row.flop_counter_macs is None for row in counted)
    equal = sum(row.flop_counter_macs == row.macs for row in counted)
    built = len(rows) - states[NOT_BUILT] - states[NOT_RUN]
    first = sum(not row.followed for row in counted)
    return Share(library, len(rows), built, first, len(counted), equal, len(counted) - none - equal, none)


@dataclass(frozen=True)
class Change:
    """A model that is new, is gone, or costs something else than with other versions."""

    what: str
    old: ModelCost | None
    new: ModelCost | None


def changes(old: Iterable[ModelCost], new: Iterable[ModelCost]) -> list[Change]:
    """Return what differs between the rows of two versions, by library and model.

    A model that was counted and is not any more, or the reverse, has changed too: its size is unknown on one side.
    """
    before, after = ({row.key: row for row in rows} for rows in (old, new))
    found = []
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one is None or other is None:
            found.append(Change("new" if one is None else "gone", one, other))
        elif one.size != other.size:
            found.append(Change("changed", one, other))
    return found
