"""Grids of prime sizes, counted: printed and left out add up to exact, and counters read what their rules predict."""

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

GRIDS = ("K=1,2,3,5 E=5,7,11 D=13 d_m=19,23 T=17 S=17 B=1,3", "h=2,3,5 d_h=11 d_m=30 T=17,29 B=1,3")


def page(facts: Facts) -> str:
    """A row for each grid."""
    rows = []
    for grid in GRIDS:
        found = facts.grid(grid)
        rows.append(
            {
                "grid": f"`{grid}`",
                "points": found["points"],
                "readings": found["readings"],
                "as predicted": found["as_predicted"],
                "printed + left out = exact": found["add_up"],
                "with a printed equation": found["printed"],
            }
        )
    columns = [Column("grid", "grid"), *(Column(key, key, kind="int") for key in rows[0] if key != "grid")]
    about = (
        "Each point is one layer at prime sizes, built and counted by every counter on the device where it is right. "
        "Points that cannot be built (K > E) are left out."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}"
