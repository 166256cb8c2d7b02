"""The modules of a counted user module as a table: outputs, parameters, MACs and totals. Imports no torch."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from headcount.bench.contractions import summary
from headcount.bench.errors import require_package
from headcount.bench.isolated.module_count import ModuleCount
from headcount.bench.macs.module import where_counted
from headcount.bench.output.figure import check_figure_path, figure
from headcount.bench.output.files import check_writable
from headcount.bench.table import Row, Section, plural

MAX_BARS = 30
LONGEST = 50
"""The most bars of a plot, and characters of a label."""


def section(spec: str, count: ModuleCount, depth: int | None = 3) -> Section:
    """Return the tree of the target ``spec``, ``depth`` levels deep, with totals, notes and uncalled modules below.

    JSON has the products, parameters and operations too, as ``bench.macs --module`` prints them.
    """
    notes = where_counted(count)
    if count.with_elementwise != count.macs:
        apart = count.with_elementwise - count.dispatched
        notes.append(f"Not in it: {apart:,} MACs written elementwise and summed (--elementwise include counts them).")
    if count.unsupported:
        calls = sum(line["calls"] for line in count.unsupported)
        notes.append(f"A partial count, without {plural(calls, 'unsupported call')}.")
    names = "device why_not_meta macs headline dispatched with_elementwise params trainable_params active_params"
    names += " weight_bytes inputs parameters audit libraries notes bytes_moved causal_macs other_flops measured"
    facts = {name: getattr(count, name) for name in names.split()}
    facts |= {
        "class": count.name,
        "spec": spec,
        "ledger": count.ledger.as_records(),
        "uncalled_modules": count.uncalled_modules(),
    }
    return replace(summary.section(count, [*notes, *count.notes], depth), facts=facts)


def check_plot(path: str) -> None:
    """Raise UsageError for a path that no plot can be written to, EnvironmentMissing without matplotlib."""
    check_figure_path(path)
    require_package("matplotlib")
    check_writable(path)


def plot(path: str, printed: Section) -> None:
    """Draw the share of MACs of each innermost module of a tree that has any, in the order of the model."""
    bars = [(label, float(row.values["share"])) for label, row in leaves(printed.rows) if row.values["share"]]
    large = sorted(sorted(range(len(bars)), key=lambda number: -bars[number][1])[:MAX_BARS])
    others = [share for number, (_, share) in enumerate(bars) if number not in large]
    bars = [bars[number] for number in large] + ([(plural(len(others), "other"), sum(others))] if others else [])
    labels = [label if len(label) <= LONGEST else f"…{label[-LONGEST:]}" for label, _ in bars]
    shares = [share for _, share in bars]
    with figure(path, 8, 1.2 + 0.28 * len(bars)) as (_, axes):
        # labels may be equal
        drawn = axes.barh(range(len(bars)), shares, color="steelblue")
        axes.bar_label(drawn, [f"{share:.1f}" if share >= 0.05 else "<0.1" for share in shares], padding=3, fontsize=8)
        axes.set_yticks(range(len(bars)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel="share of MACs in %", xlim=(0, 1.1 * max(shares, default=1)))
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{printed.table.title}: {printed.facts['macs']:,} MACs", fontsize=10)


def leaves(rows: list[Row]) -> Iterator[tuple[str, Row]]:
    """Iterate over the rows of a tree without rows inside, each with its path."""
    names: list[str] = []
    levels = [len(row.values["module"]) - len(row.values["module"].lstrip()) for row in rows]
    for row, level, after in zip_longest(rows, levels, levels[1:], fillvalue=0):
        depth = level // len(summary.INDENT)
        names[depth:] = [row.values["module"].strip()]
        if after <= level:
            yield ".".join(names[1:] or names), row
