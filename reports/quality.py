"""Cost against quality, the paper's own argument: its BLEU and perplexity beside what the models cost; and its
training settings with what an update costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.bench.table import Column
from headcount.formulas.backward import backward
from headcount.formulas.published.data import DataTable
from headcount.reports import markdown, svg
from headcount.reports.facts import COUNTED, Facts

PLOT = "cost_against_quality.svg"
SCALES = {"macs": ("MACs, exact", 10**6, "M"), "params": ("parameters", 10**6, "M")}


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
    """The table and the plot."""
    found = rated(facts)
    measures = list(dict.fromkeys(measure for one in found for measure in one.quality))
    columns = [
        Column("table", "table"),
        Column("row", "row"),
        *(Column(measure, measure, align="right") for measure in measures),
        Column("macs", "MACs, exact", kind="int"),
        Column("params", "parameters, exact", kind="int"),
    ]
    rows = [{**dict.fromkeys(measures), **one.quality, **vars(one)} for one in found]
    about = (
        "BLEU and perplexity (PPL) are the paper's; MACs and parameters are this software's, at the vocabulary and the "
        "lengths of the presets. Cheaper and better is up and left for BLEU, down and left for PPL."
    )
    return f"{about}\n\n![cost against quality]({PLOT})\n\n{markdown.table(columns, rows)}"


def plot(facts: Facts) -> str:
    """BLEU En-De of Tables 1 and 3 and PPL of Table 2, against MACs and against parameters, as SVG."""
    found = rated(facts)
    panels = []
    for measure in ("BLEU En-De", "PPL"):
        for cost, (name, scale, unit) in SCALES.items():
            points = [
                svg.Point(getattr(one, cost) / scale, float(one.quality[measure]), _short(one.row), one.routed)
                for one in found
                if measure in one.quality
            ]
            panels.append(svg.Panel(f"{name} ({unit})", measure, points))
    return svg.figure(panels, {True: "mixture of attention heads", False: "others"})


def _short(row: str) -> str:
    """A row without its reference, and without the word that its colour says."""
    return row.partition(" (")[0].removeprefix("MoA ").replace(":", "")


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
    """Table 6, with the multiply-accumulates of an update."""
    table = facts.data["moa-table6"]
    rows = []
    for entry in table.entries:
        form, length = facts.ledger(entry["preset"]), facts.target_length(entry["preset"])
        tokens = entry["tokens"] * entry["accumulation"]
        step = form.macs + backward(form).macs
        rows.append({**entry, "per_update": tokens, "training_macs": step * tokens // length})
    more = [
        Column("per_update", "tokens an update", kind="int"),
        Column("training_macs", "training MACs an update", unit="TMACs", kind="fixed", scale=10**12, digits=1),
    ]
    about = (
        " Appendix C names 32 V100 and prints no cost. Computed: forward and backward of the preset at the lengths "
        "that the paper counts MACs at, for each of the tokens; longer sequences cost more of the T^2 products."
    )
    return f"{_head(table)}{about}\n\n{_table(table, rows, more)}"


def _head(table: DataTable) -> str:
    return f"{table.source}, {table.place}. {table.about}".strip()


def _table(table: DataTable, rows: Sequence[Mapping[str, Any]] = (), more: Sequence[Column] = ()) -> str:
    columns = [Column(column.key, column.head) for column in table.columns]
    empty = dict.fromkeys(column.key for column in columns)
    return markdown.table([*columns, *more], [{**empty, **row} for row in rows or table.entries])
