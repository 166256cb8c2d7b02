"""Tables of a user's file: its targets counted, and each printed cell judged (formulas/published/own.py)."""

import json
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from headcount.bench.case import LENGTHS as PRESET_LENGTHS
from headcount.bench.case import Case
from headcount.bench.counters.base import CounterError
from headcount.bench.errors import EnvironmentMissing, UsageError, read_file
from headcount.bench.isolated.module_count import count_module
from headcount.bench.isolated.run import InternalError
from headcount.bench.isolated.target import LENGTHS, is_configuration, parse_input, parse_settings
from headcount.bench.isolated.user_code import UserCodeError, check_function, check_target, is_below
from headcount.bench.macs.published import CELL_COLUMNS, row_of
from headcount.bench.macs.results import NOT_COUNTED, verdicts
from headcount.bench.snapshot.snapshot import Target
from headcount.bench.table import Column, Row, Section, Table, plural
from headcount.bench.training_flops import CountedModule, first_input, flops_per_token, input_tokens, module_ledger
from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import Ledger
from headcount.formulas.published import own
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import Row as PrintedRow
from headcount.formulas.published.own import OwnTable
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import PRESETS

OPTIONS = {"--set", "--input", "--trust", "--rule", "--find-rule", "--check"}
"""Options that a table has, as keys or as such."""
ERRORS = (UsageError, CounterError, EnvironmentMissing, InternalError, ValueError)
"""Errors that leave a model without a count."""


class NotCounted(Exception):
    """No model of a table could be counted; the exit code is that of the error of the first."""

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(text)
        self.exit_code = _exit_code(error)


def is_file(text: str) -> bool:
    """Return whether ``text`` names a file of a table."""
    return text.endswith((".toml", ".csv"))


def sections(args: Namespace) -> list[Section]:
    """Return the tables of the files ``args.table``. Raises UsageError, with file and line, for what is wrong there."""
    if others := [name for name in args.table if not is_file(name)]:
        raise UsageError(f"{others[0]} is no file: tables of files and of papers do not go together")
    found: list[Section] = []
    for path in args.table:
        content = read_file(path).decode("utf-8-sig", "replace")
        try:
            table = own.load(path, content, args.rule or "")
            if not args.find_rule:
                table.check_rules()
            table.check_letters()
            models = _Models(table, args.trust, args.find_rule)
            found += _rules_found(table, models) if args.find_rule else [_judged(table, models)]
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
    return found


@dataclass(frozen=True)
class _Model:
    """The ledger of a target; ``lengths`` has its tokens, 1 of a model without them; ``case``: what rules apply to."""

    ledger: Ledger
    lengths: Mapping[str, int]
    case: Case | CountedModule
    length: int | None = None

    @property
    def ideal_ledger(self) -> Ledger | None:
        """The ledger of the ideal form; None of a user module and of a model without one."""
        return getattr(self.case, "ideal_ledger", None)


class _Models:
    """The models of a table, each counted once and all before anything is printed.

    ``failed``: the error of each model that could not be counted, by the number of its row. Raises ValueError, with the
    line, for a wrong name, before anything is counted, and NotCounted with the first error where no model could be
    counted, or not all of those over which to ``find_rule``.
    """

    def __init__(self, table: OwnTable, trust: bool, find_rule: bool) -> None:
        self.folder, self.trust, self._model = Path(table.path).parent, trust, cache(_model_or_error)
        self._inputs = {(row.preset, json.dumps(row.set)): row.input for row in table.rows}
        self.failed: dict[int, Exception] = {}
        # the rule of the table has no part in finding one
        self._rules = {} if find_rule else {name: table.rule_of(table.figures[name]) for name in table.quantities()}
        self._values = {name: figure.value for name, figure in table.figures.items()}
        rows = list(zip(table.lines, table.rows, strict=True))
        for line, row in rows:
            try:
                self._check(row)
            except (UsageError, ValueError) as error:
                raise ValueError(f"line {line}: {_in_table(error, table.path)}") from None
        for number, (_, row) in enumerate(rows):
            try:
                self._count(row)
            except ERRORS as error:
                self.failed[number] = error
        if len(self.failed) == len(rows) or (self.failed and find_rule):
            number, error = min(self.failed.items())
            raise NotCounted(f"{table.path}: line {table.lines[number]}: {_in_table(error, table.path)}", error)

    def counted(self, table: OwnTable) -> OwnTable:
        """Return the table with the rows whose models could be counted."""
        kept = [number for number in range(len(table.rows)) if number not in self.failed]
        rows, lines = (tuple(these[number] for number in kept) for these in (table.rows, table.lines))
        return replace(table, rows=rows, lines=lines)

    def _check(self, row: PrintedRow) -> None:
        """Raise for a name in a row that does not exist, and for a rule that its kind of target does not have."""
        spec = _locate(row.preset, self.folder, self._root)
        for text in row.input.split():
            parse_input(text)
        if spec in PRESETS:
            self._count(row)
            return
        try:
            check_target(spec)
            check_function(spec)
        except UserCodeError as error:
            raise ValueError(f"{row.preset}: {error}") from None
        for rule in self._rules_of(row):
            if rule != "exact" and not CONVENTIONS[rule].backward:
                raise ValueError(_needs_preset(rule, row.preset))

    def _count(self, row: PrintedRow) -> None:
        """Count the model of a row. Raises what the count does, and ValueError for a rule that does not apply."""
        model = self.of(row.preset, row.set)
        for rule in self._rules_of(row):
            if reason := self.why_not(row, rule):
                raise ValueError(reason)
        needs_active = any("N_active" in expression(self._values[name]).letters for name in row.printed)
        if needs_active and model.ledger.active_params is None:
            raise ValueError(f"the active parameters of {row.preset} are not known")

    def _rules_of(self, row: PrintedRow) -> list[str]:
        """Return the rules of the quantities that a row prints."""
        return [self._rules[name] for name in row.printed if name in self._rules]

    @property
    def _root(self) -> str | None:
        """The folder in which functions must be defined; None where any code is trusted."""
        return None if self.trust else str(self.folder.resolve())

    def of(self, target: str, changed: Mapping[str, Any]) -> _Model:
        """Return the model of a target with fields and lengths changed."""
        settings = json.dumps(changed)
        spec = _locate(target, self.folder, self._root)
        found = self._model(spec, settings, self._inputs.get((target, settings), ""), self._root)
        if isinstance(found, Exception):
            raise found
        return found

    def why_not(self, row: PrintedRow, rule: str) -> str:
        """Return why a rule does not apply to the model of a row; empty where it does."""
        case = self.of(row.preset, row.set).case
        if not CONVENTIONS[rule].backward:
            fine = rule == "exact" or isinstance(case, Case)
            return "" if fine else _needs_preset(rule, row.preset)
        if isinstance(case, CountedModule) and not case.tokens:
            return f"rules are per token, and the inputs of {row.preset} have none"
        try:
            flops_per_token(case, CONVENTIONS[rule])
        except UsageError as error:
            return str(error)
        return ""


def _needs_preset(rule: str, target: str) -> str:
    return f"the rule {rule} needs a preset; {target} has rules of training, and exact"


def _in_table(error: Exception, path: str) -> str:
    """Return a message with the keys of a table in place of options, and without the advice of other options."""
    first, *advice = str(error).split("; ")
    takes = [clause for clause in advice if set(re.findall(r"--[a-z-]+", clause)) <= OPTIONS]
    text = "; ".join((first, *takes)).replace("--set", "set")
    where = " in a [[row]] of a TOML file" if path.endswith(".csv") else ""
    text = re.sub(r"--input (\d[\d,]*)", rf'input = "\1"{where}', text)
    return text.replace("--input", f"input{where}")


def _locate(target: str, folder: Path, root: str | None) -> str:
    """Return a target with its file in the folder of the table. Raises ValueError for code not below ``root``."""
    file, colon, name = target.rpartition(":")
    if target in PRESETS or target.startswith("hf:") or not (colon or is_configuration(target)):
        return target
    if is_configuration(target):
        return str(folder / target)
    is_path = file.endswith(".py")
    if root and not (is_path and is_below(folder / file, root)):
        raise ValueError(f"{target} would run code from outside of the table's folder; --trust allows it")
    return f"{folder / file}:{name}" if is_path else target


def _model_or_error(*options: Any) -> "_Model | Exception":
    try:
        return _model(*options)
    except ERRORS as error:
        return error


def _model(spec: str, settings: str, inputs: str, root: str | None) -> _Model:
    changed = json.loads(settings)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in changed.items()}
    # a function of the user may have keywords of these names
    names = {*PRESET_LENGTHS, *LENGTHS} if spec in PRESETS or is_configuration(spec) else ()
    lengths = {name: parse_int(value) for name, value in texts.items() if name in names}
    fields = parse_settings([f"{name}={value}" for name, value in texts.items() if name not in names], spec)
    if spec in PRESETS:
        case = Case.of(spec, fields, lengths)
        length = case.lengths.get("seq_len")
        batch = case.lengths["batch_size"]
        return _Model(case.ledger, {"seq_len": (length or 1) * batch, "batch_size": batch}, case, length)
    for text in inputs.split():
        parse_input(text)
    roots = {spec: root} if root else None
    count = count_module(Target(spec, fields, tuple(inputs.split()), None, lengths), roots=roots)
    tokens, (sizes, _) = input_tokens(count.inputs), first_input(count.inputs)
    samples = sizes[0] if len(sizes) > 1 else 1
    products = module_ledger(count, count.active_params)
    return _Model(products, {"seq_len": tokens or 1, "batch_size": samples}, CountedModule(count, tokens))


def _layout(table: OwnTable, suffix: str, columns: Sequence[Column], note_column: str = "") -> Table:
    name = Path(table.path).stem
    source = [f"Source: {table.source}."] if table.source else []
    return Table(name + suffix, f"{name}: {table.title}", columns, source, note_column)


def _judged(table: OwnTable, models: _Models) -> Section:
    """Return the table with a row for each printed cell, and a sentence to quote for each quantity below."""
    counted = models.counted(table)
    digits = own.with_digits(counted, models.of)
    rows: list[Row] = []
    for number, (line, row) in enumerate(zip(table.lines, table.rows, strict=True)):
        if error := models.failed.get(number):
            rows += _not_counted(table, row, f"line {line}: {_in_table(error, table.path)}", _exit_code(error))
            continue
        for cell in own.judge(replace(digits, rows=(row,), lines=(line,)), models.of, models.why_not):
            place = f"{table.path}: {cell.row.name}, {cell.figure.head}"
            missed = cell.verdict == "no rule found"
            failures = [f"{place}: no rule found that prints {cell.printed}"] if missed else []
            rows.append(replace(row_of(table.path, cell), failures=failures))
    quotes = []
    for name in counted.quantities():
        lengths = [models.of(row.preset, row.set).length for row in counted.rows if name in row.printed]
        quotes.append(digits.quote(name, [length for length in lengths if length]))
    return Section(_layout(table, "", CELL_COLUMNS, "verdict"), rows, below=quotes)


def _not_counted(table: OwnTable, row: PrintedRow, reason: str, code: int) -> Iterator[Row]:
    """Yield a row for each printed cell of a model that could not be counted."""
    for name, text in row.printed.items():
        values = {"row": row.name, "figure": table.figures[name].head, "printed": text, "value": None}
        values["verdict"] = NOT_COUNTED
        failures = [f"{table.path}: {reason}"]
        records = [{**values, "because": reason, "expected_verdict": None}]
        yield Row(values, notes=[reason], records=records, failures=failures, exit_code=code)


def _exit_code(error: Exception) -> int:
    return getattr(error, "exit_code", UsageError.exit_code)


def _rules_found(table: OwnTable, models: _Models) -> Iterator[Section]:
    """Yield, for each quantity, the rules tried with the number of cells that each prints."""
    columns = [
        Column("rule", "rule"),
        Column("prints", "rows\nprinted", kind="int", priority=0),
        Column("deviation", "largest\ndeviation", unit="%", kind="fixed", digits=2, priority=0),
    ]
    for name in table.quantities():
        total = sum(row.printed.get(name, "") not in own.EMPTY for row in table.rows)
        fits = own.find_rule(table, name, models.of, models.why_not)
        rows = [Row(fit, records=[{**fit, "deviation": float(fit["deviation"])}]) for fit in fits]
        below = [_found(table.figures[name].head, fits, total)]
        if total < own.MIN_ROWS:
            below.append(f"{plural(total, 'row')}: below {own.MIN_ROWS} rows a rule may fit by chance.")
        yield Section(_layout(table, f"-{name}", columns), rows, below=below)


def _found(head: str, fits: Sequence[Mapping[str, Any]], total: int) -> str:
    """Return which rules print every row of a column, or the nearest one, as a sentence."""
    if not fits:
        return f"{head}: no rule applies to every row."
    tried = plural(len(fits), "rule")
    if whole := [fit["rule"] for fit in fits if fit["prints"] == total]:
        return f"{head}: {len(whole)} of {tried} tried print every row: {', '.join(whole)}."
    near = min(fits, key=lambda fit: fit["deviation"])
    most = f"most: {fits[0]['rule']}, {fits[0]['prints']} of {total}; " if fits[0]["prints"] else ""
    nearest = f"nearest: {near['rule']}, at most {float(near['deviation']):.2f} % off"
    return f"{head}: none of {tried} tried prints every row; {most}{nearest}."


def result(printed: Sequence[Section], in_flops: bool) -> str:
    """Return the result: the number of cells by verdict, or the rules that print them."""
    judged = [row for section in printed for row in section.rows if "verdict" in row.values]
    if not judged:
        return " ".join(section.below[0] for section in printed)
    missed = any(row.values["verdict"] == "no rule found" for row in judged)
    return verdicts(judged, "printed figure") + "; --find-rule tries all rules" * missed + "."
