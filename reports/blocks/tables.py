"""Blocks of the papers' tables: printed and counted costs with verdicts, parameters, quality, training, departures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from headcount.formulas.backward import backward
from headcount.formulas.published.claims import load_departures
from headcount.formulas.published.verdicts import VERDICTS
from headcount.reports import document, papers
from headcount.reports.document import File
from headcount.reports.facts import COUNTED, Facts, values_of

OF_MODELS = ("baseline_macs", "released_macs", "ideal_macs", "to_baseline")
"""Columns that compare the forms of a model; another table shows them."""

SIZES = ("trainable_params", "params")
COSTS = ("macs", "active_params", "ideal_active_params")
"""Costs that files of data have of each model, whatever the columns of its table."""


def verdicts(facts: Facts) -> str:
    """Return the number of rows by verdict for each table and in total."""
    return count_verdicts(
        {name: [verdict for verdict, _ in facts.verdicts(name).values()] for name in facts.tables}, "rows"
    )


def count_verdicts(found: Mapping[str, Sequence[str]], what: str) -> str:
    """Return a table of the number of verdicts of each kind in ``found``, by table and in total.

    Kinds with a total of 0 have no column. ``what`` is the heading of the number of all verdicts.
    """
    rows = [{"table": name, what: len(own), **{v: own.count(v) for v in VERDICTS}} for name, own in found.items()]
    rows.append({key: "all" if key == "table" else sum(row[key] for row in rows) for key in rows[0]})
    return document.records([{key: row[key] for key in row if rows[-1][key]} for row in rows])


def counted(facts: Facts, name: str) -> str:
    """Return the rows of table ``name``: MACs printed, under the table's rule and exact, parameters, the verdict."""
    keys = ("macs_printed", "macs_under_rule", "macs", "params", "active_params", "verdict")
    shown = document.rows_of(facts.closed(name), "row", *keys)
    return f"Rule: {facts.tables[name].statement}\n\n{shown}"


def counter_errors(facts: Facts, name: str) -> str:
    """Return the lowest and highest error of each counter over the rows of table ``name``, in percent."""
    rows, reported = facts.closed(name).rows, facts.reported(name)
    parts = []
    for counter in next(iter(reported.values())):
        off = [Fraction(100 * (reported[row.row][counter] - row.macs), row.macs) for row in rows]
        words = f"+{float(min(off)):.2f} to +{float(max(off)):.2f} %" if any(off) else "exact"
        parts.append(f"{counter.replace('-', ' ')} {words}")
    return f"Raw counts, with what the counters add: {', '.join(parts)}. All of them: {moa_csv(facts)}."


def summary(facts: Facts, paper: str) -> str:
    """Return the number of rows of a paper's tables by verdict."""
    found = Counter(row.verdict for table in facts.of_paper(paper) for row in facts.closed(table).rows)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.items())
    return f"{found.total()} rows: {counts}."


def _data(facts: Facts, paper: str) -> str:
    """Return every row of a paper's tables as CSV: with every reported count of COUNTED, the others in closed form."""
    found = []
    for name in facts.of_paper(paper):
        reported = facts.reported(name) if paper == COUNTED else {}
        closed = facts.closed(name)
        for row, values in zip(closed.rows, values_of(closed), strict=True):
            costs = {key: cost for key in COSTS if (cost := getattr(row, key)) is not None}
            found.append({"table": name, **values, **costs, **reported.get(row.row, {})})
    return document.table_as_csv(found)


moa_csv = File("tables.csv", partial(_data, paper="moa"))
moh_csv = File("moh.csv", partial(_data, paper="moh"))


def vocabularies(facts: Facts, name: str) -> str:
    """Return the vocabularies that the printed parameters of table ``name`` imply."""
    implied = facts.vocabularies(name)
    return "\n\n".join([*implied.above, document.rows_of(implied)])


def closed_form_tables(facts: Facts, paper: str) -> str:
    """Return every table of a paper in closed form, without the columns OF_MODELS."""
    parts, legends = [], {}
    for name in facts.of_paper(paper):
        closed, table = facts.closed(name), facts.tables[name]
        *head, legend = closed.above
        left_out = OF_MODELS + (() if table.column("params") else SIZES)
        if all(row.active_params == row.params for row in closed.rows):
            left_out += ("active_params",)
        keys = [column.key for column in closed.columns if column.key not in left_out]
        # print each legend once
        parts += [f"### {table.title[0].upper()}{table.title[1:]}", *head, *([legend] if legend not in legends else [])]
        parts.append(document.rows_of(closed, *keys))
        legends[legend] = None
    return "\n\n".join(parts)


def _quality(facts: Facts) -> list[dict[str, Any]]:
    found = papers.rated(facts)
    measures = dict.fromkeys(measure for one in found for measure in one["quality"])
    return [{"table": one["table"], "row": one["row"], **measures, **one["quality"]} for one in found]


def quality(facts: Facts) -> str:
    """Return the quality figures that the MoA paper prints, such as BLEU and perplexity."""
    rows = _quality(facts)
    return document.records(rows, dict.fromkeys([*rows[0]][2:], {"align": "right"}))


quality_csv = File("quality.csv", lambda facts: document.table_as_csv(_quality(facts)))


def training(facts: Facts) -> str:
    """Return Table 6 of the MoA paper: a column of settings for each training run, with the MACs of an update."""
    table = facts.data["moa-table6"]
    runs = []
    for entry in table.entries:
        form, length = facts.ledger(entry["preset"]), facts.target_length(entry["preset"])
        tokens = entry["tokens"] * entry["accumulation"]
        macs = (form.macs + backward(form).macs) * tokens // length
        runs.append({**entry, "per_update": f"{tokens:,}", "training": f"{float(Fraction(macs, 10**12)):.1f}"})
    settings = table.columns | {"per_update": "tokens an update", "training": "training MACs an update, TMACs"}
    name, *others = settings
    rows = [{settings[name]: settings[key]} | {run[name]: run.get(key) for run in runs} for key in others]
    right = dict.fromkeys((run[name] for run in runs), {"align": "right"})
    return document.records(rows, right)


def about_data(facts: Facts, name: str) -> str:
    """Return the source, the place and the note of a table of printed data."""
    table = facts.data[name]
    return f"{table.source}, {table.place}. {table.about}".strip()


def place(facts: Facts, name: str) -> str:
    """Return the place of a table of printed data in its paper."""
    return facts.data[name].place


def data(facts: Facts, name: str) -> str:
    """Return a table of printed data, with empty cells where an entry has no value."""
    table = facts.data[name]
    rows = [{head: entry.get(key) for key, head in table.columns.items()} for entry in table.entries]
    return document.records(rows, dict.fromkeys(rows[0], {}))


def departures(facts: Facts, paper: str) -> str:
    """Return a table of the departures from one paper's code, each with its consequence in numbers."""
    numbers = papers.departure_numbers(facts)
    rows = [
        {
            "what": one.what,
            "the authors' code": one.theirs + (f" ({one.file})" if one.file else ""),
            "here": f"{one.ours} ({f'field `{one.field}`' if one.field else f'no field: {one.no_field}'})",
            "why": one.why,
            "consequence": one.consequence.format(**numbers) or None,
        }
        for one in load_departures()
        if one.paper == paper
    ]
    return document.records(rows)


def command(facts: Facts, paper: str = "") -> str:
    """Return the command that prints the tables of a paper, or those of all papers."""
    names = facts.of_paper(paper) if paper else facts.tables
    return document.fold(f"python -m bench.macs --counter closed-form --table {' '.join(names)}")
