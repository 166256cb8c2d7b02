"""The core of the suite with other versions of torch, Python and everything else, from a stored run."""

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

RECORD, COMMAND = "matrix.json", "make matrix"


def tried(facts: Facts) -> str:
    """What became of the tests in each environment."""
    found = facts.stored_json(RECORD)
    if not found:
        return f"Not tried yet: `{COMMAND}`."
    about = (
        "The tests of everything that counts, in environments of their own: each torch from the oldest that is allowed "
        "to the newest that there was, the oldest of every dependency at once, and other Pythons."
    )
    numbers = ("passed", "skipped", "failed", "seconds")
    columns = [
        Column("name", "environment"),
        Column("python", "Python"),
        Column("torch", "torch"),
        *(Column(name, name, kind="int") for name in numbers),
    ]
    return f"{about}\n\n{markdown.table(columns, [{'name': name, **one} for name, one in found.items()])}"
