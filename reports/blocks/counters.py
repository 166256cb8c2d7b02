"""Blocks of each counter's errors: by formulation, on grids of prime sizes, and by version of ptflops."""

from collections import Counter
from typing import Any

from headcount.reports import counting, document
from headcount.reports.counting import Cell
from headcount.reports.document import File
from headcount.reports.facts import Facts
from headcount.reports.plots import heat

heat_map = heat.PLOT

GRIDS = ("K=1,2,3,5 E=5,7,11 D=13 d_m=19,23 T=17 S=17 B=1,3", "h=2,3,5 d_h=11 d_m=30 T=17,29 B=1,3")
RECORD = "ptflops.json"
OURS = "headcount"


def summary(facts: Facts) -> str:
    """Return for each counter and device how many formulations it counts exactly, and how far off the others are."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in facts.audit():
        groups.setdefault((cell.counter, cell.device), []).append(cell)
    rows = []
    for (counter, device), own in groups.items():
        errors = [cell.error for cell in own if cell.error is not None]
        rows.append(
            {
                "counter": counter,
                "device": device,
                "exact": errors.count(0),
                "too many": sum(error > 0 for error in errors),
                "too few": sum(error < 0 for error in errors),
                "no count": len(own) - len(errors),
                "highest error": max(errors),
                "lowest error": min(errors),
            }
        )
    percent = {"unit": "%", "kind": "fixed", "digits": 1, "sign": True}
    return document.records(rows, {"highest error": percent, "lowest error": percent})


def errors(facts: Facts) -> dict[str, Any]:
    """Return how many of the tools' counts are exact, and how far the others are off."""
    tools = [cell for cell in facts.audit() if cell.counter != OURS]
    read = [cell for cell in tools if cell.error is not None]
    found = [cell.error for cell in read]
    return {
        "ours": OURS,
        "count": len(tools),
        "each": len(tools) // len({cell.counter for cell in tools}),
        "counters": len({cell.counter for cell in tools}),
        "formulations": len({cell.spelling for cell in tools}),
        "devices": len({cell.device for cell in tools}),
        "versions": facts.audit_versions(),
        "exact": found.count(0),
        "wrong": len(read) - found.count(0),
        "failed": len(tools) - len(read),
        "least": float(min(found)),
        "most": float(max(found)),
    }


def by_tool(facts: Facts) -> str:
    """Return how many counts of each tool are exact, the best tool first."""
    exact: dict[str, list[bool]] = {}
    for cell in facts.audit():
        exact.setdefault(cell.counter, []).append(cell.error == 0)
    best = sorted(exact, key=lambda tool: -sum(exact[tool]))
    return ", ".join(f"`{tool}` {sum(exact[tool])}" for tool in best)


def failed_calls(facts: Facts) -> str:
    """Return the errors of the calls that give no count, with formulations and counters."""
    every = {cell.counter: None for cell in facts.audit()}
    groups: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for cell in (cell for cell in facts.audit() if cell.error is None):
        formulations, counters = groups.setdefault((cell.reason, cell.device), ({}, {}))
        formulations[cell.spelling] = counters[cell.counter] = None
    lines = []
    for (reason, device), (formulations, counters) in groups.items():
        which = "every counter" if counters == every else ", ".join(counters)
        lines.append(f"- {' and '.join(formulations)} on {device}, {which}: {_first_sentence(reason)}")
    return "\n".join(lines)


def _first_sentence(reason: str) -> str:
    return reason.partition(".Hint")[0].partition(": []")[0].partition(". ")[0].rstrip(".") + "."


def _reported_counts(facts: Facts) -> str:
    """Return every reported count as CSV, with its error in percent."""
    keys = ("spelling", "written", "device", "counter", "exact", "macs", "difference", "error_percent", "no_count")
    rows = []
    for cell in facts.audit():
        row = {**vars(cell), "no_count": cell.reason}
        if cell.difference is not None:
            row |= {"macs": cell.exact + cell.difference, "error_percent": float(cell.error)}
        rows.append(row)
    return document.table_as_csv(rows, keys)


def _calls(facts: Facts) -> str:
    """Return the calls that sum to each difference, with their places in the tools' sources, as CSV."""
    keys = ("spelling", "device", "counter", "difference", "macs", "what", "name", "calls", "place")
    rows = [{**vars(cell), **cause} for cell in facts.audit() for cause in cell.causes]
    return document.table_as_csv(rows, keys)


reported_csv, calls_csv = File("reported_counts.csv", _reported_counts), File("calls.csv", _calls)


def causes(facts: Facts) -> str:
    """Return the causes of the differences by tool, with the place in its source and the number of reported counts."""
    keys = ("counter", "what", "call", "place in the tool's source")
    groups = Counter(
        key
        for cell in facts.audit()
        for key in dict.fromkeys((cell.counter, one["what"], one["name"], one["place"]) for one in cell.causes)
    )
    rows = [{**dict(zip(keys, key, strict=True)), "counts": count} for key, count in groups.items()]
    rows.sort(key=lambda row: (row["counter"], -row["counts"]))
    return document.records(rows)


def grids(facts: Facts) -> str:
    """Return a row for each grid."""
    rows = [{"grid": f"`{grid}`", **facts.result(counting.grid_agreement, grid)} for grid in GRIDS]
    return document.records(rows)


def older_ptflops(facts: Facts) -> dict[str, Any]:
    """Return how many modules each version reads exactly, and the counts of the models that differ between them."""
    found = facts.stored_json(RECORD)
    exact, readings = found["exact"], found["readings"]
    equal = {one["version"]: sum(one["macs"][name] == size for name, size in exact.items()) for one in readings}
    rows = [row for row in _ptflops_rows(facts) if row["model"] in found["models"]]
    return {
        "modules": len(exact),
        "torch": found["torch"],
        "exactly": ", ".join(f"{version} reads {count} exactly" for version, count in equal.items()),
        "alike": sum(len({one["macs"][name] for one in readings}) == 1 for name in exact),
        "table": document.records(rows),
    }


def _ptflops_rows(facts: Facts) -> list[dict[str, Any]]:
    """Return every count of every version."""
    found = facts.stored_json(RECORD)
    return [
        {"model": name, "exact": exact} | {f"ptflops {one['version']}": one["macs"][name] for one in found["readings"]}
        for name, exact in found["exact"].items()
    ]


ptflops_csv = File("ptflops.csv", lambda facts: document.table_as_csv(_ptflops_rows(facts)))
