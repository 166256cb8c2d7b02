"""Shares of tokens per expert as in Figures 3-4 of the MoA paper: sorted, in percent, one line for each layer."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from bench.errors import UsageError


def save(shares: Mapping[str, Sequence[Fraction]], path: str | Path) -> None:
    """Write the plot, in the format that the path's ending names. UsageError where that cannot be done."""
    import matplotlib

    # no window, and no display needed
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, values in shares.items():
        percent = sorted((float(100 * value) for value in values), reverse=True)
        axes.plot(range(1, len(percent) + 1), percent, marker=".", label=name)
    axes.set_xlabel("experts, the most used first")
    axes.set_ylabel("share of all choices in %")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    try:
        # no time stamps or random ids: the same run writes the same bytes
        matplotlib.rcParams["svg.hashsalt"] = "headcount"
        figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        pyplot.close(figure)
