"""Columns of --columns: added to another table, or a table of cases. Importable without torch."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headcount.bench.accounts import (
    ACCOUNTS,
    Assumptions,
    check,
    ideal_statement,
    measured_layers,
    statement,
    values,
)
from headcount.bench.case import Case, describe_input
from headcount.bench.closed_form.case import configuration_case
from headcount.bench.closed_form.rules import model_of
from headcount.bench.column import Column, macs_column
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.result import Row, Table, to_json
from headcount.bench.targets.target import is_configuration
from headcount.bench.training_flops import above_peak, find_rule
from headcount.models.configs.base import ConfigError

IDEAL = "_ideal"
"""The suffix of column keys for the ideal form."""


@dataclass(frozen=True)
class Accounts:
    """Values of --columns of a row by name, and the reason for each that is None."""

    values: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """The reasons, each once, and that a utilisation is more than a device can do."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.missing.items():
            by_reason.setdefault(reason, []).append(name)
        shares = {name: value for name in ("mfu", "hfu") if (value := self.values.get(name)) is not None}
        missing = [f"no {', '.join(names)}: {reason.rstrip('.')}." for reason, names in by_reason.items()]
        return [*missing, *above_peak(shares)]

    def to_json(self) -> dict[str, Any]:
        """Return the values by name, and ``missing``."""
        return {**to_json(self.values), "missing": dict(self.missing)}


def with_accounts(
    table: Table,
    names: Sequence[str],
    given: Assumptions,
    with_ideal: bool = True,
) -> Table:
    """Return ``table`` with the accounts ``names`` of its rows' cases behind its columns.

    ``with_ideal``: where cases have ideal forms, accounts that depend on heads have a second column for the ideal form.
    Notes give the reason for each dash, and the assumptions.
    """
    ideal = ideal_statement(row.case for row in table.rows) if with_ideal else ""
    of_heads = [name for name in names if ideal and ACCOUNTS[name].of_heads]
    columns = [*table.columns]
    for name in names:
        column = account_column(name)
        columns.append(column)
        if name in of_heads:
            key, head = column.key + IDEAL, f"{column.head}\nideal"
            columns.append(replace(column, key=key, head=head, value=partial(_account, key)))
    rows = []
    for row in table.rows:
        found, missing = values(names, row.case, given, row.run if isinstance(row, MemoryRow) else None)
        if isinstance(row.case, Count):
            closed, reasons = _closed_values(row.case, missing, given)
            found |= closed
            missing = {name: reason for name, reason in missing.items() if name not in closed} | reasons
        if of_heads and row.case.ideal:
            of_ideal, reasons = values(of_heads, row.case.ideal, given)
        else:
            of_ideal, reasons = dict.fromkeys(of_heads), dict.fromkeys(of_heads, "every head is used")
        found |= {name + IDEAL: one for name, one in of_ideal.items()}
        missing |= {name + IDEAL: reason for name, reason in reasons.items()}
        rows.append(replace(row, accounts=Accounts(found, missing)))
    cases = [row.case for row in rows]
    ideals = [case.ideal for case in cases if case.ideal] if of_heads else []
    layers = measured_layers(names, [*cases, *ideals])
    above = [*table.above, *filter(None, (statement(names, given, layers), ideal))]
    return replace(table, columns=columns, rows=rows, above=above)


def _closed_values(count: Count, names: Collection[str], given: Assumptions) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the accounts among ``names`` that a count has of closed forms alone, as values and as reasons.

    A configuration has a closed form as well as a run.
    """
    by_rule, missing = _values_by_rule(count, [name for name in names if "rule" in ACCOUNTS[name].needs], given)
    closed, reasons = _closed_alone(count, names, given)
    return by_rule | closed, missing | reasons


def _values_by_rule(count: Count, names: Sequence[str], given: Assumptions) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the accounts of a rule of training that the closed form of a configuration has, and its run has not."""
    model = model_of(count, find_rule(given.rule or "")) if names else count
    return ({}, {}) if model is count else values(names, model, given)


def _closed_alone(count: Count, names: Iterable[str], given: Assumptions) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the accounts among ``names`` that no run has."""
    wanted = [name for name in names if ACCOUNTS[name].is_closed and name not in (count.columns or {})]
    if not wanted or count.target is None or not is_configuration(count.target.spec):
        return {}, {}
    try:
        return values(wanted, configuration_case(count.target), given)
    except (UsageError, ConfigError) as error:
        return dict.fromkeys(wanted), dict.fromkeys(wanted, str(error))


def account_column(name: str) -> Column:
    """Return the column of an account, of rows that have ``accounts``; as one asked for, it is never hidden."""
    return replace(ACCOUNTS[name].column(), value=partial(_account, name), priority=0)


def _account(name: str, row: Any) -> Any:
    return row.accounts.values[name]


def counter_columns(counters: Sequence[str], priority: int) -> list[Column]:
    """Return the columns of what counters report, of rows that have a ``count``."""
    heads = {name: name.replace("-", "\n") for name in counters}
    return [macs_column(name, head, priority=priority, value=partial(_reported, name)) for name, head in heads.items()]


def _reported(counter: str, row: Any) -> int | None:
    return next(tool.macs for tool in row.count.tools if tool.counter == counter)


def of_table(table: Table, names: Sequence[str], given: Assumptions) -> Table:
    """Return ``table`` with its first column and ``names``: columns of the table, or accounts of its rows."""
    own = [column.key for column in table.columns]
    check(names, given, own)
    wanted = [name for name in names if name not in own]
    return selected(with_accounts(table, wanted, given) if wanted else table, names)


def of_comparison(
    tables: Sequence[Table], sides: Sequence[Case | Count], names: Sequence[str], given: Assumptions
) -> list[Table]:
    """Return the tables that have columns of ``names``, with these alone, and the accounts of both sides."""
    check(names, given, [column.key for one in tables for column in one.columns])
    keys = set(names)
    found = [selected(one, names) for one in tables if keys & {column.key for column in one.columns}]
    wanted = [name for name in names if name not in {column.key for one in found for column in one.columns}]
    heading = " and ".join(side.name if isinstance(side, Case) else side.label for side in sides)
    return [*found, table_of(sides, heading, wanted, given)] if wanted else found


def selected(table: Table, names: Sequence[str]) -> Table:
    """Return ``table`` with its first column, then those of ``names`` in their order, none of them hidden."""
    keys = {column.key for column in table.columns}
    first, wanted = table.columns[0].key, [key for name in names for key in (name, name + IDEAL)]
    found = table.only(first, *(key for key in wanted if key in keys and key != first))
    return replace(found, columns=[replace(column, priority=0) for column in found.columns])


@dataclass(frozen=True)
class MemoryRow(Row):
    """A model, or a form of it, with the accounts that the user chooses.

    Attributes:
        row: its name.
        case: its closed form, or its count.
        about: what JSON says of the model.
        accounts: the columns' values.
        run: the count of a closed form's module, where it ran.
    """

    row: str
    case: Case | Count
    about: Mapping[str, Any]
    accounts: Accounts = Accounts()
    run: Count | None = None

    @property
    def notes(self) -> list[str]:
        """The reasons for missing accounts."""
        return self.accounts.notes

    def to_json(self) -> dict[str, Any]:
        """Return ``about`` and the accounts."""
        return {**self.about, **self.accounts.to_json()}


def of_module(count: Count, heading: str, names: Sequence[str], given: Assumptions) -> Table[MemoryRow]:
    """Return a table of one row, with a reason for each column that is not known of a user module."""
    row = MemoryRow(count.name, count, {"model": heading})
    return with_accounts(_memory(heading, Column("row", "model", code=True), [], [row]), names, given, with_ideal=False)


def table_of(
    sides: Sequence[Case | Count],
    heading: str,
    names: Sequence[str],
    given: Assumptions,
    run: Count | None = None,
) -> Table[MemoryRow]:
    """Return a table with a row for each case, and one for its ideal form, if any, and for each count of a module.

    ``run`` is the count of the only case's module, which is not that of the ideal form; with gradients or elementwise
    products the ideal form has no row.
    """
    inputs: dict[str, list[str]] = {}
    rows = []
    for case in sides:
        if isinstance(case, Count):
            rows.append(MemoryRow(case.label, case, {"model": case.label, "input": case.inputs}))
            continue
        inputs.setdefault(describe_input(case.lengths), []).append(case.name)
        forms: dict[str | None, Case] = {None: case}
        # a closed form is that of a forward pass
        is_forward = run is None or not (run.included or run.target and run.target.backward)
        if case.ideal and case.ideal != case and is_forward:
            forms["ideal"] = case.ideal
        for form, one in forms.items():
            label = f"{case.name}, {form}" if form else case.name
            about = {"preset": case.preset, "form": form, "input": dict(case.lengths)}
            rows.append(MemoryRow(label, one, about, run=None if form else run))
    notes = [f"Input of {', '.join(those)}: {lengths}." for lengths, those in inputs.items()]
    cases = [case for case in sides if isinstance(case, Case)]
    notes += dict.fromkeys(note for case in cases for note in case.notes)
    notes += filter(None, [ideal_statement(cases)])
    return with_accounts(_memory(heading, Column("row", "model"), notes, rows), names, given, with_ideal=False)


def _memory(heading: str, first: Column, notes: Sequence[str], rows: Sequence[MemoryRow]) -> Table[MemoryRow]:
    return Table("memory", f"{heading}: memory and decoding", [first], rows, notes, note_column="row")


def sentence(table: Table) -> str:
    """Return the cells of each row by their names in JSON, for a line without the table."""
    first, *others = table.columns
    found = []
    for row in table.rows:
        cells = ", ".join(
            f"{column.key} {column.text(column.read(row))}{' %' * (column.unit == '%')}" for column in others
        )
        found.append(f"{first.text(first.read(row))}: {cells}")
    return f"{'; '.join(found)}."
