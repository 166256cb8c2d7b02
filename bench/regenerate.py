"""The published tables again: every row printed, under its table's rule, exact, counted, with a verdict."""

from collections.abc import Iterator, Sequence

from bench.as_json import as_records
from bench.ledgers import describe_input, ledger_of, resolve_lengths
from bench.measure import Measurement, measure
from bench.sections import Row, Section
from bench.table import Column, Table
from formulas import conventions
from formulas.ledger import Ledger
from formulas.published.tables import PublishedTable, load
from formulas.published.tables import Row as PrintedRow
from formulas.verdicts import Verdict, common_vocabulary, implied_vocabulary, judge
from models.presets import preset


def sections(name: str, counters: Sequence[str], device: str | None) -> list[Section]:
    """The table called ``name`` and the vocabularies that its parameter figures imply."""
    table = load(name)
    ledgers = {}
    for row in table.rows:
        config = preset(row.preset)
        ledgers[row.name] = ledger_of(config, resolve_lengths(config, {}))
    verdicts = judge(table, ledgers)
    main = Section(
        _layout(table, counters, device),
        _rows(table, verdicts, counters, device),
        facts={"source": table.source, "place": table.place, "rule": rule_statement(table)},
    )
    return [main, _vocabulary_section(table, ledgers)]


def rule_statement(table: PublishedTable) -> str:
    """The one rule of a table's MAC column, in words."""
    billed = conventions.statement(conventions.by_name(table.convention)).rstrip(".")
    return f"{billed}; {table.macs_printing.statement()}."


def _lengths_statement(table: PublishedTable) -> str:
    inputs = {describe_input(resolve_lengths(preset(row.preset), {})) for row in table.rows}
    return "; ".join(sorted(inputs))


def _layout(table: PublishedTable, counters: Sequence[str], device: str | None) -> Table:
    printed = [
        Column(f"params_printed_{c}", f"params\nprinted\n{c if c != 'params' else ''}".rstrip(), align="right")
        for c in table.params_columns
    ]
    return Table(
        table.name,
        f"{table.name}: {table.title}",
        [
            Column("row", "row", width=31),
            *printed,
            Column("params", "params\ncounted" if counters else "params\nexact", kind="int", width=11),
            Column("active_params", "params\nactive", kind="int", width=11),
            Column("macs_printed", "MACs\nprinted", align="right"),
            Column("macs_under_rule", "MACs under\nthe rule", kind="int", width=13),
            Column("macs", "MACs\nexact", kind="int", width=13),
            *(Column(name, name.replace("-", "\n"), kind="int", width=13) for name in counters),
            Column("verdict", "verdict", width=19),
        ],
        notes_above=[
            f"Source: {table.source}, {table.place}. Input: {_lengths_statement(table)}.",
            f"Rule: {rule_statement(table)}",
            "Exact: every multiply-accumulate of the forward pass once. Counters: raw readings, with what they add.",
        ],
        note_column="verdict",
    )


def _rows(table, verdicts, counters, device) -> Iterator[Row]:
    for row in table.rows:
        config = preset(row.preset)
        lengths = resolve_lengths(config, {})
        measured = measure(config, lengths, counters, device=device, label=row.preset)
        yield _row(table, row, verdicts[row.name], measured)


def _row(table: PublishedTable, row: PrintedRow, verdict: Verdict, measured: Measurement) -> Row:
    failures = measured.disagreements(row.preset)
    reasons = [reason for reason in dict.fromkeys(count.reason for count in measured.counts) if reason]
    if verdict.status != row.verdict:
        failures.append(f"{table.name}, {row.name}: the verdict is {verdict.status!r}, typed as {row.verdict!r}")
    return Row(
        values={
            "row": row.name,
            **{f"params_printed_{column}": row.params.get(column) for column in table.params_columns},
            "params": measured.counted_params if measured.counted_params is not None else measured.ledger.params,
            "active_params": measured.ledger.active_params,
            "macs_printed": row.macs,
            "macs_under_rule": verdict.under_rule,
            "macs": measured.ledger.macs,
            **{count.counter: count.macs for count in measured.counts},
            "verdict": verdict.status,
        },
        notes=[text for text in (verdict.because, *reasons, *failures) if text],
        records=as_records(
            row.preset,
            measured,
            row=row.name,
            macs_printed=row.macs,
            params_printed=dict(row.params),
            macs_under_rule=verdict.under_rule,
            verdict=verdict.status,
            because=verdict.because,
            expected_verdict=row.verdict,
        ),
        failures=failures,
    )


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
