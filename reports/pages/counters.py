"""Each counter's errors: by formulation, on grids of prime sizes, and by version of ptflops."""

from collections.abc import Mapping
from typing import Any

from headcount.reports import audit, counting, document
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts
from headcount.reports.plots import heat

GRIDS = ("K=1,2,3,5 E=5,7,11 D=13 d_m=19,23 T=17 S=17 B=1,3", "h=2,3,5 d_h=11 d_m=30 T=17,29 B=1,3")
RECORD, PTFLOPS = "ptflops.json", "ptflops.csv"


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "counters",
        "What each counter misses and adds",
        "ptflops (two backends), fvcore and PyTorch's own counter, compared with headcount's count.",
        [
            Section("Counts by formulation", [audit.summary_sentence, heat.PLOT, audit.summary], [audit.COMMAND]),
            Section("Causes of the differences", [audit.causes, audit.failed_calls], [audit.COMMAND]),
            Section("On grids of prime sizes", [grids], [f"python -m bench.macs --grid '{spec}'" for spec in GRIDS]),
            Section("ptflops of the papers' time", [older_ptflops], ["make ptflops"]),
        ],
        {audit.REPORTED_COUNTS: audit.reported_counts, audit.CALLS: audit.calls, PTFLOPS: ptflops_data},
    )


def grids(facts: Facts) -> str:
    """Return a row for each grid."""
    rows = [{"grid": f"`{grid}`", **facts.result(counting.grid_agreement, grid)} for grid in GRIDS]
    return f"{text('counters.grids')}\n\n{document.records(rows)}"


def older_ptflops(facts: Facts) -> str:
    """Return how many modules each version reads exactly, and the counts of the models that differ between them."""
    found = facts.stored_json(RECORD)
    exact, readings = found["exact"], found["readings"]
    equal = {one["version"]: sum(one["macs"][name] == size for name, size in exact.items()) for one in readings}
    about = text(
        "counters.ptflops",
        modules=len(exact),
        torch=found["torch"],
        exactly=", ".join(f"{version} reads {count} exactly" for version, count in equal.items()),
        alike=sum(len({one["macs"][name] for one in readings}) == 1 for name in exact),
        data=PTFLOPS,
    )
    return f"{about}\n\n{document.records([row for row in _rows(found) if row['model'] in found['models']])}"


def ptflops_data(facts: Facts) -> str:
    """Return every count of every version, as CSV."""
    return document.table_as_csv(_rows(facts.stored_json(RECORD)))


def _rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"model": name, "exact": exact} | {f"ptflops {one['version']}": one["macs"][name] for one in found["readings"]}
        for name, exact in found["exact"].items()
    ]
