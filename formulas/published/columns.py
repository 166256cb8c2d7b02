"""Columns of published tables: what each quantity is of a model, and how a table prints it.

To add a quantity, add its function to QUANTITIES here and its columns in bench/macs/published.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from headcount.formulas.conventions import CONVENTIONS, Rule
from headcount.formulas.moh import activated_percent, shared_percent
from headcount.formulas.published.rounding import Printing

Case = Any
"""A model to judge: ``ledger``, its exact ledger, and ``ideal_ledger``, that of its ideal form, None if it has none."""

QUANTITIES = {
    "params": ("All parameters, frozen ones included", lambda case: case.ledger.params),
    "active": (
        "Parameters that a token uses, without the embedding",
        lambda case: sum(entry.active_params for entry in case.ledger if entry.kind != "embedding"),
    ),
    "activated": (
        "Heads that a token uses, of all heads of all layers",
        lambda case: activated_percent(case.ledger, case.ideal_ledger or case.ledger),
    ),
    "shared": (
        "Shared heads, of the heads that a token uses in all layers",
        lambda case: shared_percent(case.ideal_ledger or case.ledger),
    ),
}
"""Description of each quantity, and its value for a case; ``macs`` follow the convention of a column."""
ACCOUNTS = {"params": "params", "active": "active_params"}
"""The property of an entry that an adjustment of a quantity adds; of other quantities the size."""


@dataclass(frozen=True)
class Adjustment:
    """``times`` the entries selected by ``select`` (formulas/conventions.py), with the sizes ``dims`` replaced.

    ``of``: the adjusted quantity.
    """

    times: int
    select: str
    dims: Mapping[str, int] = field(default_factory=dict)
    of: str = "macs"

    def __str__(self) -> str:
        sizes = ", ".join(f"{letter} = {size}" for letter, size in self.dims.items())
        return self.select.replace("_", " ") + (f" with {sizes}" if sizes else "")


@dataclass(frozen=True)
class Row:
    """One printed row; ``cells``: printed texts by quantity, absent if nothing is printed.

    ``baseline``: the dense model that a routed row is compared with, a ``preset`` and changed fields. ``quality``:
    other printed cells by column name. ``rounded_from``: by quantity, the number with more digits, printed elsewhere in
    the paper, from which the cell was rounded again.
    """

    name: str
    preset: str
    verdict: str
    cells: Mapping[str, Any] = field(default_factory=dict)
    adjust: tuple[Adjustment, ...] = ()
    note: str | None = None
    baseline: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, str] = field(default_factory=dict)
    rounded_from: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One quantity of a table: how it is printed, and whether it decides the verdicts of the rows.

    ``convention``: what a column of MACs counts. ``names``: the printed columns of parameters, the first is judged.
    """

    quantity: str
    printing: Printing
    judged: bool = True
    convention: str = "exact"
    names: Sequence[str] = ("params",)

    @property
    def multiplicity(self) -> Rule:
        """Return how many times each entry is counted."""
        return CONVENTIONS[self.convention]

    @property
    def statement(self) -> str:
        """Describe what the column counts and how its values are printed."""
        if self.quantity == "macs":
            return f"{self.multiplicity.about.rstrip('.')}; {self.printing.statement()}."
        return f"{QUANTITIES[self.quantity][0]}, {self.printing.statement()}."

    def total(self, case: Case) -> int | Fraction:
        """Return the value of a model under the rule, before rounding."""
        if self.quantity == "macs":
            return case.ledger.total_under(self.multiplicity)
        return QUANTITIES[self.quantity][1](case)

    def printed(self, row: Row) -> str | None:
        """Return the row's cell as the paper prints it."""
        cell = row.cells.get(self.quantity)
        return cell.get(self.names[0]) if isinstance(cell, Mapping) else cell

    def adjusted(self, adjustment: Adjustment, case: Case) -> int:
        """Return what an adjustment adds to the total."""
        selected = case.ledger.select(CONVENTIONS[adjustment.select])
        entries = [entry.with_dims(**adjustment.dims) for entry in selected]
        return adjustment.times * sum(getattr(entry, ACCOUNTS.get(self.quantity, "size")) for entry in entries)


def make(*, quantity: str, judged: bool = True, unit: str, rounding: str, **rule: Any) -> Column:
    """Return the column described by a table's data. Raises KeyError for an unknown quantity, TypeError for a key."""
    if quantity not in ("macs", *QUANTITIES):
        raise KeyError(quantity)
    if ("convention" in rule) != (quantity == "macs") or ("names" in rule and quantity != "params"):
        raise TypeError(f"a column of {quantity} takes {'a' if quantity == 'macs' else 'no'} convention")
    digits = {word: rule.pop(word) for word in ("decimals", "significant", "multiple") if word in rule}
    return Column(quantity=quantity, printing=Printing(unit, rounding, **digits), judged=judged, **rule)
