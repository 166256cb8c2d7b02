"""The vocabularies that a table's printed parameters imply, where no rule judges them."""

from collections.abc import Mapping

from headcount.bench.table import Column, Row, Section, Table
from headcount.formulas.published.columns import Case
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import common_vocabulary, implied_vocabulary


def section(table: PublishedTable, cases: Mapping[str, Case], sizes: set[int]) -> Section:
    """A row for each of the table's, and below whether one vocabulary fits them all; ``sizes``: those of the models."""
    params = table.column("params")
    ranges = {
        name: {
            row.name: implied_vocabulary(row.cells["params"][name], params.printing, cases[row.name].ledger)
            for row in table.rows
            if name in row.cells.get("params", {})
        }
        for name in params.names
    }
    columns = [Column("row", "row")]
    for name in params.names:
        label = "" if name == "params" else name
        columns += [
            Column(f"printed_{name}", f"params printed\n{label}".rstrip(), align="right", priority=2),
            Column(
                f"low_{name}", f"vocabulary\n{label}\nfrom" if label else "vocabulary\nfrom", kind="int", priority=0
            ),
            Column(f"high_{name}", "\n\nto" if label else "\nto", kind="int", priority=0),
        ]
    rows = []
    for row in table.rows:
        values = {"row": row.name}
        for name in params.names:
            found = ranges[name].get(row.name)
            values[f"printed_{name}"] = found and found.printed
            values[f"low_{name}"] = found and found.low
            values[f"high_{name}"] = found and found.high
        rows.append(Row(values, records=[dict(values)]))
    below = []
    for name, found in ranges.items():
        both = common_vocabulary(list(found.values()))
        which = "" if name == "params" else f"{name}: "
        if both.low <= both.high:
            below.append(f"{which}vocabularies {both.low:,} to {both.high:,} fit every row.")
        else:
            below.append(
                f"{which}no vocabulary fits every row: one needs at least {both.low:,}, another at most {both.high:,}."
            )
    layout = Table(
        f"{table.name}-vocabulary",
        f"{table.name}: vocabularies that the printed parameters imply",
        columns,
        notes_above=[
            f"Closed-form parameters {params.printing.statement()}, at every vocabulary size; the models above "
            f"have {', '.join(f'{size:,}' for size in sorted(sizes))}."
        ],
    )
    return Section(layout, rows, below)
