"""The published tables again: every row printed, under its table's rule, exact, counted, with a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.bench.case import describe_input, ideal_form, ledger_of, resolve_lengths
from headcount.bench.macs import heads
from headcount.bench.measure import Measurement, as_records, measure
from headcount.bench.render import Row, Section
from headcount.bench.table import Column, Table
from headcount.formulas import conventions
from headcount.formulas.ledger import Ledger
from headcount.formulas.published.tables import PublishedTable, load
from headcount.formulas.published.tables import Row as PrintedRow
from headcount.formulas.published.verdicts import Verdict, common_vocabulary, implied_vocabulary, judge
from headcount.models.configs.presets import preset

EXACT = "Exact: every multiply-accumulate of the forward pass once. Counters: raw readings, with what they add."


def sections(name: str, counters: Sequence[str], device: str | None) -> list[Section]:
    """The table called ``name``; and the vocabularies that its parameter figures imply, where no rule judges them."""
    table = load(name)
    ledgers = {row.name: _form(preset(row.preset)) for row in table.rows}
    ideals = {}
    for row in table.rows:
        if ideal := ideal_form(preset(row.preset)):
            ideals[row.name] = _form(ideal)
    verdicts = judge(table, ledgers, ideals)
    main = Section(
        _layout(table, counters, max(form.macs for form in ledgers.values())),
        _rows(table, verdicts, ideals, counters, device),
        facts={"source": table.source, "place": table.place, "rule": rule_statement(table)},
    )
    return [main] if "params" in table.judged else [main, _vocabulary_section(table, ledgers)]


def _form(config) -> Ledger:
    return ledger_of(config, resolve_lengths(config, {}))


def rule_statement(table: PublishedTable) -> str:
    """The one rule of each judged column of a table, in words."""
    parts = []
    if "macs" in table.judged:
        billed = conventions.statement(conventions.by_name(table.convention)).rstrip(".")
        parts.append(f"{billed}; {table.macs_printing.statement()}.")
    if "params" in table.judged:
        parts.append(f"All parameters, frozen ones included, {table.params_printing.statement()}.")
    if "activated" in table.judged:
        parts.append(f"Heads that a token uses, of all heads of all layers, {table.activated_printing.statement()}.")
    return " ".join(parts)


def _lengths_statement(table: PublishedTable) -> str:
    inputs = {describe_input(resolve_lengths(preset(row.preset), {})) for row in table.rows}
    return "; ".join(sorted(inputs))


def _layout(table: PublishedTable, counters: Sequence[str], largest_macs: int) -> Table:
    width = max(13, len(f"{largest_macs:,}"))
    columns = [
        Column("row", "row", width=31),
        *(
            Column(f"params_printed_{c}", f"params\nprinted\n{c if c != 'params' else ''}".rstrip(), align="right")
            for c in table.params_columns
        ),
        *(heads.params_columns(counters) if table.activated_printing else _params_columns(counters)),
        *(heads.columns(width) if table.activated_printing else ()),
        *(_macs_columns(width) if table.macs_printing else ()),
        *(Column(name, name.replace("-", "\n"), kind="int", width=width) for name in counters),
        Column("verdict", "verdict", width=19),
    ]
    return Table(
        table.name,
        f"{table.name}: {table.title}",
        columns,
        notes_above=[
            f"Source: {table.source}, {table.place}. Input: {_lengths_statement(table)}.",
            f"Rule: {rule_statement(table)}",
            heads.ABOUT if table.activated_printing else EXACT,
        ],
        note_column="verdict",
    )


def _params_columns(counters: Sequence[str]) -> list[Column]:
    return [
        Column("params", "params\ncounted" if counters else "params\nexact", kind="int", width=11),
        Column("active_params", "params\nactive", kind="int", width=11),
    ]


def _macs_columns(width: int) -> list[Column]:
    return [
        Column("macs_printed", "MACs\nprinted", align="right"),
        Column("macs_under_rule", "MACs under\nthe rule", kind="int", width=width),
        Column("macs", "MACs\nexact", kind="int", width=width),
    ]


def _rows(table, verdicts, ideals, counters, device) -> Iterator[Row]:
    for row in table.rows:
        config = preset(row.preset)
        lengths = resolve_lengths(config, {})
        measured = measure(config, lengths, counters, device=device, label=row.preset)
        yield _row(table, row, verdicts[row.name], measured, ideals.get(row.name))


def _row(table: PublishedTable, row: PrintedRow, verdict: Verdict, measured: Measurement, ideal: Ledger | None) -> Row:
    failures = measured.disagreements(row.preset)
    reasons = [text for count in measured.counts for text in (count.reason, count.why_there) if text]
    if verdict.status != row.verdict:
        failures.append(f"{table.name}, {row.name}: the verdict is {verdict.status!r}, typed as {row.verdict!r}")
    extra = {}
    if table.activated_printing:
        baseline = _form(preset(row.baseline["preset"], fields_of(row.baseline))) if row.baseline else None
        extra = heads.values(row, measured, ideal, baseline)
    return Row(
        values={
            "row": row.name,
            **{f"params_printed_{column}": row.params.get(column) for column in table.params_columns},
            "params": measured.counted_params if measured.counted_params is not None else measured.ledger.params,
            "active_params": measured.ledger.active_params,
            "macs_printed": row.macs,
            "macs_under_rule": verdict.under_rule,
            "macs": measured.ledger.macs,
            **extra,
            **{count.counter: count.macs for count in measured.counts},
            "verdict": verdict.status,
        },
        notes=[text for text in dict.fromkeys((verdict.because, *reasons, *failures)) if text],
        records=as_records(
            row.preset,
            measured,
            row=row.name,
            macs_printed=row.macs,
            params_printed=dict(row.params),
            macs_under_rule=verdict.under_rule,
            **heads.facts(extra),
            verdict=verdict.status,
            because=verdict.because,
            expected_verdict=row.verdict,
        ),
        failures=failures,
    )


def fields_of(baseline: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides of a typed baseline, its preset's name left out."""
    return {name: value for name, value in baseline.items() if name != "preset"}


def _vocabulary_section(table: PublishedTable, ledgers: dict[str, Ledger]) -> Section:
    ranges = {
        column: {
            row.name: implied_vocabulary(row.params[column], table, ledgers[row.name])
            for row in table.rows
            if column in row.params
        }
        for column in table.params_columns
    }
    columns = [Column("row", "row", width=31)]
    for column in table.params_columns:
        label = "" if column == "params" else column
        columns += [
            Column(f"printed_{column}", f"params printed\n{label}".rstrip(), align="right"),
            Column(f"low_{column}", f"vocabulary\n{label}\nfrom" if label else "vocabulary\nfrom", kind="int"),
            Column(f"high_{column}", "\n\nto" if label else "\nto", kind="int", width=7),
        ]
    rows = []
    for row in table.rows:
        values = {"row": row.name}
        for column in table.params_columns:
            found = ranges[column].get(row.name)
            values[f"printed_{column}"] = found and found.printed
            values[f"low_{column}"] = found and found.low
            values[f"high_{column}"] = found and found.high
        rows.append(Row(values, records=[{k: v for k, v in values.items()}]))
    below = []
    for column, found in ranges.items():
        both = common_vocabulary(list(found.values()))
        name = "" if column == "params" else f"{column}: "
        if both.low <= both.high:
            below.append(f"{name}vocabularies {both.low:,} to {both.high:,} fit every row.")
        else:
            below.append(
                f"{name}no vocabulary fits every row: one needs at least {both.low:,}, another at most {both.high:,}."
            )
    layout = Table(
        f"{table.name}-vocabulary",
        f"{table.name}: vocabularies that the printed parameters imply",
        columns,
        notes_above=[
            f"Closed-form parameters {table.params_printing.statement()}, at every vocabulary size; the models above "
            f"have {', '.join(f'{size:,}' for size in sorted({preset(row.preset).vocab_size for row in table.rows}))}."
        ],
    )
    return Section(layout, rows, below)
