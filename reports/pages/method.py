"""Methodology: conventions, user modules, latency, formats and exit codes."""

from functools import partial

from headcount.bench.lock.workflow import workflow as lock_workflow
from headcount.bench.render import SCHEMA_VERSION
from headcount.formulas.published.own import QUANTITIES
from headcount.reports import document
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "method",
        "Methodology",
        "Conventions, user modules, latency, formats and exit codes.",
        [
            Section("Conventions", [partial(_words, "conventions")], ["python -m bench.macs --check"]),
            Section("User modules", [partial(_words, "modules")], ["python -m bench.macs --module model.py:make"]),
            Section("Your own table", [tables], ["headcount table mypaper.toml"]),
            Section("Products written elementwise", [partial(_words, "elementwise")]),
            Section("Latency", [partial(_words, "latency")], ["python -m bench.latency --quick"]),
            Section(
                "Formats", [partial(_words, "formats")], ["python -m bench.macs --counter closed-form --format json"]
            ),
            Section(
                "A lock for the cost",
                [partial(_words, "lock"), workflow],
                ["headcount lock model.py:make -o macs.lock", "headcount lock --check macs.lock"],
            ),
            Section(
                "One rank of many devices",
                [partial(_words, "ranks")],
                ["headcount count llama3-8b --seq-len 8192 --plan tp=8,sp --backward"],
            ),
            Section("Exit codes", [exit_codes]),
        ],
    )


def _words(part: str, facts: Facts) -> str:
    return text(f"method.{part}", version=SCHEMA_VERSION)


def tables(facts: Facts) -> str:
    """Return the format of a user's table."""
    return text("method.tables", quantities=", ".join(f"`{name}`" for name in QUANTITIES))


def workflow(facts: Facts) -> str:
    """Return the workflow of ``headcount lock --workflow``."""
    return f"```yaml\n{lock_workflow()}```"


def exit_codes(facts: Facts) -> str:
    """Return a table of the exit codes."""
    meanings = document.texts("method.exit_codes")
    return document.records([{"exit code": code, "meaning": meaning} for code, meaning in meanings.items()])
