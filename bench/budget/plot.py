"""A search's answer as a picture: what fits in grey, the listed front in colour."""

import io
import textwrap
from pathlib import Path

import numpy as np

from headcount.bench.budget.search import Answer
from headcount.bench.env import drawing
from headcount.bench.errors import UsageError
from headcount.bench.output.files import write

DRAWN = 5000
"""At most so many grey points: more only make the file larger."""


def draw(path: str, title: str, answer: Answer) -> None:
    """MACs against parameters, coloured by active parameters, with a label at each listed point.

    UsageError for a file that is neither .svg nor .png, or cannot be written; EnvironmentMissing without matplotlib.
    """
    if Path(path).suffix not in (".svg", ".png"):
        raise UsageError(f"a plot is an .svg or a .png file, not {path!r}")
    pyplot = drawing()
    found, listed = answer.found.costs, list(answer.listed)
    step = -(-len(answer.found) // DRAWN)
    unit, per_unit = ("G", 1e9) if found["macs"].max() >= 1e11 else ("M", 1e6)
    macs, params, active = found["macs"] / per_unit, found["params"] / 1e6, found["active_params"] / 1e6
    # The area is the cache's, of a model that has one.
    area, label = 80, "listed front"
    if "kv_bytes" in found:
        cache = found["kv_bytes"][listed]
        area, label = 20 + 100 * cache / np.max(cache), "listed front (area: cache bytes)"
    # The same search gives the same file.
    with pyplot.rc_context({"svg.hashsalt": "headcount"}):
        figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
        axes.scatter(macs[::step], params[::step], s=4, color="0.8", label="fits")
        shown = axes.scatter(macs[listed], params[listed], c=active[listed], s=area, label=label)
        middle = sum(axes.get_xlim()) / 2
        for index in listed:
            text = " ".join(f"{size}{letter}" for letter, size in answer.found.at(index).items())
            # Labels grow towards the middle, so that none leaves the axes.
            side, offset = ("left", 5) if macs[index] < middle else ("right", -5)
            at = (macs[index], params[index])
            axes.annotate(text, at, fontsize=7, xytext=(offset, 5), textcoords="offset points", ha=side)
        figure.colorbar(shown, label="active parameters (M)")
        axes.set(xlabel=f"MACs ({unit})", ylabel="parameters (M)")
        axes.set_title("\n".join(textwrap.wrap(title, 80)), fontsize=10)
        figure.legend(loc="outside lower center", ncols=2)
        drawn, form = io.BytesIO(), Path(path).suffix[1:]
        try:
            figure.savefig(drawn, format=form, metadata={"Date": None} if form == "svg" else None)
        finally:
            pyplot.close(figure)
        write(path, drawn.getvalue())
