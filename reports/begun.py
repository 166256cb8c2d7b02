"""What takes long, begun before pages wait for it."""

from headcount.reports import choosing, consistency, counting
from headcount.reports.facts import Facts


def rows(facts: Facts, which: slice) -> None:
    """Rows of the counted tables, those of one model together."""
    for places in facts.same_models[which]:
        facts.begin_rows(places)


def derivations(facts: Facts) -> None:
    """Closed forms found by running, and the comparison of the big models."""
    for _, _, argv in choosing.DERIVED:
        facts.begin(counting.derivation, argv)
    facts.begin(counting.comparison, *choosing.COMPARED)


def grids(facts: Facts) -> None:
    """The grids of prime sizes."""
    for spec in consistency.GRIDS:
        facts.begin(counting.grid_agreement, spec)
