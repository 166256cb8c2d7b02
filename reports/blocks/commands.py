"""Blocks of commands: options, outputs, run times, and what pages state of their files and formats."""

import argparse
import os
from functools import cache
from importlib import import_module
from typing import Any
from unittest.mock import patch

from headcount.__main__ import COMMANDS
from headcount.bench.lock import workflow as lock_workflow
from headcount.bench.render import SCHEMA_VERSION
from headcount.formulas.published.figures import QUANTITIES
from headcount.reports import counting, document
from headcount.reports.facts import Facts

MODULE = """\
from torch import nn, zeros


def make(heads=2, width=6):
    inputs = (zeros(5, 1, heads * width),) * 3
    return nn.MultiheadAttention(heads * width, heads), inputs
"""
"""The content of model.py in the folder where the commands of guides run."""
OWN_TABLE = """\
Model,Params (M),MACs (G)
"llama3-8b,T=1024",8030,7960
"gpt3-175b,T=2048",175000,359000
dit-b4,131,5.6
"""
"""The content of mypaper.csv there."""
FILES = {"model.py": MODULE, "mypaper.csv": OWN_TABLE}


def module(facts: Facts) -> str:
    """Return the code of model.py."""
    return f"```python\n{MODULE}```"


def own_table(facts: Facts) -> str:
    """Return the content of mypaper.csv."""
    return f"```csv\n{OWN_TABLE}```"


def output(facts: Facts, commands: str) -> str:
    """Return commands, separated by semicolons, and what each prints on a terminal of 80 columns."""
    return _console(facts, commands, code=0)


def failing_output(facts: Facts, commands: str) -> str:
    """Return the same of commands of which the last one exits with code 1."""
    return _console(facts, commands, code=1)


def _console(facts: Facts, commands: str, code: int) -> str:
    """Raise Disagreement where the last command exits with another code than ``code``, or another one not with 0."""
    lines = []
    words = commands.split("; ")
    for command, printed in zip(words, facts.result(counting.outputs, words, code, FILES), strict=True):
        lines += [f"$ {command}", *printed]
    return "\n".join(["```console", *lines, "```"])


def parsers(name: str) -> list[argparse.ArgumentParser]:
    """Return the command line of ``headcount NAME``, and those of the commands below it."""
    module = f"headcount.{COMMANDS[name][0]}"
    main = import_module(module)
    package, names = module.removesuffix(".__main__"), getattr(main, "SUBCOMMANDS", ())
    below = {other: import_module(f"{package}.{other}") for other in names}
    return [main.parser(f"headcount {name}"), *(it.parser(f"headcount {name} {other}") for other, it in below.items())]


def overview(facts: Facts) -> str:
    """Return a row for each command: a link to its options, and its line of help."""
    titles = {name: f"headcount {name}" for name in COMMANDS}
    rows = [
        {"command": f"[`{titles[name]}`](#{document.anchor(titles[name])})", "result": about}
        for name, (_, about) in COMMANDS.items()
    ]
    return document.records(rows)


def options(facts: Facts) -> str:
    """Return a section for each command with its help, and that of those below it."""
    return "\n\n".join(map(_section, COMMANDS))


def _section(name: str) -> str:
    main, *below = (one.prog for one in parsers(name))
    helps = [_helps()[main], *(f"### {prog}\n\n{_helps()[prog]}" for prog in below)]
    folded = ["<details><summary>Help</summary>", *helps, "</details>"]
    return "\n\n".join([f"## headcount {name}", *folded, f"```sh\nheadcount {name} --help\n```"])


@cache
def _helps() -> dict[str, str]:
    """Return each program's help without its usage. A group of options that several have is printed of the first."""
    first: dict[str, str] = {}
    helps = {}
    with patch.dict(os.environ, COLUMNS=str(document.CODE_WIDTH)):
        for one in (one for name in COMMANDS for one in parsers(name)):
            _, *parts = one.format_help().rstrip().split("\n\n")
            shown = [
                part
                if first.setdefault(part, one.prog) == one.prog
                else f"{part.partition(':')[0]}: as of {first[part]}"
                for part in parts
            ]
            helps[one.prog] = "```text\n{}\n```".format("\n\n".join(shown))
    return helps


def run_times(facts: Facts) -> dict[str, Any]:
    """Return the stored run times of commands."""
    stored = facts.stored_json("commands.json")
    machine, rows = stored["machine_info"], []
    for found in (one for one in stored["benchmarks"] if "command" in one["extra_info"]):
        info, stats = found["extra_info"], found["stats"]
        first = f"{info['first_row_s']:.1f} s" if "first_row_s" in info else ""
        # the key of records written before
        peak = info.get("stderr", info.get("said", "")).partition("peak memory ")[2]
        row = {"command": f"`{info['command']}`", "median": _format_time(stats["median"]), "runs": stats["rounds"]}
        rows.append(row | {"first row": first, "peak memory": peak})
    return {"cpu": machine["cpu"], "cores": machine["cores"], "table": document.records(rows)}


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def schema_version(facts: Facts) -> int:
    """Return the version of the JSON schema."""
    return SCHEMA_VERSION


def quantities(facts: Facts) -> str:
    """Return the quantities of a table of your own."""
    return ", ".join(f"`{name}`" for name in QUANTITIES)


def workflow(facts: Facts) -> str:
    """Return the workflow that checks a lock, as a block of code."""
    return f"```yaml\n{lock_workflow.workflow().rstrip()}\n```"
