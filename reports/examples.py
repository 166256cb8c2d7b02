"""What commands print, each shown whole; what is not asked for as wide as it is, on a terminal of 80 columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from headcount.bench.accounts import ACCOUNTS
from headcount.bench.output.files import write
from headcount.reports import counting, shell
from headcount.reports.document import Section
from headcount.reports.facts import Facts

MODULE = """\
from torch import nn, zeros


def make(heads=2, width=6):
    inputs = (zeros(5, 1, heads * width),) * 3
    return nn.MultiheadAttention(heads * width, heads), inputs
"""
"""What stands in model.py where the commands run."""


@dataclass(frozen=True)
class Example:
    """Commands of a ``title``, run in the same folder one after the other; the last one ends with ``code``."""

    title: str
    commands: Sequence[str]
    code: int = 0

    def outputs(self) -> list[list[str]]:
        """The lines that each command prints. shell.Failed where one ends otherwise than it is to."""
        codes = [0] * (len(self.commands) - 1) + [self.code]
        with TemporaryDirectory() as folder:
            write(Path(folder, "model.py"), MODULE)
            return [shell.printed(one, code, folder) for one, code in zip(self.commands, codes, strict=True)]


CLOSED = "--counter closed-form"
LOCK = "headcount lock --module model.py:make -o macs.lock"
CHECK = "headcount lock --check macs.lock"

PAPERS = (
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
"""What is asked of models of the papers; none of it needs torch."""

OWN = (
    Example("A module under every counter", ["headcount macs --module model.py:make"]),
    Example("A lock that holds what it costs", [LOCK, CHECK]),
    Example("A cost that is not as locked", [LOCK, f"{CHECK} --set width=7"], 1),
    Example("The lock among a repository's checks", ["headcount lock --workflow"]),
    Example("A closed form, found by running", ["headcount derive --preset moa-8K8E128D --vars T,S,K,E,D,d_model"]),
    Example("Sizes under a budget", ["headcount budget --macs 1.2G --attention moa --limit 5 --records none"]),
    Example(
        "Sizes as dear as another model's",
        ["headcount budget --like llama3-8b --attention moh --limit 5 --records none"],
    ),
    Example(
        "A choice as JSON", ["headcount budget --macs 1.2G --attention moa --limit 1 --records none --format json"]
    ),
    Example(
        "What to expect of a GPU",
        ["headcount latency --estimate --device h200 --layer moa-8K8E128D --seq-len 512 --wide"],
    ),
    Example(
        "An expectation as JSON",
        ["headcount latency --estimate --device h200 --layer mha-base --seq-len 512 --pass forward --format json"],
    ),
)
"""What is asked of modules and sizes of one's own."""

EVERY = {one.title: one for one in (*PAPERS, *OWN)}


def sections(examples: Sequence[Example]) -> list[Section]:
    """A section of each example: what its commands print, and the commands."""
    return [Section(one.title, [partial(_printed, one)], one.commands) for one in examples]


def begin(examples: Iterable[Example], facts: Facts) -> None:
    """Begin to run the commands of examples."""
    for one in examples:
        facts.begin(counting.example, one.title)


def module(facts: Facts) -> str:
    """What a page begins with whose commands ask for a module."""
    return f"Each command prints what stands above it; `model.py` is this.\n\n```python\n{MODULE}```"


def _printed(example: Example, facts: Facts) -> str:
    """The lines of each command; where there are several, below the command itself."""
    named = len(example.commands) > 1
    blocks = []
    for command, lines in zip(example.commands, facts.example(example.title), strict=True):
        blocks += [f"$ {command}"] * named + lines
    return "\n".join(["```console" if named else "```text", *blocks, "```"])
