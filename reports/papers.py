"""The pages of the papers: their tables and equations, and their sentences."""

from functools import partial

from headcount.reports import (
    begun,
    choosing,
    claims,
    departures,
    equations,
    printed,
    printed_moh,
    quality,
    routing,
    tables,
)
from headcount.reports.document import Page, Section
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.plots import quality as quality_plot
from headcount.reports.plots import share, waterfall
from headcount.reports.plots import tables as tables_plot
from headcount.reports.plots.plot import files


def moa(facts: Facts) -> Page:
    """The MoA paper, with JetMoE, whose attention is of its kind."""
    derived = [f"python -m bench.derive {argv}" for _, _, argv in choosing.DERIVED]
    compared = f"python -m bench.macs --compare {' '.join(choosing.COMPARED)}"

    def start(facts: Facts) -> None:
        begun.rows(facts, slice(None))
        begun.derivations(facts)

    return Page(
        "moa",
        "Mixture of attention heads",
        lambda facts: facts.claims.papers["moa"].source + ".",
        [
            Section("Eq. 18-20 as printed and as executed", [equations.comparison, choosing.derived], derived),
            Section("Printed MACs against the rule", [tables_plot.PLOT.shown], ["python -m bench.macs"]),
            *(
                Section(
                    f"{facts.tables[name].place}: {facts.tables[name].title}",
                    [partial(part, name=name) for part in (tables.counted, tables.readings, tables.parameters)],
                    [f"python -m bench.macs --table {name}"],
                )
                for name in facts.of_paper(COUNTED)
            ),
            Section("Cost against quality", [quality_plot.PLOT.shown, quality.page], []),
            Section("Sizes and training", [quality.sizes, quality.training], []),
            Section(
                "The big models of Table 1, side by side",
                [waterfall.PLOT.shown, choosing.comparison, printed.savings],
                [compared],
            ),
            Section("JetMoE", [partial(tables.of_paper, paper="jetmoe")], ["python -m bench.macs --table jetmoe"]),
            Section(
                "Where this departs from the authors' code",
                [departures.about, partial(departures.page, paper="moa")],
                [],
            ),
            Section("Other numbers", [printed.premises, printed.convolutions, printed.unlisted], []),
            Section("Where the load goes", [routing.page], ["python -m bench.routing --example --record"]),
        ],
        files(tables_plot.PLOT, quality_plot.PLOT, waterfall.PLOT) | {tables.DATA: tables.data},
        start,
    )


def moh(facts: Facts) -> Page:
    """The MoH paper."""
    every = [f"python -m bench.macs --table {' '.join(facts.of_paper('moh'))}"]
    return Page(
        "moh",
        "Mixture-of-head attention",
        lambda facts: facts.claims.papers["moh"].source + ".",
        [
            Section("The published tables", [partial(tables.of_paper, paper="moh")], every),
            Section("Released code against ideal", [share.PLOT.shown, printed_moh.released_against_ideal], every),
            Section(
                "The frozen position table", [printed_moh.frozen_positions], ["python -m bench.macs --table moh-dit"]
            ),
            Section(
                "Where this departs from the authors' code",
                [departures.about, partial(departures.page, paper="moh")],
                [],
            ),
        ],
        files(share.PLOT),
    )


def sentences(facts: Facts) -> Page:
    """What both papers say about cost."""
    return Page(
        "claims",
        "The papers' sentences about cost",
        claims.how,
        [Section(paper.name, [partial(claims.page, paper=key)], []) for key, paper in facts.claims.papers.items()],
        begin=claims.begin_counts,
    )
