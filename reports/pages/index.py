"""The first page: the results in brief, each with a link to its page."""

from collections.abc import Iterable

from headcount.bench.table import Column
from headcount.reports import audit, claim_verdicts, counting, document, latency, papers, tables
from headcount.reports.document import Page, Section, link
from headcount.reports.facts import Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots import heat

ORDER = 10


PAGES = {
    "moa": "the MoA paper: equations, tables, cost against quality, routing, the authors' code",
    "moh": "the MoH paper: tables, released code against ideal, the authors' code",
    "claims": "the papers' sentences about cost, each judged with its numbers",
    "choose": "cost, cache and decoding of layers beside one another, and sizes under a budget",
    "time": "the clock: layers, models, the routing tax, where skipping heads pays",
    "counters": "what ptflops, fvcore and PyTorch's counter miss and add, call by call",
    "notation": "letters and words",
    "method": "how the numbers come about: conventions, modules of your own, the clock, formats, exit codes",
    "commands": "every command with its options",
    "examples": "what commands print of the papers' models: tables, grids, two models, memory and decoding",
    "examples-own": "what commands print of modules and sizes of your own: locks, closed forms, budgets, estimates",
}


def page(facts: Facts) -> Page:
    """The page."""
    every = f"python -m bench.macs --counter closed-form --table {' '.join(facts.tables)}"
    return Page(
        "index",
        "Results",
        about,
        [
            Section("Printed numbers", [tables.verdicts, numbers], [every]),
            Section("Printed sentences", [sentences]),
            Section("Counters", [heat.PLOT.shown, counters], [audit.COMMAND]),
            Section("Latency", [routing_overheads], ["python -m bench.latency --quick"]),
        ],
        calls=lambda facts: [(counting.audit,)],
    )


def about(facts: Facts) -> str:
    """The pages."""
    lines = [f"- {link(name, name)}: {what}" for name, what in PAGES.items()]
    head = "Written by `python -m reports`; `python -m reports --check` tells whether it is stale."
    lines.append("- [explorer](explorer.html): sizes by sliders, one file that works offline")
    return "\n".join([head, "", *lines])


def numbers(facts: Facts) -> str:
    """Which printed numbers do not stand, and what the equations leave out."""
    parts = [row["whole"] for row in papers.models(facts)]
    return "\n".join(
        [
            "- Eq. 18 and 19 leave out one of attention's two T*S products, and Eq. 18 and 20 the router: "
            f"{link('each by name', 'moa', 'Eq. 18-20 as printed and as executed')}.",
            "- MoA Big costs less than Transformer big at the paper's lengths, and more from T = "
            f"{papers.dearer_from(facts, BIG, TRANSFORMER_BIG):,} on: "
            f"{link('part by part', 'moa', 'The big models of Table 1, side by side')}.",
            "- MoH as released computes every head. A form that skips what is not selected would do "
            f"{float(min(parts)):.0f} to {float(max(parts)):.0f} % of the dense models' work: "
            f"{link('model by model', 'moh', 'Released code against ideal')}.",
        ]
    )


def sentences(facts: Facts) -> str:
    """How many sentences of each paper hold, and which its own tables contradict."""
    found, rows, lines = facts.claims, [], []
    for key, paper in found.papers.items():
        sentences = [one for one in (*found.claims, *found.sentences) if one.paper == key]
        judged = {one.name: claim_verdicts.verdicts(one, facts) for one in sentences}
        rows.append(
            {
                "paper": paper.name,
                "sentences": len(judged),
                "own sizes": _holding(three.own for three in judged.values()),
                "all sizes": _holding(three.everywhere for three in judged.values()),
                "as released": _holding(three.released for three in judged.values()),
            }
        )
        said = [
            f"{what} at its own sizes: {', '.join(names)}"
            for what, start in (("does not hold", "fails"), ("holds in part", "holds in"))
            if (names := [name for name, three in judged.items() if (three.own or "").startswith(start)])
        ]
        lines.append(f"- {paper.name}, {'; '.join(said)}. {link('Each with its numbers', 'claims', paper.name)}.")
    columns = [Column("paper", "paper"), Column("sentences", "sentences", kind="int")]
    columns += [Column(key, f"hold, {key}", align="right") for key in list(rows[0])[2:]]
    return document.table(columns, rows) + "\n\n" + "\n".join(lines)


def _holding(verdicts: Iterable[str | None]) -> str:
    judged = [verdict for verdict in verdicts if verdict and not verdict.startswith("no layer")]
    holding = sum(verdict in ("holds", "holds at every length") for verdict in judged)
    return f"{holding} of {len(judged)}"


def counters(facts: Facts) -> str:
    """How many readings are right."""
    return f"{audit.in_words(facts)} {link('Counter by counter', 'counters')}."


def routing_overheads(facts: Facts) -> str:
    """What is measured, and the span of the routing tax of the fastest arms."""
    lines = []
    for kind in ("cuda", "cpu"):
        devices = latency.of_type(facts, kind)
        if not devices:
            lines.append(f"- {kind.upper()}: {latency.NOT_MEASURED[kind]}")
        for device, rows in devices.items():
            least = latency.least_taxes(rows)
            span = f"{min(least):.2f} to {max(least):.2f}" if least else "not measured"
            lines.append(
                f"- {device}: the routing tax of the fastest arm is {span} over {len(least)} layers, lengths and "
                f"passes: {link('each with its interval', 'time')}."
            )
    return "\n".join(lines)
