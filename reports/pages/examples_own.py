"""Examples: the output of commands about user modules and other sizes than the papers'."""

from headcount.reports.document import Page
from headcount.reports.facts import Facts
from headcount.reports.pages.examples import MODULE, example

LOCK = "headcount lock model.py:make -o macs.lock"
CHECK = "headcount lock --check macs.lock"
EXAMPLES = (
    example("A module under every counter", "headcount audit model.py:make"),
    example("A lock that holds what it costs", LOCK, CHECK),
    example("A cost that is not as locked", LOCK, f"{CHECK} --set width=7", code=1),
    example("The lock among a repository's checks", "headcount lock --workflow"),
    example("A closed form, found by running", "headcount derive --preset moa-8K8E128D --vars T,S,K,E,D,d_model"),
    example("Sizes under a budget", "headcount budget --macs 1.2G --attention moa --limit 5 --records none"),
    example(
        "Sizes as dear as another model's",
        "headcount budget --match-model llama3-8b --attention moh --limit 5 --records none",
    ),
    example("A choice as JSON", "headcount budget --macs 1.2G --attention moa --limit 1 --records none --format json"),
    example(
        "What to expect of a GPU",
        "headcount latency --estimate --device h200 --layer moa-8K8E128D --seq-len 512 --wide",
    ),
    example(
        "An expectation as JSON",
        "headcount latency --estimate --device h200 --layer mha-base --seq-len 512 --pass forward --format json",
    ),
)


def page(facts: Facts) -> Page:
    """Return the page."""
    about = f"Each command prints what stands above it; `model.py` is this.\n\n```python\n{MODULE}```"
    return Page("examples-own", "What commands print of user modules and sizes", about, EXAMPLES)
