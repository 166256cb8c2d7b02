"""How each counter reads each spelling of a layer, and the calls behind every difference, on cpu and on meta."""

from reports import results

DEVICES = ("cpu", "meta")
"""Asked for one by one, so that the text is the same on a machine with a GPU."""

ABOUT = (
    "Each row is one way of writing MHA, MoA or a vocabulary projection, at small sizes. Cells are a counter's "
    "reading less the exact count, in multiply-accumulates; our own count is the column `right`. "
    "`python -m bench.macs --audit` prints it, and exits 1 if a difference is not explained to the last unit."
)
_CAUSES = "\n## audit: the calls that make each difference\n"


def matrix() -> str:
    """Reading less exact for every spelling and counter, a table per device."""
    return "\n\n".join([ABOUT, *(f"On {device}:\n\n{_parts(device)[0]}" for device in DEVICES)])


def causes() -> str:
    """The calls that sum to each difference, with their places in the tools' sources, a table per device."""
    return "\n\n".join(f"On {device}:\n\n{_parts(device)[1]}" for device in DEVICES)


def _parts(device: str) -> tuple[str, str]:
    """The two tables of an audit without their headings."""
    text = results.audit(device)
    first, second = text.split(_CAUSES)
    return _table(first), _table(second)


def _table(text: str) -> str:
    """What stands from the table on: the table and its footnotes."""
    return text[text.index("\n|") :].strip()
