"""The report: one markdown file whose every number is computed when it is written."""

from collections.abc import Callable
from functools import partial

from headcount.bench.table import Column
from headcount.reports import (
    audit,
    break_even,
    choosing,
    claims,
    counting,
    departures,
    equations,
    latency,
    markdown,
    memory,
    printed,
    printed_moh,
    quality,
    routing,
    tables,
    torchvision,
)
from headcount.reports.facts import COUNTED, Facts

CLOSED = {"moh": "MoH: where its MACs come from", "jetmoe": "JetMoE-8B"}
"""Papers whose tables are shown in closed form, with the title of their section."""

GLOSSARY = {
    "MACs": "multiply-accumulates; FLOPs are twice as many",
    "exact": "every multiply-accumulate of one forward pass once: projections, router, both T*S products",
    "rule": "what a table's MAC column bills and how it rounds, one for all its rows",
    "reproduced": "the rule prints the paper's number",
    "explained": "it does not, but named ledger entries close the gap, and the sum is shown",
    "no rule": "no rule that bills each contraction a whole number of times prints these rows; the argument is shown",
    "unexplained": "neither; a defect of this software",
    "active parameters": "all but the weights and biases of the E - K experts that a token does not use",
    "routing tax": "a MoA layer's time over that of dense multi-query attention of the same K and D",
    "floor": "the larger of MACs over the peak rate and of unavoidable bytes over the peak bandwidth",
    "loop": "the released MoA algorithm: copies of rows, a loop of products over experts, materialised scores",
}
GRIDS = ("K=1,2,3,5 E=5,7,11 D=13 d_m=19,23 T=17 S=17 B=1,3", "h=2,3,5 d_h=11 d_m=30 T=17,29 B=1,3")


def text(facts: Facts) -> str:
    """The whole report."""
    parts = [
        "# headcount: what the closed forms, the counters and the clock say",
        "Written by `python -m reports`; `python -m reports --check` tells whether it is stale.",
        *(
            markdown.section(title, *(page(facts) for page in pages), level=level)
            for title, level, pages in _sections(facts)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def begin(facts: Facts) -> None:
    """Begin everything that takes long, the longest first, before the pages wait for it one by one."""
    rows = facts.same_models
    for places in rows[:6]:
        facts.begin_rows(places)
    facts.begin(counting.audit)
    for _, _, argv in choosing.DERIVED:
        facts.begin(counting.derivation, argv)
    facts.begin(counting.comparison, *choosing.COMPARED)
    for places in rows[6:]:
        facts.begin_rows(places)
    for spec in GRIDS:
        facts.begin(counting.grid_section, spec)
    claims.begin_counts(facts)


def _sections(facts: Facts) -> list[tuple[str, int, list[Callable[[Facts], str]]]]:
    """Every section's title, its level and its pages."""
    counted = [facts.tables[name] for name in facts.of_paper(COUNTED)]
    pages = (tables.counted, tables.parameters)
    return [
        ("Glossary", 2, [_glossary, equations.legend]),
        ("Where the stored times were measured", 2, [latency.environments]),
        ("Eq. 18-20 as printed and as executed", 2, [equations.comparison, choosing.derived]),
        ("The published tables", 2, [tables.verdicts]),
        *(
            (f"{table.place}: {table.title}", 3, [partial(page, name=table.name) for page in pages])
            for table in counted
        ),
        ("Cost against quality", 2, [quality.page]),
        ("Sizes and training", 3, [quality.sizes, quality.training]),
        *(
            (CLOSED.get(paper, f"Tables of {paper}"), 2, [partial(tables.closed, paper=paper)])
            for paper in dict.fromkeys(table.paper for table in facts.tables.values())
            if paper != COUNTED
        ),
        ("The big models of Table 1, side by side", 2, [choosing.comparison]),
        ("Choosing sizes under a budget", 2, [choosing.budget]),
        ("Formula consistency", 2, [_consistency]),
        ("What each counter misses and adds", 2, [audit.matrix]),
        ("The calls that make each difference", 3, [audit.causes]),
        ("torchvision's own operation counts", 3, [torchvision.page]),
        ("The papers' claims about cost", 2, [claims.page]),
        ("Which rows meet the premise k d_h = d_m", 3, [printed.premises]),
        ("Rows that their table's rule does not print", 3, [printed.rows_without_rule]),
        ("The convolutions of the footnote", 3, [printed.convolutions]),
        ("Vocabularies that the printed parameters imply", 3, [printed.vocabularies]),
        ("Models outside the tables", 3, [printed.unlisted]),
        ("Where MoA Big saves", 3, [printed.savings]),
        ("MoH's released code against its ideal", 3, [printed_moh.released_against_ideal]),
        ("MoH's frozen position table", 3, [printed_moh.frozen_positions]),
        ("Where the load goes, and what experts are for", 2, [routing.page]),
        ("Where this departs from the authors' code", 2, [departures.page]),
        ("Memory and decoding", 2, [memory.layers, memory.models]),
        ("Time per layer", 2, [partial(latency.tables, subject="layer")]),
        ("Time per model", 2, [partial(latency.tables, subject="model")]),
        ("The authors' wall-clock sentence", 2, [latency.sentence]),
        ("MoH: where skipping heads pays", 2, [break_even.tables]),
    ]


def _glossary(facts: Facts) -> str:
    rows = [{"term": term, "meaning": meaning} for term, meaning in GLOSSARY.items()]
    return markdown.table([Column("term", "term"), Column("meaning", "meaning")], rows)


def _consistency(facts: Facts) -> str:
    rows = []
    for grid in GRIDS:
        records = [record for row in facts.grid(grid).rows for record in row.records]
        counted = [r for r in records if r["counter"] != "closed-form"]
        points = [r for r in records if r["counter"] == "closed-form"]
        rows.append(
            {
                "grid": f"`{grid}`",
                "points": len(points),
                "readings": len(counted),
                "as predicted": sum(r["macs"] == r["predicted_macs"] for r in counted),
                "printed + left out = exact": sum(
                    r["printed_equation_macs"] is not None
                    and r["printed_equation_macs"] + sum(r["omitted_macs"].values()) == r["macs"]
                    for r in points
                ),
                "with a printed equation": sum(r["printed_equation_macs"] is not None for r in points),
            }
        )
    columns = [Column("grid", "grid"), *(Column(key, key, kind="int") for key in rows[0] if key != "grid")]
    about = (
        "Each point is one layer at prime sizes, built and counted by every counter on the device where it is right. "
        "Points that cannot be built (K > E) are left out. Each row can be had with `python -m bench.macs --grid`."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}"
