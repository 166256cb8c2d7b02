"""Shares of tokens per expert or routed head as in Figures 3-4 of the MoA paper: sorted, in percent, a line a layer."""

import io
from collections.abc import Mapping
from pathlib import Path

from headcount.bench.env import drawing
from headcount.bench.errors import UsageError
from headcount.bench.output.files import write
from headcount.bench.routing.stats import LayerRouting


def save(layers: Mapping[str, LayerRouting], path: str | Path) -> None:
    """Write the plot of layers under these labels, in the format that the path's ending names.

    UsageError where that cannot be done, EnvironmentMissing without matplotlib.
    """
    pyplot = drawing()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, layer in layers.items():
        percent = sorted((float(100 * value) for value in layer.shares), reverse=True)
        axes.plot(range(1, len(percent) + 1), percent, marker=".", label=name)
    units = next(iter(layers.values())).routed.units
    axes.set_xlabel(f"{units}, the most used first")
    axes.set_ylabel("share of all choices in %")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    drawn, form = io.BytesIO(), Path(path).suffix[1:] or "png"
    try:
        # no time stamps or random ids: the same run writes the same bytes
        with pyplot.rc_context({"svg.hashsalt": "headcount"}):
            figure.savefig(drawn, format=form, metadata={"Date": None} if form == "svg" else None)
        write(path, drawn.getvalue())
    except ValueError as error:
        raise UsageError(f"cannot write {path}: {error}") from None
    finally:
        pyplot.close(figure)
