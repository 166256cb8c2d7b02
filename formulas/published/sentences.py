"""Check the relations of sentences at the paper's own sizes, and find the lengths at which the result changes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby

import sympy

from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.published import tables as published
from headcount.formulas.published.claims import Cell, Entries, Rows
from headcount.formulas.published.expressions import Relation, relation
from headcount.formulas.published.figures import Cases, evaluate
from headcount.formulas.published.rounding import number
from headcount.formulas.published.tables import DataTable, PublishedTable

PRINTED, EXECUTED = "printed", "executed"


@dataclass(frozen=True)
class Finding:
    """The result of one check: ``form`` PRINTED or EXECUTED, ``values`` of its letters."""

    label: str
    form: str
    relations: tuple[Relation, ...]
    values: Mapping[str, Fraction]

    @property
    def holds(self) -> bool:
        """Whether all relations hold."""
        return not self.failing

    @property
    def failing(self) -> list[Relation]:
        """Return the relations that do not hold."""
        return [relation for relation in self.relations if not relation.holds(self.values)]


def of_rows(
    check: Rows, tables: Mapping[str, PublishedTable | DataTable], executed: Mapping[str, int | Fraction]
) -> Iterator[Finding]:
    """Yield a finding as printed, if all rows print a number, and one as executed, if ``executed``, which is by letter,
    has numbers."""
    texts = {
        letter: _printed(tables[table], name, *(of or [check.of])) for letter, (table, name, *of) in check.rows.items()
    }
    if all(texts.values()):
        printed = {letter: number(str(text)) for letter, text in texts.items()}
        yield Finding(check.label, PRINTED, (check.relation,), printed)
    if executed:
        exact = {letter: Fraction(size) for letter, size in executed.items()}
        yield Finding(check.label, EXECUTED, (check.relation,), exact)


def _printed(table: PublishedTable | DataTable, name: str, of: str) -> str | int | None:
    if isinstance(table, DataTable):
        return next(entry[of] for label, entry in table.labelled() if label == name)
    row, column = table.row(name), table.column(of)
    return row.printed.get(column.name) if column else row.quality.get(of)


def of_entries(check: Entries, entries: Iterable[tuple[str, Mapping[str, str | int]]]) -> Iterator[Finding]:
    """Yield a finding for each entry, given as a label and values by letter."""
    named = {letter for one in check.relations for letter in one.left.letters | one.right.letters}
    for label, values in entries:
        yield Finding(label, PRINTED, check.relations, {letter: Fraction(values[letter]) for letter in named})


def of_cell(check: Cell, cases: Cases) -> Finding:
    """Return the finding on a printed cell: the number by its rule is the printed one where it prints so."""
    table = published.load(check.table)
    row, figure = table.row(check.row), next(one for one in table.columns if one.name == check.figure)
    text, under = row.printed[figure.name], replace(figure, rule=check.rule or figure.rule)
    value, printed = evaluate(row, under, cases, check.set, check.given), number(text)
    by_rule = printed if figure.prints(value, text) else value.low / figure.scale
    return Finding(check.label, PRINTED, (relation("by_rule == printed"),), {"by_rule": by_rule, "printed": printed})


def results_by_length(check: Rows, forms: Mapping[str, Ledger]) -> dict[int, bool]:
    """Return whether the executed relation holds at T = S = 1, and at each length at which that changes.

    ``forms``: the ledger of each letter of the relation.
    """
    T = sympy.Symbol("T", positive=True)
    values = _macs_at(forms, T)
    difference = sympy.Poly(check.relation.right.value(values) - check.relation.left.value(values), T)
    near = {int(sympy.floor(root)) + step for root in difference.real_roots() for step in (0, 1)}
    lengths = sorted({1, *(t for t in near if t > 1)})
    runs = groupby(lengths, lambda t: check.relation.holds(_macs_at(forms, t)))
    return {next(run): holds for holds, run in runs}


def _macs_at(forms: Mapping[str, Ledger], length: Size) -> dict[str, Size]:
    return {letter: sum(entry.with_dims(T=length, S=length).macs for entry in form) for letter, form in forms.items()}
