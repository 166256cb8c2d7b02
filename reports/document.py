"""The report: one markdown file whose every number is computed when it is written."""

from functools import partial

from bench.table import Column
from formulas.published import tables as published
from reports import (
    audit,
    break_even,
    choosing,
    claims,
    equations,
    latency,
    markdown,
    memory,
    printed,
    results,
    tables,
)

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


def text() -> str:
    """The whole report."""
    audits = (partial(results.audit, device) for device in audit.DEVICES)
    results.prefetch(results.macs, *audits, *(partial(results.grid, grid) for grid in GRIDS))
    parts = ["# headcount: what the closed forms, the counters and the clock say"]
    parts.append("Written by `python -m reports`; `python -m reports --check` tells whether it is stale.")
    parts.append(markdown.section("Glossary", _glossary(), equations.legend()))
    parts.append(markdown.section("Where the stored times were measured", latency.environments()))
    parts.append(markdown.section("Eq. 18-20 as printed and as executed", equations.comparison(), choosing.derived()))
    parts.append(markdown.section("The published tables", tables.verdicts()))
    for name in published.MOA_NAMES:
        table = results.published(name)
        heading = f"{table['place']}: {published.load(name).title}"
        parts.append(markdown.section(heading, tables.counted(name), tables.parameters(name), level=3))
    parts.append(markdown.section("MoH: where its MACs come from", tables.moh()))
    parts.append(markdown.section("The big models of Table 1, side by side", choosing.comparison()))
    parts.append(markdown.section("Choosing sizes under a budget", choosing.budget()))
    parts.append(markdown.section("Formula consistency", _consistency()))
    parts.append(markdown.section("What each counter misses and adds", audit.matrix()))
    parts.append(markdown.section("The calls that make each difference", audit.causes(), level=3))
    parts.append(markdown.section("The papers' claims about cost", claims.page(), printed.ratios()))
    parts.append(markdown.section("Which rows meet the premise k d_h = d_m", printed.premises(), level=3))
    parts.append(markdown.section("Rows that their table's rule does not print", printed.rows_without_rule(), level=3))
    parts.append(markdown.section("The convolutions of the footnote", printed.convolutions(), level=3))
    parts.append(markdown.section("Vocabularies that the printed parameters imply", printed.vocabularies(), level=3))
    parts.append(markdown.section("Models outside the tables", printed.unlisted(), level=3))
    parts.append(markdown.section("Where MoA Big saves", printed.savings(), level=3))
    parts.append(markdown.section("Memory and decoding", memory.layers(), memory.models()))
    parts.append(markdown.section("Time per layer", latency.tables("layer")))
    parts.append(markdown.section("Time per model", latency.tables("model")))
    parts.append(markdown.section("The authors' wall-clock sentence", latency.sentence()))
    parts.append(markdown.section("MoH: where skipping heads pays", break_even.tables()))
    return "\n\n".join(parts) + "\n"


def _glossary() -> str:
    rows = [{"term": term, "meaning": meaning} for term, meaning in GLOSSARY.items()]
    return markdown.table([Column("term", "term"), Column("meaning", "meaning")], rows)


def _consistency() -> str:
    rows = []
    for grid in GRIDS:
        records = results.grid(grid)["rows"]
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
