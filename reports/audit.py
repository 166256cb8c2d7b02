"""How each counter reads each spelling of a layer, and the calls behind every difference, on cpu and on meta."""

from headcount.reports import markdown
from headcount.reports.facts import Facts

ABOUT = (
    "Each row is one way of writing MHA, MoA or a vocabulary projection, at small sizes. Cells are a counter's "
    "reading less the exact count, in multiply-accumulates; our own count is the column `right`. "
    "`python -m bench.macs --audit` prints it, and exits 1 if a difference is not explained to the last unit."
)


def matrix(facts: Facts) -> str:
    """Reading less exact for every spelling, device and counter."""
    readings, _ = facts.audit()
    return f"{ABOUT}\n\n{markdown.rows_of(readings)}"


def causes(facts: Facts) -> str:
    """The calls that sum to each difference, with their places in the tools' sources."""
    _, calls = facts.audit()
    return markdown.rows_of(calls)
