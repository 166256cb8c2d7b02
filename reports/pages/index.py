"""The first page: a summary of the results with links to the pages."""

from headcount.reports import document, latency, papers, tables
from headcount.reports.document import Page, Section, link, text
from headcount.reports.facts import Facts
from headcount.reports.pages.claims import ALL, OWN, RELEASED, holding, verdicts
from headcount.reports.pages.counters import COMMAND, summary_sentence
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots import heat


def page(facts: Facts) -> Page:
    """Return the page."""
    every = f"python -m bench.macs --counter closed-form --table {' '.join(facts.tables)}"
    return Page(
        "index",
        "Results",
        about(),
        [
            Section("Printed numbers", [tables.verdicts, numbers], [every]),
            Section("Printed sentences", [sentences]),
            Section("Counters", [heat.PLOT, counters], [COMMAND]),
            Section("Latency", [routing_overheads], ["python -m bench.latency --quick"]),
        ],
    )


def about() -> str:
    """Return the list of the pages."""
    lines = [f"- {link(name, name)}: {what}" for name, what in document.texts("index.pages").items()]
    return "\n".join([text("index.about"), "", *lines, text("index.explorer")])


def numbers(facts: Facts) -> str:
    """Return the printed numbers that are not reproducible, and the terms that the equations omit."""
    parts = [float(row["whole"]) for row in papers.models(facts)]
    return text(
        "index.numbers",
        equations=link("each by name", "moa", "Eq. 18-20 as printed and as executed"),
        length=papers.last_crossover(facts, BIG, TRANSFORMER_BIG),
        parts=link("part by part", "moa", "The big models of Table 1, side by side"),
        least=min(parts),
        most=max(parts),
        models=link("model by model", "moh", "Released code against ideal"),
    )


def sentences(facts: Facts) -> str:
    """Return the number of each paper's sentences that hold, and those that fail at the paper's own sizes."""
    found, rows, lines = facts.claims, [], []
    for key, paper in found.papers.items():
        sentences = [one for one in (*found.claims, *found.sentences) if one.paper == key]
        judged = {one.name: verdicts(one, facts) for one in sentences}
        counts = {f"hold, {name}": holding(one[name] for one in judged.values()) for name in (OWN, ALL, RELEASED)}
        rows.append({"paper": paper.name, "sentences": len(judged), **counts})
        failing = [
            f"{what} at its own sizes: {', '.join(names)}"
            for what, start in (("does not hold", "fails"), ("holds in part", "holds in"))
            if (names := [name for name, one in judged.items() if (one[OWN] or "").startswith(start)])
        ]
        lines.append(f"- {paper.name}, {'; '.join(failing)}. {link('Each with its numbers', paper.page, paper.name)}.")
    return document.records(rows, dict.fromkeys([*rows[0]][2:], {"align": "right"})) + "\n\n" + "\n".join(lines)


def counters(facts: Facts) -> str:
    """Return how many counts of the tools are exact."""
    return f"{summary_sentence(facts)} {link('Counter by counter', 'counters')}."


def routing_overheads(facts: Facts) -> str:
    """Return the span of the routing overhead of the fastest implementations for each device."""
    lines = []
    for kind, devices in latency.results(facts, latency.least_overheads).items():
        lines += [] if devices else [f"- {kind.upper()}: {latency.NOT_MEASURED[kind]}"]
        for device, least in devices.items():
            span, where = f"{min(least):.2f} to {max(least):.2f}", link("each with its interval", "time")
            lines.append(text("index.overhead", device=device, span=span, count=len(least), link=where))
    return "\n".join(lines)
