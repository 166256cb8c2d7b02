"""Write matplotlib's figures: the same bytes for the same data, whole or not at all."""

import importlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from headcount.bench.errors import UsageError, require_package
from headcount.bench.output.files import write

FORMATS = ("svg", "png", "pdf")
NARROW, WIDE = 10, 1000
"""The quotients of the largest and the least value below which the labels of a logarithmic axis are at equal distances,
and from which on they are powers of 10."""


def drawing() -> ModuleType:
    """Return matplotlib's pyplot with the Agg backend, which needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def check_format(path: str) -> str:
    """Return the format of a plot.

    Raises UsageError for an ending that is none of FORMATS, and EnvironmentMissing without matplotlib.
    """
    form = Path(path).suffix[1:]
    if form not in FORMATS:
        raise UsageError(f"a plot is a file ending in {', '.join(f'.{one}' for one in FORMATS)}, not {path!r}")
    require_package("matplotlib")
    return form


def label_values(axes: Any, values: Iterable[Any]) -> None:
    """Label the logarithmic y axis of ``values`` in units, as 20T, several times however near the values are."""
    from matplotlib.ticker import AutoLocator, EngFormatter, LogLocator

    known = [value for value in values if value] or [1]
    spread = max(known) / min(known)
    # powers of 10 alone may be one label, or none
    steps = LogLocator(subs=(1, 2, 5) if spread < WIDE else (1,))
    axes.yaxis.set_major_locator(AutoLocator() if spread < NARROW else steps)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


@contextmanager
def figure(path: str, width: float, height: float, rows: int = 1) -> Iterator[tuple[Any, Any]]:
    """Yield a figure of this size in inches and its axes, an array for several ``rows``, then write it to ``path``.

    Raises what check_format does, and UsageError for a path that cannot be written.
    """
    form = check_format(path)
    pyplot, drawn = drawing(), io.BytesIO()
    # no date and no random ids
    with pyplot.rc_context({"svg.hashsalt": "headcount"}):
        found, axes = pyplot.subplots(rows, sharex=True, figsize=(width, height), layout="constrained")
        try:
            yield found, axes
            dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            found.savefig(drawn, format=form, metadata=dates.get(form))
        finally:
            pyplot.close(found)
    write(path, drawn.getvalue())
