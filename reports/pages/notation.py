"""The letters and terms of the pages."""

from headcount.bench.table import Column
from headcount.formulas.symbols import LEGEND
from headcount.reports import document
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts

ORDER = 80


def page(facts: Facts) -> Page:
    """The page."""
    return Page(
        "notation",
        "Notation",
        lambda facts: "The field's letters, with the code's words for them.",
        [Section("Terms", [terms]), Section("Letters", [legend])],
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


def terms(facts: Facts) -> str:
    """What the pages' words mean."""
    rows = [{"term": term, "meaning": meaning} for term, meaning in GLOSSARY.items()]
    return document.table([Column("term", "term"), Column("meaning", "meaning")], rows)


def legend(facts: Facts) -> str:
    """Every letter with its word in the code and its meaning."""
    columns = [Column("letter", "letter"), Column("word", "in the code"), Column("meaning", "meaning")]
    rows = [{"letter": f"${s.latex}$", "word": f"`{s.word}`" if s.word else "", "meaning": s.meaning} for s in LEGEND]
    return document.table(columns, rows)
