"""What commands print of the papers' models, on a terminal of 80 columns unless --wide is given."""

from collections.abc import Iterable
from functools import partial

from headcount.bench.accounts import ACCOUNTS
from headcount.reports import counting
from headcount.reports.counting import Example
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts

ORDER = 110
CLOSED = "--counter closed-form"
EXAMPLES = (
    Example("The rows of a table", [f"headcount macs --table moa-table1 {CLOSED}"]),
    Example("Vocabularies that parameters imply", [f"headcount macs --table moa-table3 --params {CLOSED}"]),
    Example("A table whose models have two forms", [f"headcount macs --table moh-dit {CLOSED} --wide"]),
    Example("A model, part by part", [f"headcount macs --preset moa-8K8E128D --seq-len 512 {CLOSED}"]),
    Example("A dense model as mixture-of-head attention", ["headcount macs --preset llama3-8b --convert s=16 r=8"]),
    Example("A grid of layers", [f"headcount macs --grid 'K=1,2,4 E=8 D=64 T=10,128' {CLOSED} --wide"]),
    Example("The same as LaTeX", [f"headcount macs --grid 'K=1,2,4 E=8 D=64 T=10' {CLOSED} --format latex"]),
    Example("A table as CSV", [f"headcount macs --table moh-table-h {CLOSED} --format csv"]),
    Example("Two models side by side", [f"headcount macs --compare moa-16K32E256D transformer-big {CLOSED}"]),
    Example(
        "Memory and decoding",
        [
            f"headcount macs --preset moa-8K8E128D transformer-big {CLOSED} --brief --context 512 --generate 20 "
            f"--columns {' '.join(ACCOUNTS)} --peak-macs 400e12 --bandwidth 4.8e12 --wide"
        ],
    ),
    Example("What to choose from", ["headcount macs --list"]),
)


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "examples",
        "What commands print of the papers' models",
        lambda facts: "Each command prints what stands above it; without --wide, on a terminal of 80 columns.",
        sections("examples", EXAMPLES),
        calls=lambda facts: calls("examples", EXAMPLES),
    )


def sections(module: str, examples: Iterable[Example]) -> list[Section]:
    """Return a section for each example of a page's module: what its commands print, and the commands."""
    return [Section(one.title, [partial(printed, module, one)], one.commands) for one in examples]


def calls(module: str, examples: Iterable[Example]) -> Iterable[tuple]:
    """Run the commands of each example."""
    return [(counting.example, module, one.title) for one in examples]


def printed(module: str, example: Example, facts: Facts) -> str:
    """Return the lines that each command prints; below the command itself where there are several."""
    several = len(example.commands) > 1
    lines = []
    for command, own in zip(example.commands, facts.result(counting.example, module, example.title), strict=True):
        lines += [f"$ {command}"] * several + own
    return "\n".join(["```console" if several else "```text", *lines, "```"])
