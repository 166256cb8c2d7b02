"""A search's answer as a picture: what fits in grey, the listed front in colour."""

from pathlib import Path

import numpy as np

from bench.errors import UsageError
from bench.search import Answer

DRAWN = 5000
"""At most so many grey points: more only make the file larger."""


def draw(path: str, title: str, answer: Answer) -> None:
    """MACs against parameters, coloured by active parameters, with a label at each listed point.

    UsageError for a file that is neither .svg nor .png, or cannot be written.
    """
    if Path(path).suffix not in (".svg", ".png"):
        raise UsageError(f"a plot is an .svg or a .png file, not {path!r}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    costs, listed = answer.found.costs, list(answer.listed)
    step = -(-len(answer.found) // DRAWN)
    # The same search gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "headcount"}):
        figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
        axes.scatter(costs["macs"][::step] / 1e6, costs["params"][::step] / 1e6, s=4, color="0.8", label="fits")
        shown = axes.scatter(
            costs["macs"][listed] / 1e6,
            costs["params"][listed] / 1e6,
            c=costs["active_params"][listed] / 1e6,
            s=20 + 100 * costs["kv_bytes"][listed] / np.max(costs["kv_bytes"][listed]),
            label="listed front (area: cache bytes)",
        )
        for index in listed:
            text = " ".join(f"{size}{letter}" for letter, size in answer.found.at(index).items())
            at = (costs["macs"][index] / 1e6, costs["params"][index] / 1e6)
            axes.annotate(text, at, fontsize=7, xytext=(4, 3), textcoords="offset points")
        figure.colorbar(shown, label="active parameters (M)")
        axes.set(xlabel="MACs (M)", ylabel="parameters (M)", title=title)
        axes.legend(loc="upper left")
        try:
            figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        finally:
            pyplot.close(figure)
