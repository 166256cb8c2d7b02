"""The generated blocks of README.md."""

import re
from collections.abc import Mapping
from itertools import takewhile

from headcount.bench import records
from headcount.formulas.published.tables import VERDICTS
from headcount.reports import audit
from headcount.reports.counting import run_command
from headcount.reports.document import Maker
from headcount.reports.facts import Facts
from headcount.reports.pages import commands
from headcount.reports.plots import heat

TEN_SECONDS = "python3 -m bench.macs --table moa-table3 --counter closed-form"
COLUMN = (
    "headcount macs --preset moa-8K8E128D transformer-big --columns kv_bytes decode_macs training_macs "
    "--counter closed-form --brief"
)
PRINTED = "headcount macs --table moa-table1 --counter closed-form"
CHOICE = "headcount budget --like transformer-big --attention moa --params 250M --limit 2 --format csv"
MODULE = "headcount macs --module model.py:make --brief"
STORED, LEFT_OUT = "llama.txt", "…"


def pain(facts: Facts) -> str:
    """Return how many counts of the tools are exact, and the heat map."""
    # one line: the README may have at most 120
    picture = heat.PLOT.picture("reports/generated/").replace("\n", "")
    return f"{audit.summary_sentence(facts)}\n\n{picture}"


def ten_seconds(facts: Facts) -> str:
    """Return a table in closed form, its last line, and the run times of commands."""
    lines = run_command(TEN_SECONDS)
    shown = block([f"$ {TEN_SECONDS}", *table_of(lines), LEFT_OUT, *ending(lines)])
    return f"{shown}\n{commands.run_times_sentence(facts)}".rstrip()


def jobs(facts: Facts) -> str:
    """Return four commands with the relevant lines of their output."""
    return block(["\n\n".join("\n".join([f"# {what}", f"$ {command}", *lines()]) for what, command, lines in JOBS)])


def _column() -> list[str]:
    return table_of(run_command(COLUMN), -1)


def _printed() -> list[str]:
    """Return a row that the table's rule does not reproduce, with the arithmetic."""
    lines = run_command(PRINTED)
    (row,) = (line for line in lines if line.startswith("LightConv"))
    mark = row[row.index("[") : row.index("]") + 1]
    start = next(i for i, line in enumerate(lines) if line.startswith(mark))
    return [row, lines[start], *takewhile(lambda line: line.startswith(" "), lines[start + 1 :])]


def _choice() -> list[str]:
    return [",".join(line.split(",")[:7]) for line in run_command(CHOICE)]


def _module() -> list[str]:
    lines = (records.shipped() / STORED).read_text("utf-8").splitlines()
    return [*table_of(lines)[-4:], *ending(lines)]


JOBS = (
    ("fill a cost column; --format latex, csv or json for a paper, pandas or a program", COLUMN, _column),
    ("check a printed number: one rule for a table, a verdict for each row", PRINTED, _printed),
    ("choose K, E and D: as many MACs, on the front of parameters and cache", f"{CHOICE} | cut -d, -f1-7", _choice),
    (
        "count your module, here Hugging Face's without weights: the exact count and what four tools report",
        MODULE,
        _module,
    ),
)


def verdicts(facts: Facts) -> str:
    """Return the totals of each table, and of all."""
    found = {name: [verdict.status for verdict in facts.verdicts(name).values()] for name in facts.tables}
    every = [status for own in found.values() for status in own]
    each = "; ".join(f"{name} {_counted(own)}" for name, own in found.items())
    return f"**{len(every)} rows of {len(found)} tables: {_counted(every)}.** By table: {each}."


def _counted(statuses: list[str]) -> str:
    return ", ".join(f"{statuses.count(status)} {status}" for status in VERDICTS if status in statuses)


def block(lines: list[str]) -> str:
    """Return commands and their output as a block of code."""
    return "\n".join(["```console", *lines, "```"])


def table_of(lines: list[str], number: int = 0) -> list[str]:
    """Return the heads and rows of one of the tables in a command's output, without rules and notes."""
    rules = [i for i, line in enumerate(lines) if line and set(line) <= {"-", " "}]
    # two rules each
    first, last = list(zip(rules[::2], rules[1::2], strict=True))[number]
    head = next(i for i in range(first, -1, -1) if not lines[i])
    return [*lines[head + 1 : first], *lines[first + 1 : last]]


def ending(lines: list[str]) -> list[str]:
    """Return the last paragraph, which is the result in one sentence."""
    last = max(i for i, line in enumerate(lines) if not line)
    return lines[last + 1 :]


BLOCKS = {"pain": pain, "ten-seconds": ten_seconds, "jobs": jobs, "verdicts": verdicts}
"""Functions of the generated blocks by name."""


def fill(text: str, facts: Facts, blocks: Mapping[str, Maker] = BLOCKS) -> str:
    """Return ``text`` with every generated block replaced. KeyError for an unknown block."""
    return re.sub(
        r"^(<!-- generated: ([\w-]+) -->\n).*?(<!-- end: \2 -->)$",
        lambda found: f"{found[1]}{blocks[found[2]](facts).strip()}\n{found[3]}",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
