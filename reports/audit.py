"""How each counter reads each spelling of a layer, and the calls behind every difference, on cpu and on meta."""

from headcount.reports import results

ABOUT = (
    "Each row is one way of writing MHA, MoA or a vocabulary projection, at small sizes. Cells are a counter's "
    "reading less the exact count, in multiply-accumulates; our own count is the column `right`. "
    "`python -m bench.macs --audit` prints it, and exits 1 if a difference is not explained to the last unit."
)
_CAUSES = "\n## audit: the calls that make each difference\n"


def matrix() -> str:
    """Reading less exact for every spelling, device and counter."""
    return f"{ABOUT}\n\n{_table(results.audit().split(_CAUSES)[0])}"


def causes() -> str:
    """The calls that sum to each difference, with their places in the tools' sources."""
    return _table(results.audit().split(_CAUSES)[1])


def _table(text: str) -> str:
    """What stands from the table on: the table and its footnotes."""
    return text[text.index("\n|") :].strip()
