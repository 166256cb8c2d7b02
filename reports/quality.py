"""Cost against quality, the paper's own argument: its BLEU and perplexity beside what the models cost; and its
training settings with what an update costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from headcount.bench.table import Column
from headcount.formulas.backward import backward
from headcount.formulas.published.data import DataTable
from headcount.reports import markdown
from headcount.reports.facts import COUNTED, Facts


@dataclass(frozen=True)
class Rated:
    """A printed row that the paper rates, with its exact costs."""

    table: str
    row: str
    quality: Mapping[str, str]
    macs: int
    params: int
    routed: bool


def rated(facts: Facts) -> list[Rated]:
    """Every row with a figure of quality, in the tables' order."""
    out = []
    for name in facts.of_paper(COUNTED):
        for row in facts.tables[name].rows:
            if row.quality:
                form = facts.ledger(row.preset)
                routed = any(entry.kind == "expert_linear" for entry in form)
                out.append(Rated(name, row.name, row.quality, form.macs, form.params, routed))
    return out


def page(facts: Facts) -> str:
    """What the paper prints of quality; costs stand with their tables."""
    found = rated(facts)
    measures = list(dict.fromkeys(measure for one in found for measure in one.quality))
    columns = [
        Column("table", "table"),
        Column("row", "row"),
        *(Column(measure, measure, align="right") for measure in measures),
    ]
    rows = [{**dict.fromkeys(measures), **one.quality, **vars(one)} for one in found]
    about = (
        "BLEU and perplexity (PPL) are the paper's; MACs and parameters, in the tables above, are this software's, at "
        "the vocabulary and the lengths of the presets. Cheaper and better is up and left for BLEU, down and left for "
        "PPL."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}"


def sizes(facts: Facts) -> str:
    """Table 5, each number held against the preset's."""
    table = facts.data["moa-table5"]
    for entry in table.entries:
        config = facts.config(entry["preset"])
        for key in entry.keys() - {"data", "preset"}:
            if getattr(config, key) != entry[key]:
                raise ValueError(f"{table.place}: {entry['preset']} has {key} {getattr(config, key)}, not {entry[key]}")
    return f"{_head(table)} Every preset has them.\n\n{_table(table)}"


def training(facts: Facts) -> str:
    """Table 6, a column for each run, with the multiply-accumulates of an update."""
    table = facts.data["moa-table6"]
    runs = []
    for entry in table.entries:
        form, length = facts.ledger(entry["preset"]), facts.target_length(entry["preset"])
        tokens = entry["tokens"] * entry["accumulation"]
        macs = (form.macs + backward(form).macs) * tokens // length
        runs.append({**entry, "per_update": f"{tokens:,}", "training": f"{float(Fraction(macs, 10**12)):.1f}"})
    settings = {column.key: column.head for column in table.columns}
    settings |= {"per_update": "tokens an update", "training": "training MACs an update, TMACs"}
    name, *others = settings
    columns = [Column("setting", settings[name]), *(Column(run[name], run[name], align="right") for run in runs)]
    rows = [{"setting": settings[key], **{run[name]: run.get(key) for run in runs}} for key in others]
    about = (
        " Appendix C names 32 V100 and prints no cost. Computed: forward and backward of the preset at the lengths "
        "that the paper counts MACs at, for each of the tokens; longer sequences cost more of the T^2 products."
    )
    return f"{_head(table)}{about}\n\n{markdown.table(columns, rows)}"


def _head(table: DataTable) -> str:
    return f"{table.source}, {table.place}. {table.about}".strip()


def _table(table: DataTable) -> str:
    columns = [Column(column.key, column.head) for column in table.columns]
    empty = dict.fromkeys(column.key for column in columns)
    return markdown.table(columns, [{**empty, **entry} for entry in table.entries])
