"""Published tables with verdicts: models as printed, under the table's rule, exact and counted; other printed cells."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache, partial
from typing import Any

from headcount.bench.case import Case, describe_input
from headcount.bench.column import TONES, Column, macs_column, params_column, plural
from headcount.bench.counting.count import count, disagreements, exit_code, reasons, rule_agreement
from headcount.bench.counting.result import Count
from headcount.bench.macs.columns import Accounts, counter_columns
from headcount.bench.result import Row, Table, columns_of, shown, to_json
from headcount.bench.trace.garbage_collector import keep_freed_memory
from headcount.formulas import moh
from headcount.formulas.published import figures, tables
from headcount.formulas.published.figures import evaluate
from headcount.formulas.published.rounding import Interval
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import (
    VERDICTS,
    Judged,
    common_vocabulary,
    implied_vocabulary,
    judge,
    of_row,
    with_digits,
)
from headcount.models.configs import targets

MIN_MODELS = 6
"""Number of models from which a second process saves time."""


def _percent(key: str, head: str, priority: int) -> Column:
    return Column(key, head, unit="%", kind="fixed", digits=2, priority=priority)


QUANTITIES = {
    "active": [
        Column("active_printed", "active\nprinted", align="right", priority=0),
        params_column("active_without_embedding", "active, without\nthe embedding", priority=0),
    ],
    "activated": [
        Column("activated_printed", "activated\nprinted", align="right", priority=0),
        _percent("activated", "activated\nby number", priority=0),
        _percent("activated_work", "activated\nby work", priority=2),
        macs_column("baseline_macs", "MACs dense\nbaseline", priority=3),
        macs_column("released_macs", "MACs MoH\nas released", priority=2),
        macs_column("ideal_macs", "MACs MoH\nideal"),
        Column("to_baseline", "ideal /\nbaseline", kind="fixed", digits=4),
    ],
    "shared": [
        Column("shared_printed", "shared\nprinted", align="right", priority=3),
        _percent("shared", "shared of\nactivated", priority=3),
    ],
    "macs": [
        Column("macs_printed", "MACs\nprinted", align="right", priority=0),
        macs_column("macs_under_rule", "MACs under\nthe rule"),
        macs_column("macs", "MACs\nexact", priority=0),
    ],
}
"""The columns of quantities, which follow those of the parameters in this order: the printed number, what the rule
gives, and related costs."""
LETTERS_ABOUT = (
    "products: multiply-accumulates of matrix products and convolutions; batch_norm: elements that batch norms "
    "normalise by stored statistics; norm: those that layer norms, group norms and batch norms of weights normalise by "
    "their own; pooling: elements that adaptive pooling averages; params: all parameters."
)
NOT_COUNTED = "not counted"
"""In place of a verdict, of a model that could not be counted."""
MISSED = {"no rule found": "no rule found that prints", "not reproducible": "no rule prints"}
"""What a failure says of a cell with these verdicts."""
ABOUT = "Exact: every multiply-accumulate of the forward pass once. Counters: MACs as reported."
ABOUT_ACTIVATED = (
    "Activated: the share of heads, and that of their MACs. MACs of one forward pass, "
    "causal scores as executed, the whole square: of the dense baseline, with the same vocabulary; as released, "
    "every head computed and then gated, which the counters run; ideal, heads that a token does not use are "
    "skipped but for their keys and values, and for their queries where norms of these route. Counters: "
    "MACs as reported."
)


@dataclass(frozen=True)
class ModelRow(Row):
    """A printed model: its printed numbers, what the table's rules give, its costs, and the verdict.

    Attributes:
        table: name of the table.
        row: name in the table.
        preset: what is counted.
        case: the model at the sizes of the row.
        count: its count.
        verdict, expected_verdict: the worst one of its cells, as found and as typed.
        because: the arithmetic of the verdict.
        params_printed: printed parameters by column.
        macs_printed, active_printed, activated_printed, shared_printed: as printed.
        macs_under_rule: MACs by the rule of the table.
        active_without_embedding: parameters that a token uses, by the rule of the table.
        activated, shared: heads in percent, by the rule of the table.
        trainable_params: of a table of MoH models, as what follows: parameters without frozen ones.
        activated_work: MACs of activated heads in percent of those of all.
        baseline_macs: of the dense baseline.
        released_macs: of every head computed and then gated; None of a dense model.
        ideal_macs, ideal_active_params: without the heads that a token does not use; None of a dense model.
        to_baseline: ideal over baseline.
        accounts: the values of --columns.
    """

    table: str
    row: str
    preset: str
    case: Case
    count: Count
    verdict: str
    expected_verdict: str
    because: str
    params_printed: Mapping[str, str]
    macs_printed: str | None = None
    macs_under_rule: int | None = None
    active_printed: str | None = None
    active_without_embedding: int | None = None
    activated_printed: str | None = None
    activated: Fraction | None = None
    shared_printed: str | None = None
    shared: Fraction | None = None
    trainable_params: int | None = None
    activated_work: Fraction | None = None
    baseline_macs: int | None = None
    released_macs: int | None = None
    ideal_macs: int | None = None
    ideal_active_params: int | None = None
    to_baseline: Fraction | None = None
    accounts: Accounts = Accounts()

    @property
    def macs(self) -> int:
        """Exact MACs."""
        return self.count.ledger.macs

    @property
    def params(self) -> int:
        """Parameters of the module, else of the closed form."""
        return self.count.params

    @property
    def active_params(self) -> int | None:
        """Parameters that a token uses."""
        return self.count.ledger.active_params

    @property
    def failures(self) -> list[str]:
        """Counts that are not as predicted, and a verdict that is not as typed."""
        lines = disagreements(self.count, self.preset)
        if self.verdict != self.expected_verdict:
            typed = f"the verdict is {self.verdict!r}, typed as {self.expected_verdict!r}"
            lines.append(f"{self.table}, {self.row}: {typed}")
        return lines

    @property
    def exit_code(self) -> int:
        """That of a tool's error where one failed."""
        return exit_code(self.count)

    @property
    def notes(self) -> list[str]:
        """The arithmetic, where and why not a counter counted, the failures, and the reasons for missing accounts."""
        texts = dict.fromkeys((self.because, *reasons(self.count), *self.failures))
        return [*filter(None, texts), *self.accounts.notes]

    def to_json(self) -> dict[str, Any]:
        """Return what is printed, the input's lengths, and the count with what each tool reports."""
        names = [one.name for one in fields(self) if one.name != "case"]
        data = {name: getattr(self, name) for name in (*names, "macs", "params", "active_params")}
        return to_json(data | {"input": dict(self.case.lengths)})


@dataclass(frozen=True)
class VocabularyRow(Row):
    """The vocabularies that the printed parameters of a model imply; both mappings are by column of the table."""

    row: str
    params_printed: Mapping[str, str]
    vocabularies: Mapping[str, Interval]


@dataclass(frozen=True)
class CellRow(Row):
    """A printed cell, what its rule gives, and the verdict; ``because`` is the arithmetic."""

    row: str = shown(Column, "row")
    figure: str = shown(Column, "figure")
    printed: str = shown(Column, "printed", align="right", priority=0)
    value: str | None = shown(Column, "by the rule", align="right", priority=0)
    verdict: str = shown(Column, "verdict", priority=0, tones=TONES)
    because: str = ""
    expected_verdict: str | None = None
    failures: Sequence[str] = ()
    exit_code: int = 0

    @property
    def notes(self) -> list[str]:
        """The arithmetic, and the failure where the verdict is not as typed."""
        is_wrong = self.expected_verdict not in (None, self.verdict)
        return [text for text in (self.because, *(self.failures if is_wrong else ())) if text]


@contextmanager
def counting(cases: Iterable[Case], counters: Sequence[str], device: str | None) -> Iterator[Callable[[Case], Count]]:
    """Yield a function that counts one of ``cases``, to be called in their order.

    A second process counts too, from the largest model on. Equal models are counted once.
    """
    here = partial(count, counters=counters, device=device)
    models = {case.model: case for case in cases if case.config.has_module}
    if counters:
        keep_freed_memory()
    if not counters or len(models) < MIN_MODELS or device == "cuda" or (os.cpu_count() or 1) < 2:
        yield here
        return
    # closed forms run on bare Python
    from headcount.bench.targets.workers import Workers

    with Workers(1) as other:
        # this process starts at the first row
        largest_last = sorted(models.items(), key=lambda item: _operations(item[1]))
        futures = {model: other.submit(here, case) for model, case in reversed(largest_last)}

        def counted(case: Case) -> Count:
            future = futures.get(case.model)
            # cancel succeeds where the other process has not started this model
            if future is None or future.cancel():
                return here(case)
            for model, waiting in futures.items():
                if future.done():
                    break
                if waiting.cancel():
                    here(models[model])
            return future.result().with_values(name=case.name)

        yield counted


def _operations(case: Case) -> int:
    """Return the number of a model's operations; the time to count it is roughly proportional."""
    return sum(entry.times for entry in case.ledger)


def case_of(row: figures.Row, changed: Mapping[str, Any] | None = None) -> Case:
    """Return the case of a row with fields and lengths changed, made once."""
    return _case(row.target, tuple(as_words({**row.set, **(changed or {})})))


@cache
def _case(target: str, words: tuple[str, ...]) -> Case:
    return Case.of(*targets.read(target, words))


@cache
def judged(name: str) -> Sequence[Judged]:
    """Return the printed cells of a published table with their verdicts."""
    return judge(tables.load(name), case_of)


def as_words(changed: Mapping[str, Any]) -> list[str]:
    """Return fields and lengths of a table as words of --set; a date is a text too."""
    texts = {name: one if isinstance(one, str) else json.dumps(one, default=str) for name, one in changed.items()}
    return [f"{name}={text}" for name, text in texts.items()]


class ReproducedTable:
    """A published table with the case and the verdict of each row."""

    def __init__(self, table: PublishedTable) -> None:
        cells = judge(table, case_of)
        self.printed = with_digits(table, cells)
        self.cases = {row.name: case_of(row) for row in table.rows}
        self.verdicts = {row.name: of_row([cell for cell in cells if cell.row is row]) for row in table.rows}
        self._params = [column for column in table.columns if column.quantity == "params"]
        self._implied = bool(self._params) and not self._params[0].judged
        self._quantities = [column for name in QUANTITIES if (column := table.column(name))]

    def measured(self, row: str, counters: Sequence[str]) -> Count:
        """Count the row's model with each of ``counters``."""
        return count(self.cases[row], counters)

    def row(self, name: str, counted: Count) -> ModelRow:
        """Return a row with its verdict. It has failures where the table expects another, or where a count is wrong."""
        row, case, (verdict, expected, because) = self.printed.row(name), self.cases[name], self.verdicts[name]
        costs: dict[str, Any] = {}
        for column in self._quantities:
            value = evaluate(row, column, case_of).low
            costs[f"{column.name}_printed"] = row.printed.get(column.name)
            costs[QUANTITIES[column.name][1].key] = int(value) if column.name in ("active", "macs") else value
        if self.printed.column("activated"):
            costs |= _forms(row, case, counted.params)
        return ModelRow(
            table=self.printed.name,
            row=name,
            preset=row.target,
            case=case,
            count=counted,
            verdict=verdict,
            expected_verdict=expected,
            because=because,
            params_printed=_params_of(row, self._params),
            **costs,
        )

    def table(self, counters: Sequence[str], rows: Sequence[ModelRow]) -> Table[ModelRow]:
        """Return the table with ``rows`` made by :meth:`row`."""
        printed = self.printed
        inputs = "; ".join(sorted({describe_input(case.lengths) for case in self.cases.values()}))
        notes = [f"Source: {printed.source}, {printed.place}. Input: {inputs}.", f"Rule: {printed.statement}"]
        if self._implied:
            notes.append("Parameters depend on a vocabulary that is not printed: --params shows the sizes that fit.")
        notes.append(ABOUT_ACTIVATED if printed.column("activated") else ABOUT)
        return Table(
            printed.name,
            f"{printed.name}: {printed.title}",
            self._columns(counters),
            rows,
            notes,
            note_column="verdict",
            facts={"source": printed.source, "place": printed.place, "rule": printed.statement},
        )

    def _columns(self, counters: Sequence[str]) -> list[Column]:
        how = "counted" if counters else "exact"
        out = [Column("row", "row")]
        for one in self._params:
            out.append(_printed_column(f"params_printed_{one.name}", "params\nprinted", one, priority=3))
        if self.printed.column("activated"):
            out += [
                params_column("trainable_params", f"params\n{how}\ntrainable", priority=4),
                params_column("params", f"params\n{how}\nwith frozen", priority=2),
            ]
        else:
            out += [
                params_column("params", f"params\n{how}", priority=2),
                params_column("active_params", "params\nactive", priority=3),
            ]
        for column in self._quantities:
            out += QUANTITIES[column.name]
        out += counter_columns(counters, priority=2)
        out.append(Column("verdict", "verdict", priority=0, tones=TONES))
        return out

    def vocabularies(self) -> list[Table[VocabularyRow]]:
        """Return the table of vocabularies that printed parameters imply; none where a rule judges them."""
        if not self._implied:
            return []
        columns, below, ranges = [Column("row", "row")], [], {}
        for one in self._params:
            name, label = one.name, _label(one)
            columns.append(_printed_column(f"printed_{name}", "params printed", one, priority=2))
            for end, head in (("low", f"vocabulary{label}\nfrom"), ("high", "to")):
                value = partial(_vocabulary, name, end)
                columns.append(Column(f"{end}_{name}", head, kind="int", priority=0, value=value))
            ranges[name] = {
                row.name: implied_vocabulary(row.printed[name], one, self.cases[row.name].ledger)
                for row in self.printed.rows
                if name in row.printed
            }
            below.append(f"{name}: " * bool(label) + _common_range(common_vocabulary([*ranges[name].values()])))
        rows = []
        for row in self.printed.rows:
            fitting = {name: found[row.name] for name, found in ranges.items() if row.name in found}
            rows.append(VocabularyRow(row.name, _params_of(row, self._params), fitting))
        # models whose printed parameters imply a vocabulary have one
        sizes = sorted({case.config.vocab_size for case in self.cases.values()})  # type: ignore[union-attr]
        note = (
            f"{self._params[0].statement} At every vocabulary size, in closed form; the models above "
            f"have {', '.join(f'{size:,}' for size in sizes)}."
        )
        title = f"{self.printed.name}: vocabularies that the printed parameters imply"
        return [Table(f"{self.printed.name}-vocabulary", title, columns, rows, [note], below)]


def _params_of(row: figures.Row, columns: Sequence[figures.Figure]) -> dict[str, str]:
    """Return the printed parameters of a row by column."""
    return {column.name: row.printed[column.name] for column in columns if row.printed.get(column.name)}


def _printed_column(key: str, head: str, column: figures.Figure, priority: int) -> Column:
    """Return the column of printed parameters, of one of several columns of them."""

    def value(row: ModelRow | VocabularyRow) -> str | None:
        return row.params_printed.get(column.name)

    return Column(key, f"{head}{_label(column)}", align="right", priority=priority, value=value)


def _vocabulary(name: str, end: str, row: VocabularyRow) -> int | None:
    """Return an end of the range of vocabularies; None of a row without printed parameters."""
    return getattr(row.vocabularies.get(name), end, None)


def _label(column: figures.Figure) -> str:
    """Return the name of one of several columns of parameters as a line of a heading."""
    return "" if column.name == "params" else f"\n{column.name}"


def _common_range(both: Interval) -> str:
    if both.low <= both.high:
        return f"vocabularies {both.low:,} to {both.high:,} fit every row."
    return f"no vocabulary fits every row: one needs at least {both.low:,}, another at most {both.high:,}."


def _forms(row: figures.Row, case: Case, params: int) -> dict[str, Any]:
    """Return the costs of a model's forms and of its dense baseline; ``params`` are the module's, else the ledger's."""
    # a dense model is its own baseline and has no ideal form
    exact, ideal = case.ledger, case.ideal_ledger
    dense = _case(row.baseline, ()).ledger if row.baseline else exact
    return {
        "trainable_params": params - exact.frozen_params,
        "activated_work": moh.activated_macs_percent(exact, ideal or exact),
        "baseline_macs": dense.macs,
        "released_macs": exact.macs if ideal else None,
        "ideal_macs": ideal and ideal.macs,
        "to_baseline": Fraction(ideal.macs, dense.macs) if ideal else None,
        "ideal_active_params": ideal and ideal.active_params,
    }


def figures_table(name: str) -> Table[CellRow]:
    """Return the table called ``name``, a row for each printed cell. A row fails where its verdict is not as typed."""
    table, cells = tables.load(name), judged(name)
    notes = [f"Source: {table.source}, {table.place}. {table.reading}"]
    notes += [table.about] if table.about else []
    notes += [figure.statement for figure in table.columns]
    facts: dict[str, Any] = {name: getattr(table, name) for name in ("source", "place", "read", "address", "second")}
    if table.file:
        facts["shares"] = [one.sentence for one in shares(table, cells)]
        notes.append(f"{LETTERS_ABOUT} Counted with {table.counted_with}.")
    return Table(
        table.name,
        f"{table.name}: {table.title}",
        columns_of(CellRow),
        [row_of(f"{table.name},", cell) for cell in cells],
        notes,
        note_column="verdict",
        facts=facts,
        detail=bool(table.file),
    )


@dataclass(frozen=True)
class Share:
    """How many printed figures of a column its rule gives, and how far the column is from the MACs.

    Attributes:
        table, figure: the name of the table, and the column.
        printed, reproduced: numbers of its figures.
        deviations: by row, the figure with all terms that print it over the products, minus 1, in percent; empty of a
            rule without other terms.
    """

    table: str
    figure: figures.Figure
    printed: int
    reproduced: int
    deviations: Mapping[str, Fraction]

    @property
    def sentence(self) -> str:
        """The share and the extreme deviations, in words."""
        text = f"{self.table}, {self.figure.head}: {self.reproduced:,} of {self.printed:,} are {self.figure.expression}"
        if self.deviations:
            ends = (choose(self.deviations, key=self.deviations.__getitem__) for choose in (min, max))
            text += f", off the MACs by {' to '.join(f'{float(self.deviations[row]):+.2f} % ({row})' for row in ends)}"
        return f"{text}."


def shares(table: PublishedTable, cells: Sequence[Judged]) -> list[Share]:
    """Return the share of each column of a library's table."""
    found = []
    for figure in table.columns:
        own = [cell for cell in cells if cell.figure.name == figure.name]
        deviations = {}
        if figure.letters > {"products"}:
            for cell in own:
                products, value = int(cell.row.given["products"]), cell.value.low
                if cell.verdict == "reproduced":
                    deviations[cell.row.name] = 100 * (value / products - 1)
                elif "value" in cell.row.explain.get(figure.name, {}):
                    others = int(cell.row.given["others"])
                    deviations[cell.row.name] = 100 * ((value + others) / products - 1)
        reproduced = sum(cell.verdict == "reproduced" for cell in own)
        found.append(Share(table.name, figure, len(own), reproduced, deviations))
    return found


def row_of(place: str, cell: Judged) -> CellRow:
    """Return the row of a cell of the table at ``place``.

    It has a failure where its verdict is not as typed, and, where none is typed, if it is one of MISSED.
    """
    where = f"{place} {cell.row.name}, {cell.figure.head}"
    failures = []
    if cell.verdict != cell.expected:
        failures = [f"{where}: {cell.verdict!r}, typed as {cell.expected!r}"]
    elif cell.row.verdicts is None and cell.verdict in MISSED:
        failures = [f"{where}: {MISSED[cell.verdict]} {cell.printed}"]
    return CellRow(
        row=cell.row.name,
        figure=cell.figure.head,
        printed=cell.printed,
        value=cell.shown,
        verdict=cell.verdict,
        because=cell.because,
        expected_verdict=cell.expected,
        failures=failures,
    )


def sentence(models: Sequence[ModelRow], cells: Sequence[CellRow]) -> str:
    """Return how many printed models and cells have each verdict, and how many counts are wrong."""
    verdicts = {
        "printed row": [row.verdict for row in models],
        "printed figure": [row.verdict for row in cells],
    }
    parts = []
    for what, found in verdicts.items():
        if found:
            parts.append(count_verdicts((verdict for verdict in found if verdict != "no printed value"), what))
    return "; ".join([*parts, *rule_agreement(tool for row in models for tool in row.count.tools or ())]) + "."


def count_verdicts(verdicts: Iterable[str], what: str) -> str:
    """Return how many of ``verdicts`` are of each kind; ``what`` is the name of what they judge."""
    found = Counter(verdicts)
    each = ", ".join(f"{found[verdict]:,} {verdict}" for verdict in (*VERDICTS, NOT_COUNTED) if verdict in found)
    return f"{plural(found.total(), what)}: {each}"
