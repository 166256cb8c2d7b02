"""The totals of a lock in the commits of a range, as git stores them, and a badge. No module is counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from operator import attrgetter
from pathlib import Path

from headcount.bench.column import Column, escape_controls, macs_column, plural
from headcount.bench.counting.result import Count
from headcount.bench.env import run_git
from headcount.bench.errors import UsageError, read_file
from headcount.bench.output.figure import figure
from headcount.bench.result import Result, Row, Table, columns_of, shown
from headcount.bench.snapshot import file
from headcount.bench.snapshot.difference import LIMITED, summary

UNITS = {"P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3}


@dataclass(frozen=True)
class HistoryRow(Row):
    """The totals of a target in a commit; None where the lock cannot be read, or has no earlier count of the target."""

    target: str | None = shown(Column, "target", code=True, wraps=12)
    commit: str = shown(Column, "commit", code=True, priority=0, value=attrgetter("short_commit"))
    date: str = shown(Column, "date", priority=2)
    macs: int | None = shown(macs_column, "MACs", priority=0)
    macs_change: int | None = shown(macs_column, "change", sign=True, priority=1)
    params: int | None = shown(Column, "parameters", kind="int", priority=0)
    params_change: int | None = shown(Column, "change", kind="int", sign=True, priority=1)
    subject: str = shown(Column, "subject", wraps=20, priority=1)
    notes: Sequence[str] = ()

    @property
    def short_commit(self) -> str:
        """The first digits of the commit."""
        return self.commit[:10]


def history(revisions: str, path: str, plot: str | None) -> Result:
    """Return a row for each commit of ``revisions`` that changed the lock ``path``, and target, the oldest first.

    Raises UsageError for revisions that git does not know, and where no commit changed the lock.
    """
    folder, name = Path(path).parent, Path(path).name
    if revisions.startswith("-"):
        raise UsageError(f"--history {revisions}: a range of commits is expected, as HEAD or main~20..main")
    # a subject holds no null byte, but may hold what str.splitlines takes for the end of a line
    try:
        log = run_git("log", "-z", "--reverse", "--format=%H%x09%cs%x09%s", revisions, "--", name, folder=folder)
    except UsageError as error:
        raise UsageError(f"--history {revisions}: {error}; --history HEAD reads every commit") from None
    lines = log.decode(errors="replace").rstrip("\0").split("\0") if log else []
    if not lines:
        raise UsageError(f"no commit of {revisions} changed {path}")
    before = _locked_before(lines[0].partition("\t")[0], name, folder)
    rows: list[HistoryRow] = []
    series: dict[str, list[tuple[int, Count]]] = {}
    for place, line in enumerate(lines):
        commit, date, subject = line.split("\t", 2)
        try:
            found = file.parse(run_git("show", f"{commit}:./{name}", folder=folder), path)
        except UsageError as error:
            rows.append(HistoryRow(None, commit, date, None, None, None, None, subject, [str(error)]))
            continue
        for new in found:
            earlier = series.setdefault(new.label, [])
            old = earlier[-1][1] if earlier else before.get(new.label)
            rows.append(
                HistoryRow(
                    new.label,
                    commit,
                    date,
                    new.macs,
                    new.macs - old.macs if old else None,
                    new.params,
                    new.params - old.params if old else None,
                    subject,
                )
            )
            earlier.append((place, new))
    if plot and not series:
        raise UsageError(f"{path} cannot be read in any of these commits, so there is nothing to plot")
    if plot:
        _plot(plot, [line[:7] for line in lines], series)
    several = len(series) > 1
    columns = columns_of(HistoryRow)[0 if several else 1 :]
    table = Table("lock-history", "The lock by commit", columns, rows, note_column="commit")
    texts = [
        f"{target} " * several + summary(before.get(target, found[0][1]), found[-1][1])
        for target, found in series.items()
    ]
    sentence = (
        f"{plural(len(lines), 'commit')} changed {path}: {'; '.join(texts) or 'none has a lock that can be read'}."
    )
    return Result([table], lambda: sentence)


def _locked_before(commit: str, name: str, folder: Path) -> dict[str, Count]:
    """Return the counts of the lock before a commit by target; none where there was no lock that can be read."""
    try:
        return {one.label: one for one in file.parse(run_git("show", f"{commit}~1:./{name}", folder=folder), name)}
    except UsageError:
        return {}


def _plot(plot: str, commits: Sequence[str], series: Mapping[str, Sequence[tuple[int, Count]]]) -> None:
    """Draw the counts of each target by the place of their commit in ``commits``."""
    from matplotlib.ticker import EngFormatter

    with figure(plot, max(6, min(16, 0.4 * len(commits))), 5, rows=len(LIMITED)) as (_, panels):
        for axes, (key, name) in zip(panels, LIMITED.items(), strict=True):
            for target, found in series.items():
                places, counts = zip(*((place, getattr(one, key)) for place, one in found), strict=True)
                axes.plot(places, counts, "o-", drawstyle="steps-post", label=target)
            axes.set_ylabel(name)
            axes.yaxis.set_major_formatter(EngFormatter())
            # room above the largest count: its points are on the frame otherwise
            axes.set_ylim(0, 1.1 * max(getattr(one, key) for found in series.values() for _, one in found) or 1)
            axes.grid(axis="y", alpha=0.3)
        panels[0].legend()
        panels[-1].set_xticks(range(len(commits)), commits, rotation=60, fontsize=7)


def badge(path: str) -> str:
    """Return an SVG with the MACs and parameters of each target of the lock ``path``, to show in a README."""
    locked = file.parse(read_file(path), path)
    # XML has no control characters, not even as references
    targets = [escape_controls(one.label, kept="") for one in locked]
    costs = [f"{one.macs:,} MACs, {one.params:,} parameters" for one in locked]
    title = "; ".join(f"{target}: {cost}" for target, cost in zip(targets, costs, strict=True))
    names = [f"{target}: " * (len(locked) > 1) for target in targets]
    texts = [f"{_short(one.macs)} MACs, {_short(one.params)} params" for one in locked]
    name, text = "cost", " · ".join(map("".join, zip(names, texts, strict=True)))
    # widths of text of 11 pixels in common sans-serif fonts
    left, right = (10 + round(6.4 * len(word)) for word in (name, text))
    return f'''<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">
<title>{escape(title)}</title>
<rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="#1565c0"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">
<text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{escape(text)}</text>
</g>
</svg>
'''


def _short(value: int) -> str:
    unit, size = next(((unit, size) for unit, size in UNITS.items() if value >= size), ("", 1))
    # three digits may round to the next unit
    return f"{float(f'{value / size:.3g}'):,g}{unit}"
