"""Tables of a user's file: its targets counted, and each printed cell judged (formulas/published/own.py)."""

import json
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

from headcount.bench.case import Case
from headcount.bench.column import Column, plural
from headcount.bench.counters.base import CounterError
from headcount.bench.counting.count import count
from headcount.bench.counting.result import Count
from headcount.bench.errors import EnvironmentMissing, UsageError, read_file
from headcount.bench.macs.published import NOT_COUNTED, CellRow, as_texts, count_verdicts, row_of
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.bench.targets.process import InternalError
from headcount.bench.targets.target import is_configuration, parse_input, parse_target
from headcount.bench.targets.user_code import (
    INPUT_ADVICE,
    InstalledModel,
    UserCodeError,
    check_function,
    check_target,
    is_below,
)
from headcount.bench.training_flops import flops_per_token, module_ledger
from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import Entry, Ledger, counted_weights
from headcount.formulas.published import own
from headcount.formulas.published.figures import (
    EMPTY,
    FORWARD_COSTS,
    HEADS,
    LAST_ZEROS,
    LETTERS,
    QUANTITIES,
    WEIGHTS,
    evaluate,
)
from headcount.formulas.published.figures import Row as PrintedRow
from headcount.formulas.published.rounding import fixed
from headcount.formulas.published.rules import Tried, column_units, find_rule, has_no_unit
from headcount.formulas.published.tables import PublishedTable, check, read_each
from headcount.formulas.published.verdicts import Judged, judge, with_digits
from headcount.models.configs.targets import has_closed_form, is_layer, make, split, split_lengths

STDIN = "-"
"""In place of a file, standard input."""
NEAREST = 3
"""Number of rules shown where none prints a row."""
DIGITS = {LAST_ZEROS: "with last zeros that are no digits", "rounded half up": "rounded"}
"""Words of a review for how numbers are printed, where they are others than those of a verdict."""
MIN_ROWS = 4
"""Number of rows below which a rule may fit by chance."""
MIN_ROWS_OF_DIGITS = 8
"""The same of one that prints with other digits only: half of all numbers are each way, 1 of 128 all of 8."""
OPTIONS = {"--set", "--input", "--trust", "--rule", "--find-rule", "--check", "--list"}
"""Options that a table has, as keys or as such."""
INPUT = "--input"
"""The key of a row's input among its fields: rows of one model may have several."""
SIDE = "--side"
"""The key of the side of a row's images."""
QUANTIZATION = {"quantization_config", "compression_config"}
"""Parts of a configuration that are no models."""
SHORT = 128
"""A sequence length at which parameters are counted: no length changes them."""
ERRORS = (UsageError, UserCodeError, CounterError, EnvironmentMissing, InternalError, ValueError)
"""Errors that leave a model without a count."""


class NotCounted(Exception):
    """No model of a table could be counted; the exit code is that of the error of the first."""

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(text)
        self.exit_code = _exit_code(error)


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


def judge_files(args: Namespace) -> tuple[list[Table], str]:
    """Return the tables of the files ``args.table``, and the number of cells by verdict or the rules found.

    Raises UsageError, with file and line, for what is wrong there.
    """
    judged: list[Table[CellRow]] = []
    tried: list[Table[RuleRow]] = []
    sentences: list[str] = []
    for path in args.table:
        read = sys.stdin.buffer.read() if path == STDIN else read_file(path)
        content, path = read.decode("utf-8-sig", "replace"), "stdin" if path == STDIN else path
        try:
            known = partial(_check_target, path)
            table = own.load(path, content, args.rule or "", args.find_rule, known)
            rows = read_each([("", partial(_with_input, path, row)) for row in table.rows])
            table = replace(table, rows=tuple(rows))
            models = _Models(table, path, args.trust, args.find_rule)
            table = _with_units(table if path.lower().endswith(".toml") else _with_active(table, models), models)
            if not args.find_rule:
                judged.append(_judged(table, models))
                continue
            for rules, sentence in _rules_found(table, models):
                tried.append(rules)
                sentences.append(sentence)
        except ValueError as error:
            lines = sorted(str(error).split("\n"), key=_line_number)
            raise UsageError("\n".join(f"{path}: {line}" for line in lines)) from None
    if args.find_rule:
        return tried, " ".join(sentences)
    return judged, _sentence([row.verdict for table in judged for row in table.rows])


def _with_input(path: str, row: PrintedRow) -> PrintedRow:
    """Return a row whose input, or the side of whose images, is one of its fields, and so is its sequence length.

    Raises ValueError for a length that is another than that of the target.
    """
    if row.length and _takes_length(_locate(row.target, Path(path).parent, None)):
        given = _given_lengths(row.set)
        what = f"T is {', '.join(map(str, given.values()))} in the target and {row.length} in a column"
        check({*given.values()} <= {row.length}, f"line {row.line}: {row.target}: {what}")
        row = row if given else replace(row, set={**row.set, "seq_len": row.length})
    if row.input:
        return replace(row, set={**row.set, INPUT: own.input_of(row.input)})
    return replace(row, set={**row.set, SIDE: row.side}) if row.side else row


def _given_lengths(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return the lengths of sequences among the fields of a row."""
    _, lengths = split_lengths([f"{name}={text}" for name, text in _key(fields)])
    return {name: lengths[name] for name in ("seq_len", "src_len", "tgt_len") if name in lengths}


def _takes_length(spec: str) -> bool:
    """Return whether a target has a sequence length that is free."""
    name, _ = split(spec)
    if not has_closed_form(name):
        return spec.startswith("hf:") or _is_decoder(spec)
    return is_layer(name) or len(make(name, {}).lengths) > 1


def _is_decoder(spec: str) -> bool:
    """Return whether a target is the configuration of a model that reads text and nothing else, and needs a length."""
    if not is_configuration(spec) or spec.startswith("hf:"):
        return False
    with suppress(OSError, ValueError):
        config = json.loads(Path(spec).read_bytes())
        names = config.get("architectures") or ()
        parts = [name for name, value in config.items() if name.endswith("_config") and isinstance(value, dict)]
        return bool(names) and all(name.endswith("ForCausalLM") for name in names) and {*parts} <= QUANTIZATION
    return False


def _line_number(text: str) -> int:
    """Return the line that an error names; 0 where it names none."""
    found = re.match(r"line (\d+):", text)
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class _Module:
    """A counted target: the ledger of its products and parameters, and its tokens, 1 of a model without them.

    ``target_tokens``: the same, None of a model without them.
    """

    ledger: Ledger
    tokens: int
    samples: int
    counted: Count
    target_tokens: int | None
    length: int | None = None
    ideal_ledger: Ledger | None = None


class _Models:
    """The models of a table, each counted once and all before anything is printed.

    ``failed``: the error of each model that could not be counted, by the number of its row. Raises ValueError, with the
    line, for wrong names, before anything is counted, and NotCounted with the first error where no model could be
    counted.
    """

    def __init__(self, table: PublishedTable, path: str, trust: bool, find_rule: bool) -> None:
        self.path, self.folder, self.trust = path, Path(path).parent, trust
        self._model = cache(_model_or_error)
        self._figures, self._columns = table.quantities, {column.name: column for column in table.columns}
        # the rule of the table has no part in finding one
        self.rules = {} if find_rule else {name: table.rule_of(one) for name, one in self._figures.items()}
        self.failed: dict[int, Exception] = {}
        self.with_side: set[tuple[str, int]] = set()
        self.own_lengths: dict[str, None] = {}
        bare: dict[str, str] = {}
        read_each([("", partial(self._check, row)) for row in table.rows])
        for number, row in enumerate(table.rows):
            package = "" if row.input or row.side else _package(row.target)
            if (first := bare.get(package, row.target)) != row.target:
                self.failed[number] = UserCodeError(f"{row.target}, as {first}, has no inputs; {INPUT_ADVICE}")
                continue
            try:
                self._count(row)
            except ERRORS as error:
                self.failed[number] = error
                # another of its package need not be built to fail so
                if package and INPUT_ADVICE in str(error):
                    bare[package] = row.target
        if len(self.failed) == len(table.rows):
            texts = [f"{path}: {self.message(table.rows[number], error)}" for number, error in self.failed.items()]
            raise NotCounted("\n".join(dict.fromkeys(texts)), self.failed[0])

    def counted(self, rows: Sequence[PrintedRow]) -> tuple[PrintedRow, ...]:
        """Return those of the ``rows`` of the table whose model could be counted."""
        return tuple(row for number, row in enumerate(rows) if number not in self.failed)

    def message(self, row: PrintedRow, error: Exception) -> str:
        """Return an error of a row with its line, in the words of a table."""
        return f"line {row.line}: {_in_table(error, self.path)}"

    def _check(self, row: PrintedRow) -> None:
        """Raise ValueError, with the line, for a name in a row that does not exist, and for a rule that its kind of
        target does not have."""
        try:
            self._check_names(row)
        except (UsageError, ValueError) as error:
            raise ValueError(self.message(row, error)) from None

    def _check_names(self, row: PrintedRow) -> None:
        spec = _locate(row.target, self.folder, self._root)
        for text in own.input_of(row.input).split():
            try:
                parse_input(text)
            except UsageError as error:
                raise ValueError(f"input {row.input!r}: {str(error).removeprefix(f'--input {text}: ')}") from None
        if _has_closed_form(spec):
            self._count(row)
            return
        if _is_decoder(spec) and self._of_length(row) and not (row.input or _given_lengths(row.set)):
            raise _needs_length(row.target, _key(row.set))
        try:
            check_target(spec)
            check_function(spec)
        except UserCodeError as error:
            raise ValueError(f"{row.target}: {error}") from None
        for rule in self._rules_of(row):
            if _is_of_presets(rule):
                raise ValueError(_needs_preset(rule, row.target))

    def _count(self, row: PrintedRow) -> None:
        """Count the model of a row. Raises what the count does, and ValueError for a rule that does not apply."""
        model, without_length = self._found(row.target, row.set)
        if without_length and self._of_length(row):
            raise without_length
        if isinstance(model, Case) and self._of_length(row) and not _given_lengths(row.set):
            lengths = {name: size for name, size in model.lengths.items() if name != "batch_size"}
            words = [f"{'T' if name == 'seq_len' else name} = {size:,}" for name, size in lengths.items()]
            self.own_lengths |= {f"{row.name} at {', '.join(words)}": None} if words else {}
        for rule in self._rules_of(row):
            if reason := self.why_not(row, rule):
                raise ValueError(reason)
        needs_active = any("N_active" in one.letters for name, one in self._figures.items() if name in row.printed)
        if needs_active and model.ledger.active_params is None:
            raise ValueError(f"the active parameters of {row.target} are not known")
        self._check_heads(row, model)
        of_tokens = [name for name in row.printed if name.endswith("_per_token") and name in FORWARD_COSTS]
        if of_tokens and model.target_tokens is None:
            raise ValueError(f"{of_tokens[0]}: the input of {row.target} has no tokens")

    def _check_heads(self, row: PrintedRow, model: Case | _Module) -> None:
        """Raise ValueError where a row prints a percentage of heads that its model does not have."""
        for name in row.printed:
            for letter in self._columns[name].letters & HEADS:
                try:
                    LETTERS[letter](model.ledger, model, CONVENTIONS["exact"])
                except ValueError as error:
                    raise ValueError(f"{name} is a percentage of heads, and {row.target} has {error}") from None

    def _of_length(self, row: PrintedRow) -> bool:
        """Return whether a length changes the number of a row."""
        return any(self._columns[name].letters & LETTERS.keys() - WEIGHTS - HEADS for name in row.printed)

    def _rules_of(self, row: PrintedRow) -> list[str]:
        """Return the rules of the quantities that a row prints."""
        return [self.rules[name] for name in row.printed if name in self.rules]

    @property
    def _root(self) -> str | None:
        """The folder in which functions must be defined; None where any code is trusted."""
        return None if self.trust else str(self.folder.resolve())

    def of(self, target: str, changed: Mapping[str, Any]) -> Case | _Module:
        """Return the model of a target with fields and lengths changed."""
        return self._found(target, changed)[0]

    def _found(self, target: str, changed: Mapping[str, Any]) -> tuple[Case | _Module, Exception | None]:
        """Return the model of a target, and the error where it is one of SHORT because its length is missing."""
        spec, settings = _locate(target, self.folder, self._root), _key(changed)
        inputs = changed.get(INPUT, "")
        of_side = "1,3,{0},{0}".format(changed[SIDE]) if SIDE in changed and not inputs else ""
        if of_side and _package(target):
            inputs = of_side
        model = self._model(spec, settings, inputs, self._root)
        # a function of a file may return inputs
        if of_side and isinstance(model, Exception) and INPUT_ADVICE in str(model):
            inputs = of_side
            model = self._model(spec, settings, inputs, self._root)
        if of_side and inputs:
            self.with_side.add((target, changed[SIDE]))
        if not isinstance(model, Exception):
            return model, None
        _, lengths = split_lengths([f"{name}={text}" for name, text in settings])
        if not lengths.keys() - {"batch_size"} and (_has_closed_form(spec) or is_configuration(spec)):
            short = self._model(spec, (*settings, ("seq_len", str(SHORT))), inputs, self._root)
            if not isinstance(short, Exception):
                return short, _needs_length(target, settings)
        raise model

    def length(self, row: PrintedRow) -> int | None:
        """Return the sequence length of a row's model; None of one that has none."""
        if length := self.of(row.target, row.set).length:
            return length
        spec = _locate(row.target, self.folder, self._root)
        words = [f"{name}={text}" for name, text in _key(row.set)]
        return split_lengths(words)[1].get("seq_len") if is_configuration(spec) else None

    def why_not(self, row: PrintedRow, rule: str) -> str:
        """Return why a rule does not apply to the model of a row; empty where it does."""
        model = self.of(row.target, row.set)
        if isinstance(model, _Module) and _is_of_presets(rule):
            return _needs_preset(rule, row.target)
        if not rule or not CONVENTIONS[rule].backward:
            return ""
        if isinstance(model, _Module) and not model.counted.tokens:
            return f"rules are per token, and the inputs of {row.target} have none"
        try:
            flops_per_token(model.counted if isinstance(model, _Module) else model, CONVENTIONS[rule])
        except UsageError as error:
            return str(error)
        return ""


def _needs_length(target: str, settings: Sequence[tuple[str, str]]) -> ValueError:
    words = ",".join((target, *(f"{name}={text}" for name, text in settings if not name.startswith("-")), "T=1024"))
    return ValueError(f'{target} needs a length; write the target "{words}"')


def _package(target: str) -> str:
    """Return the installed package whose code a target runs; empty for any other target."""
    module, colon, _ = target.rpartition(":")
    is_code = colon and not _has_closed_form(target) and not target.startswith("hf:") and not is_configuration(target)
    return module.partition(".")[0] if is_code and not module.endswith(".py") else ""


def _is_of_presets(rule: str) -> bool:
    """Return whether a rule needs the paths of a closed form: one of a forward pass that is not exact."""
    return rule not in ("", "exact") and not CONVENTIONS[rule].backward


def _needs_preset(rule: str, target: str) -> str:
    return f"the rule {rule} needs a preset; {target} has rules of training, and exact"


def _in_table(error: Exception, path: str) -> str:
    """Return a message with the keys of a table in place of options, and without the advice of other options."""
    # without the traceback of the user's lines
    first, *advice = str(error).partition("\nTraceback ")[0].split("; ")
    takes = [clause for clause in advice if set(re.findall(r"--[a-z-]+", clause)) <= OPTIONS]
    text = "; ".join((first, *takes)).replace("--set", "set")
    if path.lower().endswith(".toml"):
        return re.sub(r"--input (\d[\d,]*)", r'input = "\1"', text).replace("--input", "input")
    return re.sub(r"--input (\d[\d,]*)", r'"\1" in a column input', text).replace("--input", "a column input")


def _check_target(path: str, target: str) -> None:
    """Raise ValueError where there is no target of a name."""
    if not _has_closed_form(target):
        try:
            check_target(_locate(target, Path(path).parent, None))
        except InstalledModel as error:
            raise ValueError(f"{_in_table(error, path)}, with --trust") from None
        except UserCodeError as error:
            raise ValueError(_in_table(error, path)) from None


def _has_closed_form(target: str) -> bool:
    """Return whether a target is a preset or a layer by letters. Raises ConfigError for a layer without letters."""
    spec, _ = split(target)
    return has_closed_form(spec)


def _locate(target: str, folder: Path, root: str | None) -> str:
    """Return a target with its file in the folder of the table. Raises ValueError for code not below ``root``."""
    file, colon, name = target.rpartition(":")
    if _has_closed_form(target) or target.startswith("hf:") or not (colon or is_configuration(target)):
        return target
    if is_configuration(target):
        return str(folder / target)
    is_path = file.endswith(".py")
    if root and not (is_path and is_below(folder / file, root)):
        what = "code from outside of the table's folder" if is_path else "installed code"
        raise ValueError(f"{target} would run {what}; --trust allows it")
    return f"{folder / file}:{name}" if is_path else target


def _model_or_error(*options: Any) -> Case | _Module | Exception:
    try:
        return _model(*options)
    except ERRORS as error:
        return error


def _key(changed: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(as_texts({name: value for name, value in changed.items() if name not in (INPUT, SIDE)}).items())


def _model(spec: str, changed: tuple[tuple[str, str], ...], inputs: str, root: str | None) -> Case | _Module:
    words = [f"{name}={text}" for name, text in changed]
    given = Namespace(set=words, input=inputs.split(), dtype=None)
    if _has_closed_form(spec):
        text, given.set = ",".join((spec, *words)), None
        target = parse_target(text, given)
        return Case.of(target.spec, target.settings, target.lengths, called=text)
    counted = count(parse_target(spec, given), roots={spec: root} if root else None)
    return _Module(
        _with_tables(module_ledger(counted, counted.active_params), counted),
        counted.tokens or 1,
        counted.samples,
        counted,
        counted.tokens or None,
    )


def _with_tables(ledger: Ledger, counted: Count) -> Ledger:
    """Return the ledger of a module, with the tables of its modules of embedding as entries of their own."""
    types = {module.path: module.type for module in counted.modules or ()}
    tables = [
        Entry(one.module, "embedding", {"n": 0}, one.times, {"n": prod(one.shape)}, one.trainable)
        for one in counted.parameters
        if types.get(one.module, "").endswith("Embedding") and len(one.shape) == 2
    ]
    *products, weights = ledger
    stored = sum(table.params for table in tables)
    used = None if counted.active_params is None else counted.active_params - stored
    return Ledger((*products, *tables, counted_weights(weights.path, counted.params - stored, used)))


def _source(table: PublishedTable) -> list[str]:
    return [f"Source: {table.source}."] if table.source else []


def _judged(table: PublishedTable, models: _Models) -> Table[CellRow]:
    """Return the table with a row for each printed cell, and a sentence to quote for each quantity below."""
    counted, quotes = replace(table, rows=models.counted(table.rows)), []
    cells = judge(counted, models.of, models.why_not)
    rows: list[CellRow] = []
    reported: set[str] = set()
    for number, row in enumerate(table.rows):
        if error := models.failed.get(number):
            reason = models.message(row, error)
            rows += _not_counted(table, row, models.path, reason, _exit_code(error), reason in reported)
            reported.add(reason)
        else:
            rows += [row_of(f"{models.path}:", cell) for cell in cells if cell.row is row]
    counted = with_digits(counted, cells)
    for name, figure in counted.quantities.items():
        lengths = [(row.name, models.length(row)) for row in counted.rows if name in row.printed]
        quotes.append(counted.quote(figure, lengths))
    title, columns = f"{table.name}: {table.title}", columns_of(CellRow)
    below = [*quotes, *_notes(table, models), *_review(cells)]
    return Table(table.name, title, columns, rows, _source(table), below, note_column="verdict")


def _with_units(table: PublishedTable, models: _Models) -> PublishedTable:
    """Return a table whose rows have the units of columns that print none."""
    figures = {name: replace(one, rule=models.rules.get(name, "")) for name, one in table.quantities.items()}
    units = column_units(figures.values(), models.counted(table.rows), models.of)
    found = [{name: unit for name, unit in units.items() if has_no_unit(row, figures[name])} for row in table.rows]
    return replace(table, rows=tuple(replace(row, units=own) for row, own in zip(table.rows, found, strict=True)))


def _with_active(table: PublishedTable, models: _Models) -> PublishedTable:
    """Return a table whose column "active" is of all active parameters, unless more of its numbers are without the
    embedding: the head of a paper does not say which. A table that has both columns keeps both."""
    plain, bare = QUANTITIES["active_params"], QUANTITIES["active"]
    if not {bare.name} <= table.quantities.keys() <= {*QUANTITIES} - {plain.name}:
        return table

    def renamed(row: PrintedRow) -> PrintedRow:
        return replace(
            row, printed={plain.name if name == bare.name else name: row.printed[name] for name in row.printed}
        )

    def prints(table: PublishedTable, name: str) -> int:
        rows = models.counted(_with_units(table, models).rows)
        cells = [row for row in rows if row.printed.get(name, "") not in EMPTY]
        figure = table.quantities[name]
        return sum(figure.prints(evaluate(row, figure, models.of), row.number(figure)) for row in cells)

    columns = tuple(
        replace(plain, trailing_zeros=one.trailing_zeros) if one.name == bare.name else one for one in table.columns
    )
    other = replace(table, columns=columns, rows=tuple(map(renamed, table.rows)))
    return other if prints(other, plain.name) >= prints(table, bare.name) else table


def _review(cells: Sequence[Judged]) -> list[str]:
    """Return a sentence for a review: of each column, which numbers are reproduced, hold another cost, have other
    digits, and should be what."""
    columns: dict[str, list[Judged]] = {}
    for cell in cells:
        if cell.verdict != "no printed value":
            columns.setdefault(cell.figure.head, []).append(cell)
    found = [f"{head}: {_review_of_column(own)}" for head, own in columns.items()]
    return [f"For a review: {'; '.join(found)}."] if found else []


def _review_of_column(cells: Sequence[Judged]) -> str:
    """Return what the verdicts on a column say, in words."""

    def numbers(texts: Iterable[str], words: str) -> list[str]:
        found = [*texts]
        return [f"{_shortened(found, ', ')}{words}"] if found else []

    total, parts = len(cells), list[str]()
    for what, times in Counter(_finding(cell) for cell in cells).items():
        if what:
            whole = {1: "the one number", 2: "both"}.get(total, f"all {total}")
            one = what.replace("hold ", "holds ") if times == 1 else what
            parts.append(f"{whole if times == total else f'{times} of {total}'} {one}")
    for digits in dict.fromkeys(cell.digits for cell in cells if cell.digits):
        parts += numbers((_named(cell) for cell in cells if cell.digits == digits), f" {DIGITS.get(digits, digits)}")
    parts += numbers(
        (_named(cell) for cell in cells if cell.verdict.startswith("explained") and not (cell.holds or cell.digits)),
        " by another rule, unit or length",
    )
    # all of them: a wrong number that is left out seems right
    wrong = [f"{_named(cell)} should be {cell.instead}" for cell in cells if cell.instead]
    if wrong and any(cell.holds for cell in cells if cell.instead):
        return f"{', '.join(parts)}; of these {', '.join(wrong)}"
    return ", ".join(parts + wrong)


def _finding(cell: Judged) -> str:
    """Return what is counted of the cells of a column: that they are reproduced, or hold another cost, wrong ones
    too."""
    return f"hold {cell.holds}" if cell.holds else "reproduced" if cell.verdict == "reproduced" else ""


def _named(cell: Judged) -> str:
    return f"{cell.row.number(cell.figure)} ({cell.row.name})"


def _notes(table: PublishedTable, models: _Models) -> list[str]:
    """Return, of each column that prints no unit, which one it is in, which column is an input, and the columns that
    are not judged."""
    sides = [head for head in table.ignored if models.with_side and own.is_one_of(head, own.SIDES)]
    with_length = any("seq_len" in row.set for row in table.rows if row.length)
    of_length = [head for head in table.ignored if with_length and own.is_one_of(head, own.LENGTHS)]
    used = sorted({side for _, side in models.with_side})
    inputs = _shortened([f"1,3,{side},{side}" for side in used], " or ")
    others = [head for head in table.ignored if head not in (*sides, *of_length)]
    notes = [f"The input of code that has none is of the column {' or '.join(sides)}: {inputs}."] if sides else []
    notes += [f"T is of the column {of_length[0]}."] if of_length else []
    if models.own_lengths:
        notes.insert(0, f"Without a T, a preset has its own: {_shortened([*models.own_lengths])}.")
    notes += [f"Not judged, as no quantities: {', '.join(others)}."] if others else []
    return [*_unit_notes(table), *notes]


def _unit_notes(table: PublishedTable) -> list[str]:
    """Return, of each column that prints no unit, which one it is in."""
    cells = {name: (unit, row.printed[name]) for row in reversed(table.rows) for name, unit in row.units.items()}
    heads = {column.name: column.head for column in table.columns}
    return [f"{heads[name]} are printed in {unit}: {text} is {text}{unit}." for name, (unit, text) in cells.items()]


def _not_counted(
    table: PublishedTable, row: PrintedRow, path: str, reason: str, code: int, is_reported: bool
) -> list[CellRow]:
    """Return a row for each printed cell of a model that could not be counted; a reason ``is_reported`` once."""
    heads = {column.name: column.head for column in table.columns}
    failures = [] if is_reported else [f"{path}: {reason}"]
    return [
        CellRow(row.name, heads[name], text, None, NOT_COUNTED, reason, failures=failures, exit_code=code)
        for name, text in row.printed.items()
    ]


def _exit_code(error: Exception) -> int:
    return getattr(error, "exit_code", UsageError.exit_code)


def _rules_found(table: PublishedTable, models: _Models) -> Iterator[tuple[Table[RuleRow], str]]:
    """Yield, for each quantity, the rules tried with the number of cells that each prints, and a sentence."""
    failed = {models.message(table.rows[number], error): error for number, error in models.failed.items()}
    errors = [(text, _exit_code(error)) for text, error in failed.items()]
    failures = [f"{models.path}: {text}" for text, _ in errors]
    for name, figure in replace(table, rows=models.counted(table.rows)).quantities.items():
        rows = tuple(row for row in models.counted(table.rows) if row.printed.get(name, "") not in EMPTY)
        tried = find_rule(figure, rows, models.of, models.why_not)
        below = []
        if tried and tried[0].missed:
            below.append(f"Not printed by {tried[0].rule}: {_shortened(tried[0].missed)}.")
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


def _shortened(texts: Sequence[str], between: str = "; ") -> str:
    """Return the first three of ``texts`` and the number of others."""
    rest = [f"and {len(texts) - 3:,} more"] if len(texts) > 3 else []
    return between.join([*texts[:3], *rest])


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


def _sentence(verdicts: Sequence[str]) -> str:
    """Return the number of cells by verdict."""
    advice = "; --find-rule tries all rules" if "no rule found" in verdicts else ""
    return f"{count_verdicts(verdicts, 'printed figure')}{advice}."
