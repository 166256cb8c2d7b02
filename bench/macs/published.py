"""Published tables with verdicts: models as printed, under the table's rule, exact and counted; other printed cells."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

from headcount.bench.accounts import ideal_statement
from headcount.bench.case import LENGTHS, Case, describe_input
from headcount.bench.counting.case import as_records, count_case, counted_params, disagreements
from headcount.bench.counting.result import Count
from headcount.bench.table import TONES, Column, Row, Section, Table, macs_column, params_column
from headcount.bench.trace.collector import keep_freed_memory
from headcount.formulas import moh
from headcount.formulas.published import figures, tables
from headcount.formulas.published.figures import evaluate
from headcount.formulas.published.rounding import Interval
from headcount.formulas.published.tables import PublishedTable, split_target
from headcount.formulas.published.verdicts import (
    Judged,
    common_vocabulary,
    implied_vocabulary,
    judge,
    of_row,
    with_digits,
)
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import parse_overrides

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
CELL_COLUMNS = (
    Column("row", "row"),
    Column("figure", "figure"),
    Column("printed", "printed", align="right", priority=0),
    Column("value", "by the rule", align="right", priority=0),
    Column("verdict", "verdict", priority=0, tones=TONES),
)
"""Columns of a table of printed cells."""
MISSED = {"no rule found": "no rule found that prints", "not reproducible": "no rule prints"}
"""What a failure says of a cell with these verdicts."""
ABOUT = "Exact: every multiply-accumulate of the forward pass once. Counters: MACs as reported."
ABOUT_ACTIVATED = (
    "Activated: by number of heads, and each head weighing as many MACs as it takes. MACs of one forward pass, "
    "causal scores as executed, the whole square: of the dense baseline, with the same vocabulary; as released, "
    "every head computed and then gated, which the counters run; ideal, nothing computed of a head for a token "
    "that does not use it, but for its keys and values, and for its queries where their norms route. Counters: "
    "MACs as reported."
)


@contextmanager
def counting(cases: Iterable[Case], counters: Sequence[str], device: str | None) -> Iterator[Callable[[Case], Count]]:
    """Yield a function that counts one of ``cases``, to be called in their order.

    A second process counts too, from the largest model on. Equal models are counted once.
    """
    here = partial(count_case, counters=counters, device=device)
    models = {case.model: case for case in cases if case.config.has_module}
    if counters:
        keep_freed_memory()
    if not counters or len(models) < MIN_MODELS or device == "cuda" or (os.cpu_count() or 1) < 2:
        yield here
        return
    # closed forms run on bare Python
    from headcount.bench.isolated.workers import Workers

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


def case_of(preset: str, changed: Mapping[str, Any]) -> Case:
    """Return the case of a preset with fields and lengths changed, as values or as texts of --set, made once."""
    return _case(preset, tuple(as_texts(changed).items()))


@cache
def _case(preset: str, changed: tuple[tuple[str, str], ...]) -> Case:
    lengths = {name: parse_int(text) for name, text in changed if name in LENGTHS}
    fields = [f"{name}={text}" for name, text in changed if name not in LENGTHS]
    return Case.of(preset, parse_overrides(preset, fields), lengths)


def as_texts(changed: Mapping[str, Any]) -> dict[str, str]:
    """Return values of a table as texts of --set; a date is a text too."""
    return {name: one if isinstance(one, str) else json.dumps(one, default=str) for name, one in changed.items()}


class ReproducedTable:
    """A published table with the case and the verdict of each row."""

    def __init__(self, table: PublishedTable) -> None:
        cells = judge(table, case_of)
        self.table = with_digits(table, cells)
        self.cases = {row.name: case_of(row.target, row.set) for row in table.rows}
        self.verdicts = {row.name: of_row([cell for cell in cells if cell.row is row]) for row in table.rows}
        self._params = [column for column in table.columns if column.quantity == "params"]
        self._implied = bool(self._params) and not self._params[0].judged
        self._quantities = [column for name in QUANTITIES if (column := table.column(name))]

    def measured(self, row: str, counters: Sequence[str]) -> Count:
        """Count the row's model with each of ``counters``."""
        return count_case(self.cases[row], counters)

    def section(self, counters: Sequence[str], rows: Iterable[Row]) -> Section:
        """Return the table with ``rows`` made by :meth:`row`."""
        facts = {"source": self.table.source, "place": self.table.place, "rule": self.table.statement}
        ideal = ideal_statement(self.cases.values())
        return Section(self._layout(counters), rows, facts=facts, ideal=ideal)

    def row(self, name: str, count: Count) -> Row:
        """Return a row with its verdict. It has failures where the table expects another, or where a count is wrong."""
        row, case, (verdict, expected, because) = self.table.row(name), self.cases[name], self.verdicts[name]
        failures = disagreements(count, row.target)
        reasons = [one.reason for one in count.tools if one.reason]
        reasons += [f"{one.counter} on {one.device}: {one.why_there}" for one in count.tools if one.why_there]
        if verdict != expected:
            failures.append(f"{self.table.name}, {name}: the verdict is {verdict!r}, typed as {expected!r}")
        counted = counted_params(count)
        params = case.ledger.params if counted is None else counted
        printed = {column.name: row.printed.get(column.name) for column in self._params}
        facts: dict[str, Any] = {"macs_printed": None, "macs_under_rule": None}
        for column in self._quantities:
            value = evaluate(row, column, case_of).low
            facts[f"{column.name}_printed"] = row.printed.get(column.name)
            facts[QUANTITIES[column.name][1].key] = int(value) if column.name in ("active", "macs") else value
        if self.table.column("activated"):
            facts |= _forms(row, case, params)
        return Row(
            values={
                "row": name,
                **{f"params_printed_{key}": text for key, text in printed.items()},
                "params": params,
                "active_params": case.ledger.active_params,
                "macs": case.ledger.macs,
                **facts,
                **{tool.counter: tool.macs for tool in count.tools},
                "verdict": verdict,
            },
            notes=[text for text in dict.fromkeys((because, *reasons, *failures)) if text],
            records=as_records(
                row.target,
                case,
                count,
                row=name,
                params_printed={key: text for key, text in printed.items() if text},
                # JSON has integers, and exact fractions as text
                **{key: str(value) if isinstance(value, Fraction) else value for key, value in facts.items()},
                verdict=verdict,
                because=because or None,
                expected_verdict=expected,
            ),
            failures=failures,
            case=case,
        )

    def _layout(self, counters: Sequence[str]) -> Table:
        table, cases = self.table, self.cases.values()
        # a counter may report twice the count
        most = {
            "MACs": 2 * max(case.ledger.macs for case in cases),
            "params": max(case.ledger.params for case in cases),
        }
        inputs = "; ".join(sorted({describe_input(case.lengths) for case in cases}))
        how = "counted" if counters else "exact"
        activated = table.column("activated")
        out = [Column("row", "row", width=31)]
        for one in self._params:
            head = f"params\nprinted{_label(one)}"
            out.append(Column(f"params_printed_{one.name}", head, align="right", priority=3))
        if activated:
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
        out += [macs_column(name, name.replace("-", "\n"), priority=2) for name in counters]
        out = [replace(one, width=len(f"{most[one.of]:,}")) if one.of else one for one in out]
        out.append(Column("verdict", "verdict", width=19, priority=0, tones=TONES))
        notes = [f"Source: {table.source}, {table.place}. Input: {inputs}.", f"Rule: {table.statement}"]
        if self._implied:
            notes.append("Parameters depend on a vocabulary that is not printed: --params shows the sizes that fit.")
        notes.append(ABOUT_ACTIVATED if activated else ABOUT)
        return Table(table.name, f"{table.name}: {table.title}", out, notes, note_column="verdict")

    def vocabularies(self) -> list[Section]:
        """Return the table of vocabularies that printed parameters imply; none where a rule judges them."""
        if not self._implied:
            return []
        out = [Column("row", "row")]
        below = []
        values: dict[str, dict[str, Any]] = {row.name: {"row": row.name} for row in self.table.rows}
        for one in self._params:
            name, label = one.name, _label(one)
            out += [
                Column(f"printed_{name}", f"params printed{label}", align="right", priority=2),
                Column(f"low_{name}", f"vocabulary{label}\nfrom", kind="int", priority=0),
                Column(f"high_{name}", "to", kind="int", priority=0),
            ]
            printed = {row.name: row.printed[name] for row in self.table.rows if name in row.printed}
            ranges = {row: implied_vocabulary(text, one, self.cases[row].ledger) for row, text in printed.items()}
            for row, cells in values.items():
                low, high = (ranges[row].low, ranges[row].high) if row in ranges else (None, None)
                cells |= {f"printed_{name}": printed.get(row), f"low_{name}": low, f"high_{name}": high}
            below.append(f"{name}: " * bool(label) + _common_range(common_vocabulary([*ranges.values()])))
        sizes = sorted({case.config.vocab_size for case in self.cases.values()})
        note = (
            f"{self._params[0].statement} At every vocabulary size, in closed form; the models above "
            f"have {', '.join(f'{size:,}' for size in sizes)}."
        )
        title = f"{self.table.name}: vocabularies that the printed parameters imply"
        layout = Table(f"{self.table.name}-vocabulary", title, out, notes_above=[note])
        return [Section(layout, [Row(one, records=[one]) for one in values.values()], below)]


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
    dense = case_of(*split_target(row.baseline)).ledger if row.baseline else exact
    return {
        "trainable_params": params - exact.frozen_params,
        "activated_work": moh.activated_macs_percent(exact, ideal or exact),
        "baseline_macs": dense.macs,
        "released_macs": exact.macs if ideal else None,
        "ideal_macs": ideal and ideal.macs,
        "to_baseline": Fraction(ideal.macs, dense.macs) if ideal else None,
        "ideal_active_params": ideal and ideal.active_params,
    }


def figures_section(name: str) -> Section:
    """Return the table called ``name``, a row for each printed cell. A row fails where its verdict is not as typed."""
    table = tables.load(name)
    notes = [f"Source: {table.source}, {table.place}. {table.reading}"]
    notes += [table.about] if table.about else []
    notes += [figure.statement for figure in table.columns]
    rows = [row_of(f"{table.name},", cell) for cell in judge(table, case_of)]
    facts = {name: getattr(table, name) for name in ("source", "place", "read", "address", "second")}
    layout = Table(table.name, f"{table.name}: {table.title}", CELL_COLUMNS, notes, note_column="verdict")
    return Section(layout, rows, facts=facts)


def row_of(place: str, cell: Judged) -> Row:
    """Return the row of a cell of the table at ``place``.

    It has a failure where its verdict is not as typed, and, where none is typed, if it is one of MISSED.
    """
    where = f"{place} {cell.row.name}, {cell.figure.head}"
    wrong, missed = [], []
    if cell.verdict != cell.expected:
        wrong = [f"{where}: {cell.verdict!r}, typed as {cell.expected!r}"]
    elif cell.row.verdicts is None and cell.verdict in MISSED:
        missed = [f"{where}: {MISSED[cell.verdict]} {cell.printed}"]
    values = {
        "row": cell.row.name,
        "figure": cell.figure.head,
        "printed": cell.printed,
        "value": cell.shown,
        "verdict": cell.verdict,
    }
    record = {**values, "because": cell.because, "expected_verdict": cell.expected}
    notes = [text for text in (cell.because, *wrong) if text]
    return Row(values, notes=notes, records=[record], failures=wrong + missed)
