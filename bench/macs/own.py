"""Tables of a user's file: its targets counted, and each printed cell judged (formulas/published/own.py)."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from headcount.bench.case import LENGTHS as PRESET_LENGTHS
from headcount.bench.case import Case
from headcount.bench.counters.base import CounterError
from headcount.bench.errors import UsageError, read_file
from headcount.bench.isolated.module_count import count_module
from headcount.bench.isolated.target import LENGTHS, is_configuration, parse_input, parse_settings
from headcount.bench.isolated.user_code import is_below
from headcount.bench.macs.published import CELL_COLUMNS, row_of
from headcount.bench.macs.results import verdicts
from headcount.bench.snapshot.snapshot import Target
from headcount.bench.table import Column, Row, Section, Table, plural
from headcount.bench.training_flops import CountedModule, flops_per_token, input_tokens, module_ledger
from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.ledger import Ledger
from headcount.formulas.published import own
from headcount.formulas.published.figures import Row as PrintedRow
from headcount.formulas.published.own import OwnTable
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import PRESETS


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
            table = own.load(path, content, args.own_rule or "")
            models = _Models(table, args.trust)
            found += _rules_found(table, models) if args.find_rule else [_judged(table, models)]
        except (ValueError, ZeroDivisionError) as error:
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

    Raises ValueError, with the line, for a target that cannot be counted or that may not be run.
    """

    def __init__(self, table: OwnTable, trust: bool) -> None:
        self.folder, self.trust, self._model = Path(table.path).parent, trust, cache(_model)
        self._inputs = {(row.preset, json.dumps(row.set)): row.input for row in table.rows}
        for line, row in zip(table.lines, table.rows, strict=True):
            try:
                self.of(row.preset, row.set)
            except (UsageError, CounterError, ValueError) as error:
                raise ValueError(f"line {line}: {error}") from None

    def of(self, target: str, changed: Mapping[str, Any]) -> _Model:
        """Return the model of a target with fields and lengths changed."""
        settings = json.dumps(changed)
        root = None if self.trust else str(self.folder.resolve())
        spec = _locate(target, self.folder, root)
        return self._model(spec, settings, self._inputs.get((target, settings), ""), root)

    def why_not(self, row: PrintedRow, rule: str) -> str:
        """Return why a rule does not apply to the model of a row; empty where it does."""
        case = self.of(row.preset, row.set).case
        if not CONVENTIONS[rule].backward:
            fine = rule == "exact" or isinstance(case, Case)
            return "" if fine else f"the rule {rule} needs a preset; {row.preset} has rules of training, and exact"
        if isinstance(case, CountedModule) and not case.tokens:
            return f"rules are per token, and the inputs of {row.preset} have none"
        try:
            flops_per_token(case, CONVENTIONS[rule])
        except UsageError as error:
            return str(error)
        return ""


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
        return _Model(case.ledger, {"seq_len": (length or 1) * case.lengths["batch_size"]}, case, length)
    for text in inputs.split():
        parse_input(text)
    roots = {spec: root} if root else None
    count = count_module(Target(spec, fields, tuple(inputs.split()), None, lengths), roots=roots)
    tokens = input_tokens(count.inputs)
    return _Model(module_ledger(count), {"seq_len": tokens or 1}, CountedModule(count, tokens))


def _layout(table: OwnTable, suffix: str, columns: Sequence[Column], note_column: str = "") -> Table:
    name = Path(table.path).stem
    source = [f"Source: {table.source}."] if table.source else []
    return Table(name + suffix, f"{name}: {table.title}", columns, source, note_column)


def _judged(table: OwnTable, models: _Models) -> Section:
    """Return the table with a row for each printed cell, and a sentence to quote for each quantity below."""
    rows, quotes = [], []
    for cell in own.judge(table, models.of, models.why_not):
        place = f"{table.path}: {cell.row.name}, {cell.figure.head}"
        failures = [f"{place}: {cell.printed} is not reproducible"] if cell.verdict == "not reproducible" else []
        rows.append(replace(row_of(table.path, cell), failures=failures))
    for name in table.quantities():
        lengths = [models.of(row.preset, row.set).length for row in table.rows if name in row.printed]
        quotes.append(table.quote(name, [length for length in lengths if length]))
    return Section(_layout(table, "", CELL_COLUMNS, "verdict"), rows, below=quotes)


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
    missed = any(row.values["verdict"] == "not reproducible" for row in judged)
    return verdicts(judged, "printed figure") + "; --find-rule tries all rules" * missed + "."
