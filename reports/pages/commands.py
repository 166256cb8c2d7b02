"""Every command with its options, from its parser, and the run times of commands."""

import argparse
import os
from functools import cache, partial
from importlib import import_module
from unittest.mock import patch

from headcount.__main__ import COMMANDS
from headcount.reports import document
from headcount.reports.document import Page, Section
from headcount.reports.facts import Facts


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "commands",
        "Commands",
        "Installed, `headcount NAME`; from a checkout, `python -m` and the package's name do the same.",
        [
            *(
                Section(f"headcount {name}", [partial(options, name=name)], [f"headcount {name} --help"], "Help")
                for name in COMMANDS
            ),
            Section("Run times", [run_times], ["make benchmark"]),
        ],
    )


def parsers(name: str) -> list[argparse.ArgumentParser]:
    """Return the command line of ``headcount NAME``, and those of the commands below it."""
    module = f"headcount.{COMMANDS[name][0]}"
    main = import_module(module)
    package, names = module.removesuffix(".__main__"), getattr(main, "SUBCOMMANDS", ())
    below = {other: import_module(f"{package}.{other}") for other in names}
    return [main.parser(f"headcount {name}"), *(it.parser(f"headcount {name} {other}") for other, it in below.items())]


def options(facts: Facts, name: str) -> str:
    """Return the help of a command, and of those below it."""
    main, *below = (one.prog for one in parsers(name))
    return "\n\n".join([_helps()[main], *(f"### {prog}\n\n{_helps()[prog]}" for prog in below)])


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


def run_times(facts: Facts) -> str:
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
    return f"On {machine['cpu']}, {machine['cores']} cores, start-up included:\n\n{document.records(rows)}"


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
