"""Blocks of choosing an attention and its sizes: cost, cache, memory and decoding, and searches under a budget."""

from collections.abc import Sequence
from itertools import groupby
from math import ceil
from typing import Any

from headcount.bench.budget.search import BudgetRow
from headcount.bench.macs.columns import account_column
from headcount.bench.result import Table, columns_of
from headcount.reports import counting, document, papers
from headcount.reports.counting import LayerRow
from headcount.reports.document import File
from headcount.reports.facts import Facts, values_of
from headcount.reports.papers import DECODING, GENERATION, LANGUAGE, LAYERS, TRAINING, TRANSLATION
from headcount.reports.plots import choose as plots

over_mha_plot, front_plot, roofline_plot = plots.OVER_MHA, plots.FRONT, plots.ROOFLINE

ACCOUNTS = (*DECODING, *TRAINING)
WIDTH, LENGTHS = 512, (128, 1024)


def _layers(facts: Facts) -> Table[LayerRow]:
    """Return the accounts of attention layers of width 512, one sequence, by length."""
    layers = [(name, f"{sizes} d_m={WIDTH}") for name, sizes in LAYERS.items()]
    rows = facts.result(counting.layer_accounts, layers, LENGTHS, ACCOUNTS)
    columns = [*columns_of(LayerRow), *(account_column(name) for name in ACCOUNTS)]
    return Table("layers", "layers", columns, rows, note_column="layer")


layers_csv = File("layers.csv", lambda facts: document.table_as_csv(values_of(_layers(facts))))


def layers(facts: Facts) -> str:
    """Return tables of the same."""
    return "\n\n".join(document.rows_of(_layers(facts), "layer", "T", *part) for part in (DECODING, TRAINING))


def reading(facts: Facts) -> dict[str, Any]:
    """Return the highest intensity of decoding, and the layers with the largest and the smallest cache."""
    rows = values_of(_layers(facts))
    most, least = (choose(rows, key=lambda row: row["kv_token_bytes"]) for choose in (max, min))
    return {
        "element_bytes": counting.ASSUMED.element_bytes,
        # round up to a bound
        "highest": ceil(100 * max(row["decode_intensity"] for row in rows)) / 100,
        "most": most["kv_token_bytes"],
        "most_layer": most["layer"],
        "least": least["kv_token_bytes"],
        "least_layer": least["layer"],
    }


def cheapest(facts: Facts) -> str:
    """Return the layer with the fewest MACs by length, of those whose code exists and of the ideal forms."""
    ratios = plots.cost_data(facts)
    ideal = {name.removesuffix(plots.IDEAL): ratio for name, ratio in ratios.items() if name.endswith(plots.IDEAL)}
    runs = {name: ratio for name, ratio in ratios.items() if not name.endswith(plots.IDEAL)}
    return (
        f"Of the layers whose code exists, the one with the fewest MACs is {_fewest(runs)}. MoH would have fewer if "
        f"its code skipped the heads that are not selected, which the released code does not: {_fewest(ideal)}."
    )


def _fewest(ratios: dict[str, list[float]]) -> str:
    """Return the layer with the smallest ratio for each span of lengths, with its ratios at both ends."""
    names = [min(ratios, key=lambda name: ratios[name][place]) for place in range(len(plots.LENGTHS))]
    spans = []
    for name, places in groupby(range(len(names)), key=names.__getitem__):
        first, *_, last = [*places] * 2
        at = f"{plots.LENGTHS[first]:,} to {plots.LENGTHS[last]:,}" if first < last else f"{plots.LENGTHS[first]:,}"
        spans.append(f"{name} at T = {at} ({ratios[name][first]:.2f} to {ratios[name][last]:.2f} times MHA)")
    return ", then ".join(spans)


def translation_models(facts: Facts) -> str:
    """Return the accounts of translation models that decode 128 tokens."""
    return _models(facts, TRANSLATION, 128)


def language_models(facts: Facts) -> str:
    """Return the accounts of language models that decode a full context."""
    return _models(facts, LANGUAGE, 2048)


def _models(facts: Facts, names: Sequence[str], length: int) -> str:
    shown = (document.rows_of(facts.model_accounts(names, length, columns)) for columns in (DECODING, GENERATION))
    return "\n\n".join(shown)


def budget(facts: Facts, variant: str) -> dict[str, str]:
    """Return a search around a dense model: a table, and a sentence with the columns that are constant in it."""
    found = facts.budget(papers.BUDGETS[variant])
    shown, same = _varying_columns(found)
    return {"constant": same, "table": document.rows_of(found, *shown, code="target")}


def found(facts: Facts, search: str) -> str:
    """Return the rows of a search."""
    return document.rows_of(facts.budget(search), code="target")


def _varying_columns(table: Table[BudgetRow]) -> tuple[list[str], str]:
    """Return the keys of the columns that vary, and a sentence with the constant columns."""
    columns, first = table.columns, table.rows[0]
    differ = {c.key: len({c.read(row) for row in table.rows}) > 1 for c in columns}
    same = [f"{' '.join(c.head_lines)} = {c.text(c.read(first))}" for c in columns if not differ[c.key]]
    return [key for key, does in differ.items() if does], f" In all rows {', '.join(same)}." if same else ""
