"""The totals of a lock in the commits of a range, as git stores them, and a badge of the lock. Nothing is counted."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from headcount.bench.cli import Work
from headcount.bench.env import run_git
from headcount.bench.errors import UsageError
from headcount.bench.output.figure import check_figure_path, figure
from headcount.bench.snapshot import file
from headcount.bench.table import Column, Row, Section, Table, plural

QUANTITIES = {"macs": "MACs", "params": "parameters"}
UNITS = {"T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3}
TABLE = Table(
    "lock-history",
    "The lock by commit",
    (
        Column("commit", "commit", code=True, priority=0),
        Column("date", "date", priority=2),
        Column("macs", "MACs", kind="int", of="MACs", priority=0),
        Column("macs_change", "change", kind="int", of="MACs", sign=True, priority=1),
        Column("params", "parameters", kind="int", priority=0),
        Column("params_change", "change", kind="int", sign=True, priority=1),
        Column("subject", "subject", wraps=20, priority=1),
    ),
    note_column="commit",
)


def history(revisions: str, path: str, plot: str | None) -> Work:
    """Return a row for each commit of ``revisions`` that changed the lock ``path``, the oldest first.

    Raises UsageError for revisions that git does not know, and where no commit changed the lock.
    """
    folder, name = Path(path).parent, Path(path).name
    if plot:
        check_figure_path(plot)
    if revisions.startswith("-"):
        raise UsageError(f"--history {revisions}: a range of commits is expected, as main~20..main")
    lines = run_git("log", "--reverse", "--format=%H%x09%cs%x09%s", revisions, "--", name, folder=folder).splitlines()
    if not lines:
        raise UsageError(f"no commit of {revisions} changed {path}")
    rows, before = [], dict.fromkeys(QUANTITIES)
    for line in lines:
        commit, date, subject = line.split("\t", 2)
        values: dict[str, Any] = dict.fromkeys(column.key for column in TABLE.columns)
        values |= {"commit": commit[:10], "date": date, "subject": subject}
        notes = []
        try:
            locked = file.parse(run_git("show", f"{commit}:./{name}", folder=folder), path)
        except UsageError as error:
            notes = [str(error)]
        else:
            after = {key: getattr(locked, key) for key in QUANTITIES}
            changes = {f"{key}_change": after[key] - before[key] for key in QUANTITIES if before[key] is not None}
            values, before = values | after | changes, after
        rows.append(Row(values, notes, [values | {"commit": commit}]))
    if plot:
        _plot(plot, path, rows)
    return Work([Section(TABLE, rows)], result=lambda _: _summary(path, rows))


def _summary(path: str, rows: Sequence[Row]) -> str:
    found = [row.values for row in rows if row.values["macs"] is not None]
    steps = [
        f"{found[0][key]:,} {unit}" + (f" -> {found[-1][key]:,}" if found[0][key] != found[-1][key] else "")
        for key, unit in QUANTITIES.items()
        if found
    ]
    return f"{plural(len(rows), 'commit')} changed {path}: {', '.join(steps) or 'none has a lock that can be read'}."


def _plot(plot: str, path: str, rows: Sequence[Row]) -> None:
    found = [row.values for row in rows if row.values["macs"] is not None]
    if not found:
        raise UsageError(f"{path} cannot be read in any of these commits, so there is nothing to plot")
    with figure(plot, max(6, min(16, 0.4 * len(found))), 5, rows=len(QUANTITIES)) as (_, panels):
        for axes, (key, name) in zip(panels, QUANTITIES.items(), strict=True):
            unit, size = _unit(max(value[key] for value in found))
            axes.plot(range(len(found)), [value[key] / size for value in found], "o-", drawstyle="steps-post")
            axes.set_ylabel(f"{name} ({unit})" if unit else name)
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", alpha=0.3)
        panels[-1].set_xticks(range(len(found)), [value["commit"][:7] for value in found], rotation=60, fontsize=7)


def badge(path: str) -> str:
    """Return an SVG with the MACs and parameters of the lock ``path``, to show in a README."""
    locked = file.read(path)
    name, text = "cost", f"{_short(locked.macs)}MACs, {_short(locked.params)}params"
    title = escape(f"{locked.name}: {locked.macs:,} MACs, {locked.params:,} parameters")
    # widths of text of 11 pixels in common sans-serif fonts
    left, right = (10 + round(6.4 * len(word)) for word in (name, text))
    return f'''<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">
<title>{title}</title>
<rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="#1565c0"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">
<text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{text}</text>
</g>
</svg>
'''


def _short(value: int) -> str:
    unit, size = _unit(value)
    return f"{value / size:.3g} {unit}"


def _unit(value: int) -> tuple[str, int]:
    return next(((unit, size) for unit, size in UNITS.items() if value >= size), ("", 1))
