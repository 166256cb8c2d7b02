"""The models of a user's table: the target of each row, checked and counted before anything is judged."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case
from headcount.bench.closed_form.case import case_of
from headcount.bench.closed_form.rules import model_of
from headcount.bench.counters.base import CounterError
from headcount.bench.errors import EnvironmentMissing, Option, OptionError, UsageError
from headcount.bench.macs.cases import CountedCase
from headcount.bench.macs.published import as_words
from headcount.bench.output.progress import with_progress
from headcount.bench.store import count
from headcount.bench.targets.config_fields import is_decoder
from headcount.bench.targets.process import InternalError
from headcount.bench.targets.target import Target, is_configuration, parse_input, parse_target, split_lengths
from headcount.bench.targets.user_code import (
    INPUT_ADVICE,
    InputsMissing,
    InstalledModel,
    LengthMissing,
    UserCodeError,
    check_function,
    check_target,
    is_below,
)
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS
from headcount.formulas.published import own
from headcount.formulas.published.figures import (
    CACHED,
    CONSTANT,
    HEADS,
    LETTERS,
    QUANTITIES,
    Figure,
    Row,
    evaluate,
)
from headcount.formulas.published.tables import PublishedTable, check, read_each
from headcount.models.configs.targets import has_closed_form, is_layer, make, split

OPTIONS = {"set", "input", "trust"}
"""Options of a count that a table has, as keys or as such."""
SEQUENCES = ("seq_len", "src_len", "tgt_len")
"""The lengths of sequences among targets.target.LENGTHS."""
SHORT = 128
"""A sequence length at which parameters are counted: no length changes them."""
ERRORS = (UsageError, CounterError, EnvironmentMissing, InternalError, ValueError)
"""Errors that leave a model without a count."""


class NotCounted(Exception):
    """No model of a table could be counted; the exit code is that of the error of the first."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Models:
    """The models of a table, each counted once and all before anything is printed.

    Raises ValueError, with the line, for wrong names, before anything is counted, and NotCounted with the first error
    where no model could be counted.

    Attributes:
        table: the table, its rows with their targets.
        path: its file.
        rules: the rule of each quantity; none where rules are sought.
        failed: the error of each model that could not be counted and its exit code, by the number of its row.
        sides: the sides of images that are inputs.
        own_lengths: the rows of presets at lengths of their own, in words.
    """

    def __init__(self, table: PublishedTable, path: str, trust: bool, find_rule: bool) -> None:
        self.path, self._folder = path, Path(path).parent
        self._root = None if trust else str(self._folder.resolve())
        # the rule of the table has no part in finding one
        self.rules = {} if find_rule else {name: table.rule_of(one) for name, one in table.quantities.items()}
        own_columns = {one.name: replace(one, rule=self.rules.get(one.name, "")) for one in table.columns}
        # a column may be read as another quantity
        self._columns = QUANTITIES | own_columns
        self.failed: dict[int, tuple[str, int]] = {}
        self.sides: set[int] = set()
        self.own_lengths: dict[str, None] = {}
        self._found: dict[str, Case | CountedCase | Exception] = {}
        rows = read_each([("", partial(self._check, row)) for row in table.rows])
        self.table = replace(table, rows=tuple(rows))
        self._count_rows()

    def counted(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """Return those of the ``rows`` of the table whose model could be counted."""
        return tuple(row for number, row in enumerate(rows) if number not in self.failed)

    def of(self, row: Row, changed: Mapping[str, Any] | None = None) -> Case | CountedCase:
        """Return the model of a row with fields and lengths changed. Raises one of ERRORS where it has no count."""
        target: Target = row.model
        if changed:
            target = parse_target("", Namespace(set=as_words(changed), input=None, dtype=None), target)
        key = self._key(target, row)
        if key not in self._found:
            try:
                self._found[key] = self._model(target, row)
            except ERRORS as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, Exception):
            raise found
        return found

    def length(self, row: Row) -> int | None:
        """Return the sequence length of a row's model; None of one that has none."""
        model = self.of(row)
        return model.target.lengths.get("seq_len") if isinstance(model, CountedCase) else model.length

    def is_of_column(self, row: Row) -> bool:
        """Return whether a row has its sequence length from a column."""
        found = self._found.get(self._key(row.model, row))
        lengths = found.target.lengths if isinstance(found, CountedCase) else row.model.lengths
        return bool(row.length) and row.length in lengths.values()

    def why_not(self, row: Row, rule: str) -> str:
        """Return why a rule does not apply to the model of a row; empty where it does."""
        reason = _needs_preset(row, rule)
        if reason or not rule or not CONVENTIONS[rule].backward:
            return reason
        model = self.of(row)
        try:
            counted = model.count if isinstance(model, CountedCase) else model
            flops_per_token(model_of(counted, CONVENTIONS[rule]), CONVENTIONS[rule])
        except UsageError as error:
            return str(error)
        return ""

    def _check(self, row: Row) -> Row:
        """Return a row with its target.

        Raises ValueError, with the line, for a name that does not exist, a length that is missing, and for a rule that
        its kind of target does not have.
        """
        try:
            row = self._resolve(row)
            check_function(row.model.spec)
            if reason := _needs_preset(row, self._column(row).rule):
                raise ValueError(reason)
            if has_closed_form(row.model.spec):
                self.of(row)
        except UserCodeError as error:
            raise ValueError(f"line {row.line}: {row.target}: {error}") from None
        except (UsageError, ValueError) as error:
            raise ValueError(self._message(row, error)) from None
        return row

    def _message(self, row: Row, error: Exception) -> str:
        """Return an error of a row with its line, in the words of a table."""
        return f"line {row.line}: {_in_table(error, self.path)}"

    def _resolve(self, row: Row) -> Row:
        """Return a row with its target, and with the length of a column where the target has none."""
        name, sizes = split(row.target)
        spec, words = _locate(name, self._folder, self._root), [*sizes, *as_words(row.set)]
        inputs = own.input_of(row.input).split()
        for text in inputs:
            try:
                parse_input(text)
            except UsageError as error:
                raise ValueError(error.text(lambda _: f"input {row.input!r}")) from None
        _, lengths = split_lengths(spec, words)
        reads_text = is_decoder(spec)
        column = row.length if _takes_length(spec) else 0
        given = [lengths[length] for length in SEQUENCES if length in lengths]
        what = f"T is {', '.join(map(str, given))} in the target and {column} in a column"
        check(not column or {*given} <= {column}, f"{row.target}: {what}")
        row = replace(row, length=0 if given else column)
        # another configuration may be of images: its count says whether it needs a length
        length = None if is_configuration(spec) and not reads_text else row.length or None
        needs_length = reads_text and not inputs or is_layer(spec)
        if needs_length and not length and not lengths.keys() & {"seq_len", "tgt_len"}:
            if self._is_of_length(row):
                raise _needs_length(row)
            length = SHORT
        options = Namespace(set=words, input=inputs, dtype=None, seq_len=length)
        return replace(row, model=parse_target("", options, Target(spec)))

    def _count_rows(self) -> None:
        """Count the model of each row. Raises NotCounted where there is none."""
        rows, bare = self.table.rows, dict[str, str]()
        found = with_progress((self._failure(row, bare) for row in rows), "row", [row.name for row in rows])
        self.failed = {number: failure for number, failure in enumerate(found) if failure}
        if len(self.failed) == len(rows):
            texts = dict.fromkeys(f"{self.path}: {text}" for text, _ in self.failed.values())
            raise NotCounted("\n".join(texts), self.failed[0][1])

    def _failure(self, row: Row, bare: dict[str, str]) -> tuple[str, int] | None:
        """Count the model of a row, and return why it has no count, with the exit code; None of one that has.

        ``bare``: the first target of each package whose functions return no inputs.
        """
        package = "" if row.input or row.side else _package(row.model.spec)
        try:
            # another of its package need not be built to fail so
            if (first := bare.get(package, row.target)) != row.target:
                raise InputsMissing(f"{row.target}, as {first}, has no inputs", advice=INPUT_ADVICE)
            self._count(row)
        except ERRORS as error:
            if package and isinstance(error, InputsMissing):
                bare.setdefault(package, row.target)
            return self._message(row, error), getattr(error, "exit_code", UsageError.exit_code)
        return None

    def _count(self, row: Row) -> None:
        """Count the model of a row. Raises what the count does, and ValueError for a number that it does not have."""
        model, figure = self.of(row), self._column(row)
        if self._is_of_length(row) and not row.length and not row.model.lengths.keys() & {*SEQUENCES}:
            used = model.target.lengths if isinstance(model, CountedCase) else model.lengths
            lengths = {name: size for name, size in used.items() if name != "batch_size"}
            if lengths and not has_closed_form(row.model.spec):
                raise _needs_length(row)
            words = [f"{'T' if name == 'seq_len' else name} = {size:,}" for name, size in lengths.items()]
            self.own_lengths |= {f"{row.name} at {', '.join(words)}": None} if words else {}
        if reason := self.why_not(row, figure.rule):
            raise ValueError(reason)
        evaluate(row, figure, self.of)
        # a formula in place of a number may have none
        row.number(figure)

    def _is_of_length(self, row: Row) -> bool:
        """Return whether a length changes the number of a row."""
        return bool(self._column(row).letters & LETTERS.keys() - CONSTANT - HEADS)

    def _column(self, row: Row) -> Figure:
        """Return the column of the one number of a row, with its rule."""
        (name,) = row.printed
        return self._columns[name]

    def _model(self, target: Target, row: Row) -> Case | CountedCase:
        """Return the model of a target; the side of a row's images is the input of code that has none."""
        if has_closed_form(target.spec):
            return case_of(target, ",".join((row.target, *as_words(row.set))))
        if not row.side or target.inputs:
            return self._run(target, row)
        side = f"1,3,{row.side},{row.side}"
        if not _package(target.spec):
            # a function of a file may return inputs
            with suppress(InputsMissing):
                return self._run(target, row)
        self.sides.add(row.side)
        return self._run(replace(target, inputs=(side,)), row)

    def _run(self, target: Target, row: Row) -> CountedCase:
        """Return the count of a target, at the length of a column or at SHORT where it needs one and has none."""
        options = {"roots": {target.spec: self._root} if self._root else None, **self._further(row)}
        try:
            return CountedCase(count(target, **options))
        except LengthMissing:
            longer = replace(target, lengths={**target.lengths, "seq_len": row.length or SHORT})
            # an error at SHORT says less than that the length is missing
            suppressed = () if row.length else ERRORS
            with suppress(*suppressed):
                return CountedCase(count(longer, **options))
            raise

    def _further(self, row: Row) -> dict[str, Any]:
        """Return the options of a count that has the cache, or the MACs of causal pairs, that the number of a row is
        of, which may need a further run; none of another number."""
        letters = self._column(row).letters
        if not letters & CACHED:
            return {"columns": ("causal_macs",)} if "causal_macs" in letters else {}
        causal = ("causal_macs",) if "causal_macs" in letters else ()
        if "cache" in letters:
            return {"columns": ("kv_bytes", "kv_token_bytes", *causal), "given": Assumptions(element_bytes=1)}
        # the second token: no window is full
        return {"columns": ("kv_token_bytes", *causal), "given": Assumptions(element_bytes=1, context=2)}

    def _key(self, target: Target, row: Row) -> str:
        """Return what a model is counted by: its target, the side and the length that columns of its row have, and
        what further is sought."""
        return repr((target, row.side, row.length, self._further(row)))


def _takes_length(spec: str) -> bool:
    """Return whether a layer, a preset or a configuration may have another sequence length."""
    if not has_closed_form(spec):
        return is_configuration(spec)
    return is_layer(spec) or len(make(spec, {}).lengths) > 1


def _needs_length(row: Row) -> ValueError:
    words = ",".join((row.target, *as_words(row.set), "T=1024"))
    return ValueError(f'{row.target} needs a length; write the target "{words}"')


def _package(spec: str) -> str:
    """Return the installed package whose code a target runs; empty for any other target."""
    module, _, _ = spec.rpartition(":")
    return "" if is_configuration(spec) or module.endswith(".py") else module.partition(".")[0]


def _needs_preset(row: Row, rule: str) -> str:
    """Return that a rule of a forward pass needs the paths of a closed form; empty where a row has it, or none."""
    if rule in ("", "exact") or CONVENTIONS[rule].backward or has_closed_form(row.model.spec):
        return ""
    return f"the rule {rule} needs a preset; {row.target} has rules of training, and exact"


def _in_table(error: Exception, path: str) -> str:
    """Return a message with the keys of a table in place of options, and without the advice of other options."""
    if not isinstance(error, OptionError):
        return str(error)
    is_toml = path.lower().endswith(".toml")

    def write(option: Option) -> str:
        if option.name == "input" and option.value:
            return f'input = "{option.value}"' if is_toml else f'"{option.value}" in a column input'
        return f"set {option.value}" if option.name == "set" else str(option)

    others = [one for one in error.advice if isinstance(one, Option) and one.name not in OPTIONS]
    return OptionError(*error.args, advice=[] if others else error.advice).text(write)


def check_name(path: str, target: str) -> None:
    """Raise ValueError where there is no target of a name in a table at ``path``."""
    spec, _ = split(target)
    try:
        check_target(_locate(spec, Path(path).parent))
    except UserCodeError as error:
        trust = ", with --trust" if isinstance(error, InstalledModel) else ""
        raise ValueError(f"{_in_table(error, path)}{trust}") from None


def _locate(spec: str, folder: Path, root: str | None = None) -> str:
    """Return a spec with its file in the folder of the table. Raises ValueError for code not below ``root``."""
    if is_configuration(spec):
        return spec if spec.startswith("hf:") else str(folder / spec)
    file, colon, name = spec.rpartition(":")
    is_path = file.endswith(".py")
    if root and colon and not (is_path and is_below(folder / file, root)):
        what = "code from outside of the table's folder" if is_path else "installed code"
        raise ValueError(f"{spec} would run {what}; --trust allows it")
    return f"{folder / file}:{name}" if is_path else spec
