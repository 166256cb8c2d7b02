"""Choosing an attention and its sizes: cost, cache, memory and decoding, and searches under a budget."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from headcount.bench.table import Section as TableSection
from headcount.reports import counting, document, papers
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.papers import DECODING, GENERATION, LANGUAGE, LAYERS, TRAINING, TRANSLATION
from headcount.reports.plots import choose as plots

ACCOUNTS = (*DECODING, *TRAINING)
DATA = "layers.csv"
WIDTH, LENGTHS = 512, (128, 1024)
GRID = f"grid '{LAYERS['MoA 8K8E128D']} d_m={WIDTH} T={','.join(map(str, LENGTHS))}'"
COMMAND = f"headcount {GRID} {papers.CLOSED} --columns {' '.join(ACCOUNTS)}"


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "choose",
        "Choosing an attention and its sizes",
        "The cost of layers and models compared: MACs, cache, decoding, training.",
        [
            Section("Cost by length", [plots.OVER_MHA], [plots.COST_COMMAND]),
            Section("Roofline bounds of decoding and prefill", [plots.ROOFLINE], [plots.ROOFLINE_COMMAND]),
            Section("Memory and decoding of a layer", [layers], [COMMAND]),
            Section("Memory and decoding of a model", [models], [papers.COMMAND_OF_MODELS]),
            Section(
                "Sizes under a budget",
                [plots.FRONT, budget],
                [f"python -m bench.budget {argv}" for argv in papers.BUDGETS.values()],
            ),
        ],
        {DATA: data},
    )


def _layers(facts: Facts) -> TableSection:
    """Return the accounts of attention layers of width 512, one sequence, by length."""
    layers = [(name, f"{sizes} d_m={WIDTH}") for name, sizes in LAYERS.items()]
    return facts.result(counting.layer_accounts, layers, LENGTHS, ACCOUNTS)


def data(facts: Facts) -> str:
    """Return the same as CSV."""
    return document.table_as_csv([row.values for row in _layers(facts).rows])


def layers(facts: Facts) -> str:
    """Return a summary and tables of the same."""
    found = _layers(facts)
    shown = [document.rows_of(found, "layer", "T", *part) for part in (DECODING, TRAINING)]
    about = text("choose.layers", element_bytes=counting.ASSUMED.element_bytes)
    return "\n\n".join([about, f"{_reading([row.values for row in found.rows])} {document.link_csv(DATA)}", *shown])


def _reading(rows: Sequence[Mapping[str, Any]]) -> str:
    # round up to a bound
    highest = ceil(100 * max(row["decode_intensity"] for row in rows)) / 100
    most, least = (choose(rows, key=lambda row: row["kv_token_bytes"]) for choose in (max, min))
    return text("choose.reading", highest=highest, most=most, least=least)


def models(facts: Facts) -> str:
    """Return the accounts of models that decode: translation models 128 tokens, language models a full context."""
    parts = []
    for group, names, length in (("translation", TRANSLATION, 128), ("language", LANGUAGE, 2048)):
        parts.append(text(f"choose.{group}"))
        parts += [document.rows_of(facts.model_accounts(names, length, shown)) for shown in (DECODING, GENERATION)]
    return "\n\n".join(parts)


def budget(facts: Facts) -> str:
    """Return a search for MoA and one for MoH, each around a dense model."""
    parts = []
    for variant, argv in papers.BUDGETS.items():
        found = facts.budget(argv)
        shown, same = _varying_columns(found)
        parts += [text(f"choose.budget_{variant}") + same, document.rows_of(found, *shown, code="preset")]
    return "\n\n".join(parts)


def _varying_columns(section: TableSection) -> tuple[list[str], str]:
    """Return the keys of the columns that vary, and a sentence with the constant columns."""
    columns, first = section.table.columns, section.rows[0].values
    differ = {c.key: len({row.values[c.key] for row in section.rows}) > 1 for c in columns}
    same = [f"{' '.join(c.head_lines)} = {c.text(first[c.key])}" for c in columns if not differ[c.key]]
    return [key for key, does in differ.items() if does], f" In all rows {', '.join(same)}." if same else ""
