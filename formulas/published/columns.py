"""Columns of published tables: for each quantity a class that computes it from a model and prints it.

To add a quantity, add a subclass of Column here and its columns in bench/macs/published.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from headcount.formulas import conventions
from headcount.formulas.ledger import OTHER_KINDS
from headcount.formulas.moh import activated_percent, shared_percent
from headcount.formulas.published.impossible import PrintedRow, no_common_rule
from headcount.formulas.published.rounding import UNITS, Printing

Case = Any
"""A model to judge: ``ledger``, its exact ledger, and ``ideal_ledger``, that of its ideal form, None if it has none."""


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
class Baseline:
    """The dense model that a routed row is compared with: a preset and changed fields."""

    preset: str
    overrides: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One printed row; ``cells``: printed texts by quantity, absent if nothing is printed.

    ``quality``: other printed cells by column name. ``rounded_from``: by quantity, the number with more digits, printed
    elsewhere in the paper, from which the cell was rounded again.
    """

    name: str
    preset: str
    verdict: str
    cells: Mapping[str, Any] = field(default_factory=dict)
    adjust: tuple[Adjustment, ...] = ()
    note: str | None = None
    baseline: Baseline | None = None
    quality: Mapping[str, str] = field(default_factory=dict)
    rounded_from: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One quantity of a table: how it is printed, and whether it decides the verdicts of the rows."""

    printing: Printing
    judged: bool = True
    quantity: ClassVar[str]
    account: ClassVar[str] = "size"
    """The property of an entry that an adjustment adds."""
    rule: ClassVar[str] = ""
    """What the column counts, in words."""

    @property
    def statement(self) -> str:
        """The rule and how its values are printed, in words."""
        return f"{self.rule}, {self.printing.statement()}."

    @abstractmethod
    def total(self, case: Case) -> int | Fraction:
        """Return the value of a model under the rule, before rounding."""

    def printed(self, row: Row) -> str | None:
        """Return the row's cell as the paper prints it."""
        return row.cells.get(self.quantity)

    def adjusted(self, adjustment: Adjustment, case: Case) -> int:
        """Return what an adjustment adds to the total."""
        selected = case.ledger.select(conventions.CONVENTIONS[adjustment.select])
        entries = [entry.with_dims(**adjustment.dims) for entry in selected]
        return adjustment.times * sum(getattr(entry, self.account) for entry in entries)

    def contradictions(self, rows: Sequence[Row], cases: Mapping[str, Case]) -> dict[str, str]:
        """Return, by row name, arguments that no rule prints these rows."""
        return {}

    def near_misses(self, row: Row, rows: Sequence[Row], cases: Mapping[str, Case]) -> str:
        """Return, as the end of a sentence, rules that would print the row."""
        return ""


def make(*, quantity: str, judged: bool = True, unit: str, rounding: str, **rule: Any) -> Column:
    """Return the column described by a table's data. Raises KeyError for an unknown quantity, TypeError for a key."""
    kinds = {kind.quantity: kind for kind in Column.__subclasses__()}
    digits = {word: rule.pop(word) for word in ("decimals", "significant", "multiple") if word in rule}
    return kinds[quantity](printing=Printing(unit, rounding, **digits), judged=judged, **rule)


@dataclass(frozen=True, kw_only=True)
class Macs(Column):
    """Multiply-accumulates under a convention of formulas/conventions.py."""

    quantity = "macs"
    convention: str

    @property
    def multiplicity(self):
        """How many times each entry is counted."""
        return conventions.CONVENTIONS[self.convention]

    @property
    def statement(self) -> str:
        counted = conventions.statement(self.multiplicity).rstrip(".")
        return f"{counted}; {self.printing.statement()}."

    def total(self, case: Case) -> int:
        return case.ledger.total_under(self.multiplicity)

    def contradictions(self, rows: Sequence[Row], cases: Mapping[str, Case]) -> dict[str, str]:
        texts = {row.name: self.printed(row) for row in rows if self.printed(row)}
        unit = UNITS[self.printing.unit]
        return no_common_rule(
            [
                PrintedRow(name, int(Decimal(text[:-1]) * unit), self.printing.step(text), cases[name].ledger)
                for name, text in texts.items()
            ]
        )

    def near_misses(self, row: Row, rows: Sequence[Row], cases: Mapping[str, Case]) -> str:
        """Return each kind without MACs that prints ``row`` if counted too, with a row that it misprints."""
        printed = {other.name: self.printed(other) for other in rows if self.printed(other)}
        out = ""

        def text(name: str, kind: str) -> str:
            extra = sum(entry.size for entry in cases[name].ledger if entry.kind == kind)
            return self.printing.like(printed[name]).text(self.total(cases[name]) + extra)

        for kind in OTHER_KINDS:
            if text(row.name, kind) == printed[row.name]:
                broken = next((name for name in printed if text(name, kind) != printed[name]), None)
                fault = f", but {broken} {text(broken, kind)}, not {printed[broken]}" if broken else ""
                out += f"; with each {kind} element billed it prints {printed[row.name]}{fault}"
        return out


@dataclass(frozen=True, kw_only=True)
class Params(Column):
    """Parameters; ``names``: the printed columns, of which the first is judged."""

    quantity = "params"
    account = "params"
    rule = "All parameters, frozen ones included"
    names: Sequence[str] = ("params",)

    def total(self, case: Case) -> int:
        return case.ledger.params

    def printed(self, row: Row) -> str | None:
        return row.cells.get("params", {}).get(self.names[0])


@dataclass(frozen=True, kw_only=True)
class Activated(Column):
    """Heads that a token uses, in percent."""

    quantity = "activated"
    rule = "Heads that a token uses, of all heads of all layers"

    def total(self, case: Case) -> Fraction:
        return activated_percent(case.ledger, case.ideal_ledger or case.ledger)


@dataclass(frozen=True, kw_only=True)
class Shared(Column):
    """Heads that every token uses, in percent of those that a token uses."""

    quantity = "shared"
    rule = "Shared heads, of the heads that a token uses in all layers"

    def total(self, case: Case) -> Fraction:
        return shared_percent(case.ideal_ledger or case.ledger)


@dataclass(frozen=True, kw_only=True)
class Active(Column):
    """Parameters that a token uses, those of the embedding left out."""

    quantity = "active"
    account = "active_params"
    rule = "Parameters that a token uses, without the embedding"

    def total(self, case: Case) -> int:
        return sum(entry.active_params for entry in case.ledger if entry.kind != "embedding")
