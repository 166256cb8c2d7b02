"""Methodology: conventions, user modules, latency, formats and exit codes."""

from headcount.bench.lock.workflow import workflow
from headcount.bench.render import SCHEMA_VERSION
from headcount.formulas.published.own import QUANTITIES
from headcount.reports import document
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts


def page(facts: Facts) -> Page:
    """Return the page."""
    quantities = ", ".join(f"`{name}`" for name in QUANTITIES)
    codes = [{"exit code": code, "meaning": what} for code, what in document.texts("method.exit_codes").items()]
    return Page(
        "method",
        "Methodology",
        "Conventions, user modules, latency, formats and exit codes.",
        [
            Section("Conventions", [text("method.conventions")], ["python -m bench.macs --check"]),
            Section("User modules", [text("method.modules")], ["headcount audit model.py:make"]),
            Section("Your own table", [text("method.tables", quantities=quantities)], ["headcount table mypaper.toml"]),
            Section("Products written elementwise", [text("method.elementwise")]),
            Section("Latency", [text("method.latency")], ["python -m bench.latency --quick"]),
            Section(
                "Formats",
                [text("method.formats", version=SCHEMA_VERSION)],
                ["python -m bench.macs --counter closed-form --format json"],
            ),
            Section(
                "A lock for the cost",
                [text("method.lock"), f"```yaml\n{workflow()}```"],
                ["headcount lock model.py:make -o macs.lock", "headcount lock --check macs.lock"],
            ),
            Section(
                "One rank of many devices",
                [text("method.ranks")],
                ["headcount count llama3-8b --seq-len 8192 --plan tp=8,sp --backward"],
            ),
            Section("Exit codes", [document.records(codes)]),
        ],
    )
