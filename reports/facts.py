"""Compute the facts of the pages, each once, from bench's functions and from stored records."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from headcount.bench import records
from headcount.bench.budget import __main__ as budget
from headcount.bench.budget.search import BudgetRow
from headcount.bench.case import Case, layers_of
from headcount.bench.derive.__main__ import KindRow
from headcount.bench.macs import columns, published
from headcount.bench.macs.columns import Accounts, MemoryRow
from headcount.bench.macs.compare import Amount, CrossoverRow, PartRow
from headcount.bench.macs.published import ModelRow, VocabularyRow
from headcount.bench.records import LatencyRecord
from headcount.bench.result import Table
from headcount.bench.result_cache import CallCache, decode
from headcount.bench.targets.workers import Here
from headcount.formulas.ledger import Ledger
from headcount.formulas.published import claims, proofs, sentences, tables
from headcount.formulas.published.claims import Cell as PrintedCell
from headcount.formulas.published.claims import Check, Claim, Claims, Rows
from headcount.formulas.published.expressions import Expression
from headcount.formulas.published.figures import evaluate
from headcount.formulas.published.proofs import Search
from headcount.formulas.published.sentences import Finding
from headcount.formulas.published.tables import DataTable, PublishedTable
from headcount.formulas.published.verdicts import Judged
from headcount.reports import counting
from headcount.reports.counting import Cell, LayerRow, check_rows

COUNTED = "moa"
"""The paper whose tables are counted; the models of the others are large, and their tables are in closed form only."""

STORE = "counts.json"
"""The stored results of headcount.reports.counting (bench.result_cache), a file among the records."""

AUDIT = "audit.json"
"""The stored counts of every formulation of a layer by every counter (``make readings``)."""

SOURCES = ("bench", "formulas", "models", "reports/counting.py", "reports/explorer")
"""Folders and files that these results depend on."""

KINDS = (KindRow, LayerRow, Accounts, PartRow, Amount, CrossoverRow, Cell, Search, Fraction)
"""Dataclasses that these results consist of."""


def _kinds(case: Case, needed: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the sizes of a model's attention layers, each kind once, with T; none where they lack ``needed``
    letters."""
    lengths = case.config.length_letters(case.lengths)
    found = [{**case.config.letters(), **lengths, **layer.letters()} for layer in dict.fromkeys(layers_of(case.config))]
    return [letters for letters in found if letters.keys() >= set(needed)]


def values_of(table: Table) -> list[dict[str, Any]]:
    """Return the raw values of each row of a table by the keys of its columns."""
    return [{column.key: column.read(row) for column in table.columns} for row in table.rows]


class Facts:
    """Facts as numbers and as tables with their rows. Calls that need torch run in ``executor``, each once.

    ``stored``: the folder of stored measurements; ``largest_sum``: largest sum of a point in the search of claims;
    ``recount``: ignore stored counts. All methods raise Disagreement where a count or a verdict is not as stated.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        stored: Path | None = None,
        largest_sum: int = proofs.LARGEST_SUM,
        recount: bool = False,
    ) -> None:
        self.largest_sum = largest_sum
        self._executor, self._folder, self._recount = executor or Here(), stored or records.shipped(), recount

    @cached_property
    def _calls(self) -> CallCache:
        return CallCache(self._executor, SOURCES, KINDS, None if self._recount else self.stored_json(STORE))

    @property
    def has_counts(self) -> bool:
        """Whether the stored counts are of these sources and versions."""
        return self._calls.is_current

    def begin_stored(self) -> None:
        """Start the calls of the stored run before a page needs their results."""
        for key in (self.stored_json(STORE) or {"calls": ()})["calls"]:
            name, _, args = key.partition(" ")
            if call := getattr(counting, name, None):
                self._calls.begin(call, *json.loads(args))

    def counts(self) -> str:
        """Return the results of all calls, as stored for the next run."""
        return self._calls.to_store()

    @cached_property
    def tables(self) -> Mapping[str, PublishedTable]:
        """Return the published tables by name, in their order."""
        return {name: again.printed for name, again in self._regenerated.items()}

    def of_paper(self, paper: str) -> list[str]:
        """Return the tables of one paper."""
        return [name for name, table in self.tables.items() if table.paper == paper]

    @cached_property
    def _regenerated(self) -> Mapping[str, published.ReproducedTable]:
        return {name: published.ReproducedTable(table) for name, table in tables.load_tables().items()}

    @cached_property
    def _first_places(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Return, for each row of the paper COUNTED as (table, row), the first one of an equal model."""
        first: dict[Any, tuple[str, str]] = {}
        cases = {(n, row): case for n in self.of_paper(COUNTED) for row, case in self._regenerated[n].cases.items()}
        return {place: first.setdefault(case.config, place) for place, case in cases.items()}

    def reported(self, name: str) -> Mapping[str, Mapping[str, int]]:
        """Return what every counter reports of each row of a table of the paper COUNTED, in MACs."""
        places = {row: self._first_places[name, row] for row in self._regenerated[name].cases}
        for place in places.values():
            self._calls.begin(counting.reported, *place)
        return {row: self._calls.result(counting.reported, *place) for row, place in places.items()}

    def verdicts(self, name: str) -> Mapping[str, tuple[str, str]]:
        """Return the verdict on each row of a table, and the arithmetic."""
        return {row: (verdict, because) for row, (verdict, _, because) in self._regenerated[name].verdicts.items()}

    def closed(self, name: str) -> Table[ModelRow]:
        """Return a table in closed form."""
        again = self._regenerated[name]
        rows = [again.row(row, again.measured(row, ())) for row in again.cases]
        return again.table((), check_rows(rows))

    def vocabularies(self, name: str) -> Table[VocabularyRow]:
        """Return the vocabularies that the printed parameters of a table imply."""
        (implied,) = self._regenerated[name].vocabularies()
        return implied

    def ledger(self, preset: str, **fields: Any) -> Ledger:
        """Return the exact ledger of a preset at its paper's lengths, with some fields replaced."""
        return Case.of(preset, fields).ledger

    def config(self, preset: str) -> Any:
        """Return a preset's fields."""
        return Case.of(preset).config

    def target_length(self, preset: str) -> int:
        """Return the target length T of a preset at its paper's lengths."""
        case = Case.of(preset)
        return case.config.length_letters(case.lengths)["T"]

    def result(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call of headcount.reports.counting, sequences as lists."""
        return self._calls.result(call, *args)

    @cached_property
    def _audit(self) -> dict[str, Any]:
        """The stored audit of ``make readings``."""
        return self.stored_json(AUDIT) or {"versions": {}, "cells": []}

    def audit(self) -> list[Cell]:
        """Return the count of every formulation by every counter on the newest torch, and the calls that make the
        differences."""
        return decode(self._audit["cells"], {"Cell": Cell})

    def audit_versions(self) -> str:
        """Return the versions of torch and of the counters of the audit."""
        return ", ".join(f"{name} {number.partition('+')[0]}" for name, number in self._audit["versions"].items())

    def budget(self, argv: str) -> Table[BudgetRow]:
        """Return the result of ``python -m bench.budget`` for these arguments, without times."""
        (table,) = budget.command(budget.parser().parse_args([*argv.split(), "--records", "none"])).tables
        check_rows(table.rows)
        return table

    def model_accounts(self, presets: Sequence[str], seq_len: int, names: Sequence[str]) -> Table[MemoryRow]:
        """Return presets at one length with accounts as columns."""
        cases = [Case.of(name, lengths={"seq_len": seq_len}) for name in presets]
        return columns.table_of(cases, ", ".join(presets), names, counting.ASSUMED)

    @cached_property
    def claims(self) -> Claims:
        """Return the papers' sentences about cost."""
        return claims.load()

    @cached_property
    def data(self) -> Mapping[str, DataTable]:
        """Return the papers' printed data other than costs, by name."""
        return tables.load_data()

    def own_layers(self, claim: Claim) -> tuple[int, dict[str, dict[str, int]]]:
        """Return the number of attention layers of a claim's tables, one of each kind per row, and those that meet its
        premise, as points of the claim by row."""
        layers = {
            f"{row}, {number}" if len(kinds) > 1 else row: letters
            for name in claim.own
            for row, case in self._regenerated[name].cases.items()
            if (kinds := _kinds(case, claim.letters))
            for number, letters in enumerate(kinds, 1)
        }
        return len(layers), {name: point for name, sizes in layers.items() if (point := claim.admitted(sizes))}

    def findings(self, check: Check) -> list[Finding]:
        """Return the results of a check at the paper's own sizes."""
        if isinstance(check, Rows):
            return list(sentences.of_rows(check, {**self.tables, **self.data}, self.executed(check)))
        if isinstance(check, PrintedCell):
            return [sentences.of_cell(check, published.case_of)]
        if check.preset:
            sizes = [(check.label, letters) for letters in _kinds(Case.of(check.preset))]
        else:
            sizes = self.data[check.table].labelled()
        return list(sentences.of_entries(check, sizes))

    @cached_property
    def figures(self) -> Mapping[str, tuple[PublishedTable, Sequence[Judged]]]:
        """Return the papers' tables of figures by name, each with its judged cells. Raises Disagreement as all methods
        do."""
        of_libraries = tables.library_names()
        return self._judged([name for name in tables.figure_names() if name not in of_libraries])

    @cached_property
    def libraries(self) -> Mapping[str, tuple[PublishedTable, Sequence[Judged]]]:
        """Return the tables that libraries print of their models, as the tables of figures."""
        return self._judged(tables.library_names())

    def _judged(self, names: Iterable[str]) -> dict[str, tuple[PublishedTable, Sequence[Judged]]]:
        found = {table.name: (table, published.judged(table.name)) for table in map(tables.load, names)}
        check_rows(published.row_of(f"{name},", cell) for name, (_, cells) in found.items() for cell in cells)
        return found

    def compared(self, check: Rows) -> Mapping[str, Ledger]:
        """Return the ledgers of a check's rows, by letter."""
        return {letter: self.ledger(self.tables[name].row(row).target) for letter, (name, row) in check.rows.items()}

    def executed(self, check: Rows) -> Mapping[str, int | Fraction]:
        """Return what the models of a check's rows have of its quantity, by letter; nothing of quality."""
        if check.of == "macs":
            return {letter: form.macs for letter, form in self.compared(check).items()}
        return {
            letter: evaluate(self.tables[name].row(row), column, published.case_of).low
            for letter, (name, row, *_) in check.rows.items()
            if name in self.tables and (column := self.tables[name].column(check.of))
        }

    @cached_property
    def searches(self) -> Mapping[str, Sequence[Search]]:
        """Return by the claim's name the searches of its relation as printed and as executed."""
        names = [claim.name for claim in self.claims.claims]
        return {name: self._calls.result(counting.searches, name, self.largest_sum) for name in names}

    def cost(self, side: Expression, letters: Mapping[str, int]) -> int:
        """Return one side of a relation, counted on built layers."""
        return self._calls.result(counting.cost, side.text, tuple(letters.items()))

    def latencies(self) -> list[LatencyRecord]:
        """Return every stored latency; a line that is not a record is reported on stderr."""
        return [record for record in self._records if isinstance(record, LatencyRecord)]

    def stored(self, kind: str) -> list[dict[str, Any]]:
        """Return every stored record of another kind, and report lines as ``latencies`` does."""
        return [record for record in self._records if isinstance(record, dict) and record.get("kind") == kind]

    @cached_property
    def _records(self) -> list[Any]:
        read = [records.read(path) for path in sorted(self._folder.glob("*/*.jsonl"))]
        for problem in (problem for _, problems in read for problem in problems):
            print(problem, file=sys.stderr)
        return [row for rows, _ in read for row in rows]

    def stored_json(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file of the records' folder, such as ``commands.json`` of make benchmark; None without it."""
        path = self._folder / name
        return json.loads(path.read_text("utf-8")) if path.exists() else None
