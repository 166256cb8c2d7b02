"""Tables of a user's file: each printed cell judged, or the rules of each column found."""

import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from headcount.bench.column import Column, plural
from headcount.bench.errors import UsageError, read_file
from headcount.bench.macs.own_models import Models, check_name
from headcount.bench.macs.published import NOT_COUNTED, CellRow, count_verdicts, row_of
from headcount.bench.macs.review import review, shortened
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.bench.targets.process import shared_imports
from headcount.formulas.published import own
from headcount.formulas.published.figures import EMPTY, QUANTITIES, evaluate
from headcount.formulas.published.rounding import fixed
from headcount.formulas.published.rules import Tried, column_units, find_rule, has_no_unit
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import judge, with_digits

STDIN = "-"
"""In place of a file, standard input."""
NEAREST = 3
"""Number of rules shown where none prints a row."""
MIN_ROWS = 4
"""Number of rows below which a rule may fit by chance."""
MIN_ROWS_OF_DIGITS = 8
"""The same of one that prints with other digits only: half of all numbers are each way, 1 of 128 all of 8."""


@dataclass(frozen=True)
class RuleRow(Row):
    """A rule tried on a quantity: the number of rows that it prints, its largest deviation in percent, those it does
    not print (``missed``), and, of the first rule, the failures of rows that could not be counted."""

    rule: str = shown(Column, "rule")
    prints: int = shown(Column, "rows\nprinted", kind="int", priority=0)
    deviation: Fraction = shown(Column, "largest\ndeviation", unit="%", kind="fixed", digits=2, priority=0)
    missed: Sequence[str] = ()
    failures: Sequence[str] = ()
    exit_code: int = 0


@shared_imports()
def judge_files(args: Namespace) -> tuple[list[Table], str]:
    """Return the tables of the files ``args.table``, and the number of cells by verdict or the rules found.

    Raises UsageError, with file and line, for what is wrong there.
    """
    judged: list[Table[CellRow]] = []
    tried: list[tuple[Table[RuleRow], str]] = []
    for path in args.table:
        read = sys.stdin.buffer.read() if path == STDIN else read_file(path)
        content, path = read.decode("utf-8-sig", "replace"), "stdin" if path == STDIN else path
        try:
            table = own.load(path, content, args.rule or "", args.find_rule, partial(check_name, path))
            models = Models(table, path, args.trust, args.find_rule)
            is_toml = path.lower().endswith(".toml")
            table = _with_units(models.table if is_toml else _with_active(models.table, models), models)
            if args.find_rule:
                tried += _rules_found(table, models)
            else:
                judged.append(_judged(table, models))
        except ValueError as error:
            lines = _advised_once(sorted(str(error).split("\n"), key=_line_number))
            raise UsageError("\n".join(f"{path}: {line}" for line in lines)) from None
    if args.find_rule:
        return [rules for rules, _ in tried], " ".join(sentence for _, sentence in tried)
    verdicts = [row.verdict for table in judged for row in table.rows]
    advice = "; --find-rule tries all rules" if "no rule found" in verdicts else ""
    return [*judged], f"{count_verdicts(verdicts, 'printed figure')}{advice}."


def _advised_once(errors: Sequence[str]) -> list[str]:
    """Return errors, of which an advice that several have stands behind the last of them."""
    parts = [error.partition("; ") for error in errors]
    last = {advice: at for at, (*_, advice) in enumerate(parts)}
    return ["".join(part) if last[part[2]] == at else part[0] for at, part in enumerate(parts)]


def _line_number(text: str) -> int:
    """Return the line that an error names; 0 where it names none."""
    found = re.match(r"line (\d+):", text)
    return int(found[1]) if found else 0


def _source(table: PublishedTable) -> list[str]:
    return [f"Source: {table.source}."] if table.source else []


def _judged(table: PublishedTable, models: Models) -> Table[CellRow]:
    """Return the table with a row for each printed cell, and a sentence to quote for each quantity below."""
    counted, quotes = replace(table, rows=models.counted(table.rows)), []
    cells = judge(counted, models.of, models.why_not)
    heads = {column.name: column.head for column in table.columns}
    rows: list[CellRow] = []
    reported: set[str] = set()
    for number, row in enumerate(table.rows):
        if number not in models.failed:
            rows += [row_of(f"{models.path}:", cell) for cell in cells if cell.row is row]
            continue
        reason, code = models.failed[number]
        # one reason of several cells is one failure
        failures = [] if reason in reported else [f"{models.path}: {reason}"]
        reported.add(reason)
        ((name, text),) = row.printed.items()
        rows.append(CellRow(row.name, heads[name], text, None, NOT_COUNTED, reason, failures=failures, exit_code=code))
    counted = with_digits(counted, cells)
    for name, figure in counted.quantities.items():
        lengths = [(row.name, models.length(row)) for row in counted.rows if name in row.printed]
        quotes.append(counted.quote(figure, lengths))
    title, columns = f"{table.name}: {table.title}", columns_of(CellRow)
    uncounted = Counter(row.figure for row in rows if row.verdict == NOT_COUNTED)
    below = [*quotes, *_notes(table, models), *review(cells, uncounted)]
    return Table(table.name, title, columns, rows, _source(table), below, note_column="verdict")


def _with_units(table: PublishedTable, models: Models) -> PublishedTable:
    """Return a table whose rows have the units of columns that print none."""
    figures = {name: replace(one, rule=models.rules.get(name, "")) for name, one in table.quantities.items()}
    rows = [*table.rows]
    for name, unit in column_units(figures.values(), models.counted(table.rows), models.of).items():
        rows = [replace(row, unit=unit) if has_no_unit(row, figures[name]) else row for row in rows]
    return replace(table, rows=tuple(rows))


def _with_active(table: PublishedTable, models: Models) -> PublishedTable:
    """Return a table whose column "active" is of all active parameters, unless more of its numbers are without the
    embedding: the head of a paper does not say which. A table that has both columns keeps both."""
    plain, bare = QUANTITIES["active_params"], QUANTITIES["active"]
    if not {bare.name} <= table.quantities.keys() <= {*QUANTITIES} - {plain.name}:
        return table

    def prints(table: PublishedTable, name: str) -> int:
        rows = models.counted(_with_units(table, models).rows)
        cells = [row for row in rows if row.printed.get(name, "") not in EMPTY]
        figure = table.quantities[name]
        return sum(figure.prints(evaluate(row, figure, models.of), row.number(figure)) for row in cells)

    columns = [plain if one.name == bare.name else one for one in table.columns]
    rows = [
        replace(row, printed={plain.name: row.printed[bare.name]}) if bare.name in row.printed else row
        for row in table.rows
    ]
    other = replace(table, columns=tuple(columns), rows=tuple(rows))
    return other if prints(other, plain.name) >= prints(table, bare.name) else table


def _notes(table: PublishedTable, models: Models) -> list[str]:
    """Return, of each column that prints no unit, which one it is in, which column is an input, and the columns that
    are not judged."""
    has_lengths = any(map(models.is_of_column, table.rows))
    sides = [head for head in table.ignored if models.sides and own.is_one_of(head, own.SIDES)]
    lengths = [head for head in table.ignored if has_lengths and own.is_one_of(head, own.LENGTHS)]
    others = [head for head in table.ignored if head not in (*sides, *lengths)]
    heads = {column.name: column.head for column in table.columns}
    # the first row of a column last: it replaces the others
    cells = [(*cell, row.unit) for row in reversed(table.rows) for cell in row.printed.items() if row.unit]
    of_units = {name: f"{heads[name]} are printed in {unit}: {text} is {text}{unit}." for name, text, unit in cells}
    notes = [*of_units.values()]
    if models.own_lengths:
        notes.append(f"Without a T, a preset has its own: {shortened([*models.own_lengths])}.")
    if sides:
        inputs = shortened([f"1,3,{side},{side}" for side in sorted(models.sides)], " or ")
        notes.append(f"The input of code that has none is of the column {' or '.join(sides)}: {inputs}.")
    if lengths:
        notes.append(f"T is of the column {lengths[0]}.")
    if others:
        notes.append(f"Not judged, as no quantities: {', '.join(others)}.")
    return notes


def _rules_found(table: PublishedTable, models: Models) -> Iterator[tuple[Table[RuleRow], str]]:
    """Yield, for each quantity, the rules tried with the number of cells that each prints, and a sentence."""
    errors = [*dict(models.failed.values()).items()]
    failures = [f"{models.path}: {text}" for text, _ in errors]
    counted = replace(table, rows=models.counted(table.rows))
    for name, figure in counted.quantities.items():
        rows = tuple(row for row in counted.rows if row.printed.get(name, "") not in EMPTY)
        tried = find_rule(figure, rows, models.of, models.why_not)
        below = []
        if tried and tried[0].missed:
            below.append(f"Not printed by {tried[0].rule}: {shortened(tried[0].missed)}.")
        whole = [one for one in tried if one.prints == len(rows)]
        if len(rows) < MIN_ROWS:
            below.append(f"Only {plural(len(rows), 'row')}: a rule may fit by chance.")
        elif len(rows) < MIN_ROWS_OF_DIGITS and whole and all(one.digits for one in whole):
            below.append(f"Only {plural(len(rows), 'row')}: digits that are {whole[0].digits} may fit by chance.")
        shown = [one for one in tried if one.prints] or sorted(tried, key=lambda one: one.deviation)[:NEAREST]
        if others := len(tried) - len(shown):
            below.append(f"{plural(others, 'other rule')} tried {'prints' if others == 1 else 'print'} no row.")
        below += [*_notes(replace(table, rows=rows), models), *(f"Not counted: {text}." for text, _ in errors)]
        found = [RuleRow(one.rule, one.prints, one.deviation, one.missed) for one in shown]
        if errors and found:
            found[0] = replace(found[0], failures=failures, exit_code=errors[0][1])
            failures, errors = [], []
        title = f"{table.name}: {table.title}, {figure.head}"
        yield (
            Table(f"{table.name}-{name}", title, columns_of(RuleRow), found, _source(table), below),
            _found(figure.head, tried, len(rows)),
        )


def _found(head: str, tried: Sequence[Tried], total: int) -> str:
    """Return which rules print every row of a column, or the nearest one, as a sentence."""
    if not tried:
        return f"{head}: no rule applies to every row."
    number = plural(len(tried), "rule")
    if whole := [one.rule for one in tried if one.prints == total]:
        return f"{head}: {len(whole)} of {number} tried print every row: {', '.join(whole)}."
    best, near = tried[0], min(tried, key=lambda one: one.deviation)
    most = f"most: {best.rule}, {best.prints} of {total}; " if best.prints else ""
    nearest = f"nearest: {near.rule}, at most {fixed(near.deviation, 2)} % off"
    return f"{head}: none of {number} tried prints every row; {most}{nearest}."
