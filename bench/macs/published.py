"""The published tables again: every row printed, under its table's rule, exact, counted, with a verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from headcount.bench import result_cache
from headcount.bench.accounts import ideal_statement
from headcount.bench.case import Case, describe_input
from headcount.bench.macs import vocabulary
from headcount.bench.measure import Measurement, as_records, measure
from headcount.bench.table import TONES, Column, Row, Section, Table
from headcount.formulas import moh
from headcount.formulas.mha import causal_half
from headcount.formulas.published import columns
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import judge


class Printed:
    """How a quantity stands in these tables; ``about`` and ``sizes`` are the table's where they are not empty."""

    about = ""

    def __init__(self, column: columns.Column) -> None:
        self.column = column

    def before(self) -> list[Column]:
        """What stands before the parameters."""
        return []

    def sizes(self, how: str) -> list[Column]:
        """The parameters of the model, ``counted`` or ``exact``."""
        return []

    def behind(self, width: int) -> list[Column]:
        """What stands behind them; ``width`` is that of a number of MACs."""
        return []

    def values(self, row: columns.Row) -> dict[str, Any]:
        """The printed cells of these columns."""
        return {}

    def facts(self, row: columns.Row, case: Case, params: int) -> dict[str, Any]:
        """More values, which JSON has too; ``params``: those of the module, or of the ledger where none was built."""
        return {}


class Activated(Printed):
    """Activated heads, parameters with and without frozen ones, three MAC counts."""

    about = (
        "Activated: by number of heads, and each head weighing as many MACs as it takes. MACs of one forward pass, "
        "causal scores as executed, the whole square: of the dense baseline, with the same vocabulary; as released, "
        "every head computed and then gated, which the counters read; ideal, nothing computed of a head for a token "
        "that does not use it, but for its keys and values, and for its queries where their norms route. Counters: raw "
        "readings, with what they add."
    )

    def sizes(self, how: str) -> list[Column]:
        return [
            Column("trainable_params", f"params\n{how}\ntrainable", kind="int", width=13, of="params", priority=4),
            Column("params", f"params\n{how}\nwith frozen", kind="int", width=13, of="params", priority=2),
        ]

    def behind(self, width: int) -> list[Column]:
        return [
            Column("activated_printed", "activated\nprinted", align="right", priority=0),
            Column("activated", "activated\nby number", unit="%", kind="fixed", digits=2, priority=0),
            Column("activated_work", "activated\nby work", unit="%", kind="fixed", digits=2, priority=2),
            Column("baseline_macs", "MACs dense\nbaseline", kind="int", width=width, of="MACs", priority=3),
            Column("released_macs", "MACs MoH\nas released", kind="int", width=width, of="MACs", priority=2),
            Column("ideal_macs", "MACs MoH\nideal", kind="int", width=width, of="MACs"),
            Column("to_baseline", "ideal /\nbaseline", kind="fixed", digits=4),
        ]

    def facts(self, row: columns.Row, case: Case, params: int) -> dict[str, Any]:
        # a dense model is its own baseline and has no ideal form
        exact, ideal = case.ledger, case.ideal_ledger
        dense = Case.of(row.baseline.preset, row.baseline.overrides).ledger if row.baseline else exact
        return {
            "trainable_params": params - exact.frozen_params,
            "activated_printed": self.column.printed(row),
            "activated": self.column.total(case),
            "activated_work": moh.activated_work_percent(exact, ideal or exact),
            "baseline_macs": dense.macs,
            "released_macs": exact.macs if ideal else None,
            "ideal_macs": ideal and ideal.macs,
            "to_baseline": Fraction(ideal.macs, dense.macs) if ideal else None,
            "baseline_causal_half_macs": causal_half(dense).macs,
            "ideal_causal_half_macs": ideal and causal_half(ideal).macs,
            "ideal_active_params": ideal and ideal.active_params,
        }


class Params(Printed):
    """Parameters as printed, beside those of the model."""

    def before(self) -> list[Column]:
        labels = {name: "" if name == "params" else f"\n{name}" for name in self.column.names}
        return [
            Column(f"params_printed_{name}", f"params\nprinted{labels[name]}", align="right", priority=3)
            for name in labels
        ]

    def values(self, row: columns.Row) -> dict[str, Any]:
        return {f"params_printed_{name}": row.cells.get("params", {}).get(name) for name in self.column.names}


class Macs(Printed):
    """MACs as printed, under the rule, and exact."""

    def behind(self, width: int) -> list[Column]:
        return [
            Column("macs_printed", "MACs\nprinted", align="right", priority=0),
            Column("macs_under_rule", "MACs under\nthe rule", kind="int", width=width, of="MACs"),
            Column("macs", "MACs\nexact", kind="int", width=width, of="MACs", priority=0),
        ]


class Shared(Printed):
    """Shared heads as printed, and of the model."""

    def behind(self, width: int) -> list[Column]:
        return [
            Column("shared_printed", "shared\nprinted", align="right", priority=3),
            Column("shared", "shared of\nactivated", unit="%", kind="fixed", digits=2, priority=3),
        ]

    def facts(self, row: columns.Row, case: Case, params: int) -> dict[str, Any]:
        return {"shared_printed": self.column.printed(row), "shared": self.column.total(case)}


class Active(Printed):
    """Parameters that a token uses as printed, beside those of the model without its embedding."""

    def behind(self, width: int) -> list[Column]:
        return [
            Column("active_printed", "active\nprinted", align="right", priority=0),
            Column(
                "active_without_embedding",
                "active, without\nthe embedding",
                kind="int",
                width=13,
                of="params",
                priority=0,
            ),
        ]

    def values(self, row: columns.Row) -> dict[str, Any]:
        return {"active_printed": row.cells.get("active")}

    def facts(self, row: columns.Row, case: Case, params: int) -> dict[str, Any]:
        return {"active_without_embedding": self.column.total(case)}


QUANTITIES: dict[str, type[Printed]] = {
    "params": Params,
    "active": Active,
    "activated": Activated,
    "shared": Shared,
    "macs": Macs,
}
"""In the order in which they stand in a table."""
ABOUT = "Exact: every multiply-accumulate of the forward pass once. Counters: raw readings, with what they add."


def sections(again: "Regenerated", counters: Sequence[str], counted: Callable[[Case], Measurement]) -> list[Section]:
    """A table whose rows ``counted`` measures; and the vocabularies that its parameter figures imply, where no rule
    judges them."""
    rows = (again.row(row, counted(case)) for row, case in again.cases.items())
    # what needs no counting is known at once, and its columns are measured
    return [again.section(counters, rows if counters else list(rows)), *again.vocabularies()]


def without_vocabularies(section: Section) -> Section:
    """A table without the one of vocabularies that belongs to it, and where that is to be had."""
    note = "Parameters depend on a vocabulary that is not printed: --params shows the sizes that fit."
    return replace(section, table=replace(section.table, notes_above=[*section.table.notes_above, note]))


class Regenerated:
    """A published table with each row's case and verdict, by row name; without counting anything."""

    def __init__(self, table: PublishedTable) -> None:
        self.table = table
        self.cases = {row.name: Case.of(row.preset) for row in table.rows}
        self.verdicts = judge(table, self.cases)
        self._typed = {row.name: row for row in table.rows}
        found = {column.quantity: column for column in table.columns}
        self._printed = [kind(found[quantity]) for quantity, kind in QUANTITIES.items() if quantity in found]

    def measured(self, row: str, counters: Sequence[str], kept: Mapping[str, Any] | None = None) -> Measurement:
        """The row's model under each of ``counters``, each where it is right; ``kept`` of an earlier run is not read
        again (bench.result_cache)."""
        return measure(self.cases[row], counters, readings=result_cache.from_cache(kept, self.cases[row]))

    def section(self, counters: Sequence[str], rows: Iterable[Row]) -> Section:
        """The table, with ``rows`` made by :meth:`row`."""
        facts = {"source": self.table.source, "place": self.table.place, "rule": self.table.rule}
        ideal = ideal_statement(self.cases.values())
        return Section(self._layout(counters), rows, facts=facts, ideal=ideal)

    def vocabularies(self) -> list[Section]:
        """The vocabularies that parameter figures imply; none where a rule judges these, or there are none."""
        params = self.table.column("params")
        if params is None or params.judged:
            return []
        sizes = {case.config.vocab_size for case in self.cases.values()}
        return [vocabulary.section(self.table, self.cases, sizes)]

    def row(self, name: str, measured: Measurement) -> Row:
        """The row called ``name`` with its verdict; it fails where that is not the typed one, or a count is wrong."""
        row, case, verdict = self._typed[name], self.cases[name], self.verdicts[name]
        failures = measured.disagreements(row.preset)
        reasons = [text for count in measured.counts for text in (count.reason, count.why_there) if text]
        if verdict.status != row.verdict:
            failures.append(f"{self.table.name}, {name}: the verdict is {verdict.status!r}, typed as {row.verdict!r}")
        params = case.ledger.params if measured.counted_params is None else measured.counted_params
        facts = {key: value for one in self._printed for key, value in one.facts(row, case, params).items()}
        return Row(
            values={
                "row": name,
                "params": params,
                "active_params": case.ledger.active_params,
                "macs": case.ledger.macs,
                "macs_printed": row.cells.get("macs"),
                "macs_under_rule": verdict.under_rule,
                **{key: value for one in self._printed for key, value in one.values(row).items()},
                **facts,
                **{count.counter: count.macs for count in measured.counts},
                "verdict": verdict.status,
            },
            notes=[text for text in dict.fromkeys((verdict.because, *reasons, *failures)) if text],
            records=as_records(
                row.preset,
                measured,
                row=name,
                macs_printed=row.cells.get("macs"),
                params_printed=dict(row.cells.get("params", {})),
                macs_under_rule=verdict.under_rule,
                # JSON has integers, and exact fractions as text
                **{key: str(value) if isinstance(value, Fraction) else value for key, value in facts.items()},
                verdict=verdict.status,
                because=verdict.because,
                expected_verdict=row.verdict,
            ),
            failures=failures,
            case=case,
        )

    def _layout(self, counters: Sequence[str]) -> Table:
        table, printed, cases = self.table, self._printed, self.cases.values()
        # a reading may be twice the count
        width = max(13, len(f"{2 * max(case.ledger.macs for case in cases):,}"))
        params = len(f"{max(case.ledger.params for case in cases):,}")
        inputs = "; ".join(sorted({describe_input(case.lengths) for case in cases}))
        how = "counted" if counters else "exact"
        sizes = [
            Column("params", f"params\n{how}", kind="int", width=params, of="params", priority=2),
            Column("active_params", "params\nactive", kind="int", width=params, of="params", priority=3),
        ]
        return Table(
            table.name,
            f"{table.name}: {table.title}",
            [
                Column("row", "row", width=31),
                *(column for one in printed for column in one.before()),
                *next((own for one in printed if (own := one.sizes(how))), sizes),
                *(column for one in printed for column in one.behind(width)),
                *(
                    Column(name, name.replace("-", "\n"), kind="int", width=width, of="MACs", priority=2)
                    for name in counters
                ),
                Column("verdict", "verdict", width=19, priority=0, tones=TONES),
            ],
            notes_above=[
                f"Source: {table.source}, {table.place}. Input: {inputs}.",
                f"Rule: {table.rule}",
                next((one.about for one in printed if one.about), ABOUT),
            ],
            note_column="verdict",
        )
