"""Grids of prime sizes, counted: printed and left out add up to exact, and counters read what their rules predict."""

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

GRIDS = ("K=1,2,3,5 E=5,7,11 D=13 d_m=19,23 T=17 S=17 B=1,3", "h=2,3,5 d_h=11 d_m=30 T=17,29 B=1,3")


def page(facts: Facts) -> str:
    """A row for each grid."""
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
        "Points that cannot be built (K > E) are left out."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}"
