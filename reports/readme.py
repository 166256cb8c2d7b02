"""The generated blocks of README.md and CONTRIBUTING.md."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headcount.bench import records
from headcount.formulas.published.tables import VERDICTS
from headcount.reports import audit, commands, shell
from headcount.reports.facts import Facts
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


def blocks(facts: Facts) -> Mapping[str, Callable[[], str]]:
    """A maker for each block that these files may hold."""
    makers = {
        "pain": pain,
        "ten-seconds": ten_seconds,
        "jobs": jobs,
        "verdicts": verdicts,
        "mutants": mutants,
    }
    return {name: partial(make, facts) for name, make in makers.items()}


def pain(facts: Facts) -> str:
    """How many readings of counters are right, and the picture of all."""
    return f"{audit.in_words(facts)}\n\n{heat.PLOT.picture('reports/generated/')}"


def ten_seconds(facts: Facts) -> str:
    """A table in closed form, its last line, and how long commands take."""
    lines = shell.printed(TEN_SECONDS)
    shown = shell.block([f"$ {TEN_SECONDS}", *shell.table(lines), LEFT_OUT, *shell.ending(lines)])
    return f"{shown}\n{commands.in_a_line(facts)}".rstrip()


def jobs(facts: Facts) -> str:
    """Four jobs, each a command with the lines of its output that matter."""
    parts = []
    for what, command, shown in JOBS:
        parts += [f"# {what}", f"$ {command}", *shown(), ""]
    return shell.block(parts[:-1])


def _column() -> list[str]:
    lines = shell.printed(COLUMN)
    return shell.table(lines, -1)


def _printed() -> list[str]:
    """A row that its table's rule does not print, with the arithmetic."""
    lines = shell.printed(PRINTED)
    (row,) = (line for line in lines if line.startswith("LightConv"))
    mark = row[row.index("[") : row.index("]") + 1]
    start = next(i for i, line in enumerate(lines) if line.startswith(mark))
    end = next(i for i in range(start + 1, len(lines)) if not lines[i].startswith(" "))
    return [row, *lines[start:end]]


def _choice() -> list[str]:
    return [",".join(line.split(",")[:7]) for line in shell.printed(CHOICE)]


def _module() -> list[str]:
    lines = (records.shipped() / STORED).read_text("utf-8").splitlines()
    return [*shell.table(lines)[-4:], *shell.ending(lines)]


JOBS = (
    ("fill a cost column; --format latex, csv or json for a paper, pandas or a program", COLUMN, _column),
    ("check a printed number: one rule for a table, a verdict for each row", PRINTED, _printed),
    ("choose K, E and D: as many MACs, on the front of parameters and cache", f"{CHOICE} | cut -d, -f1-7", _choice),
    (
        "count a module of yours, here Hugging Face's without weights: the right count beside four tools",
        MODULE,
        _module,
    ),
)


def verdicts(facts: Facts) -> str:
    """The totals of each table, and of all."""
    found = {name: [verdict.status for verdict in facts.verdicts(name).values()] for name in facts.tables}
    every = [status for own in found.values() for status in own]
    each = "; ".join(f"{name} {_counted(own)}" for name, own in found.items())
    return f"**{len(every)} rows of {len(found)} tables: {_counted(every)}.** By table: {each}."


def _counted(statuses: list[str]) -> str:
    return ", ".join(
        f"{statuses.count(status)} {status}" for status in dict.fromkeys(sorted(statuses, key=VERDICTS.index))
    )


def mutants(facts: Facts) -> str:
    """What became of the mutants of each room where they were last run."""
    rooms = facts.stored_json("mutants.json")
    if not rooms:
        return "Not run yet: `make mutate`."
    return "\n".join(
        f"- {room}/: {found['mutants']:,} mutants{_drawn(found)}, {found['alive']} alive, {found['unexplained']} "
        f"without a reason; {found['seconds']:,} s on {found['machine']['cpu']}, {found['machine']['cores']} cores."
        for room, found in rooms.items()
    )


def _drawn(found: Mapping[str, Any]) -> str:
    return f" of {found['of']:,}, drawn by seed {found['seed']}" if "of" in found else ""
