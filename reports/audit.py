"""Summarise the count of each formulation of a layer by each counter, on cpu and on meta, and explain differences."""

from collections import Counter

from headcount.bench import env
from headcount.reports import document
from headcount.reports.counting import Cell
from headcount.reports.document import text
from headcount.reports.facts import Facts

COMMAND = "python -m bench.macs --audit"
REPORTED_COUNTS, CALLS = "reported_counts.csv", "calls.csv"
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
    formulations = len({cell.spelling for cell in facts.audit()})
    about = text("counters.summary", formulations=formulations, ours=OURS, data=REPORTED_COUNTS)
    return f"{about}\n\n{document.records(rows, {'highest error': percent, 'lowest error': percent})}"


def summary_sentence(facts: Facts) -> str:
    """Return how many of the tools' counts are exact, and how far the others are off."""
    tools = [cell for cell in facts.audit() if cell.counter != OURS]
    read = [cell for cell in tools if cell.error is not None]
    errors = [cell.error for cell in read]
    used = env.versions(("torch", "ptflops", "fvcore"))
    return text(
        "counters.summary_sentence",
        count=len(tools),
        counters=len({cell.counter for cell in tools}),
        formulations=len({cell.spelling for cell in tools}),
        devices=len({cell.device for cell in tools}),
        versions=", ".join(f"{name} {version.partition('+')[0]}" for name, version in used.items()),
        exact=errors.count(0),
        wrong=len(read) - errors.count(0),
        failed=len(tools) - len(read),
        least=float(min(errors)),
        most=float(max(errors)),
    )


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
    return "\n".join(["No count, because the call ends with an error:", "", *lines])


def _first_sentence(reason: str) -> str:
    return reason.partition(".Hint")[0].partition(": []")[0].partition(". ")[0].rstrip(".") + "."


def reported_counts(facts: Facts) -> str:
    """Return every reported count as CSV, with its error in percent."""
    keys = ("spelling", "written", "device", "counter", "exact", "macs", "difference", "error_percent", "no_count")
    rows = []
    for cell in facts.audit():
        row = {**vars(cell), "no_count": cell.reason}
        if cell.difference is not None:
            row |= {"macs": cell.exact + cell.difference, "error_percent": float(cell.error)}
        rows.append(row)
    return document.table_as_csv(rows, keys)


def calls(facts: Facts) -> str:
    """Return the calls that sum to each difference, with their places in the tools' sources, as CSV."""
    keys = ("spelling", "device", "counter", "difference", "macs", "what", "name", "calls", "place")
    rows = [{**vars(cell), **cause} for cell in facts.audit() for cause in cell.causes]
    return document.table_as_csv(rows, keys)


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
    return f"{text('counters.causes', data=CALLS)}\n\n{document.records(rows)}"
