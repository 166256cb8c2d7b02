"""Every command with its options, as its parser has them, and how long the commands take."""

import argparse
from collections.abc import Callable
from importlib import import_module

from headcount.__main__ import COMMANDS
from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

WHAT = [Column("option", "option"), Column("what", "what")]


def parser(name: str) -> argparse.ArgumentParser:
    """The command line of ``headcount NAME``."""
    return import_module(f"headcount.{COMMANDS[name][0]}.__main__").parser(f"headcount {name}")


def page(name: str) -> Callable[[Facts], str]:
    """What a command is for, and a table for each group of its options."""

    def text(facts: Facts) -> str:
        found = parser(name)
        parts = [f"```text\n{found.description.strip()}\n```"]
        for group in found._action_groups:
            rows = [_row(action) for action in group._group_actions if action.help != argparse.SUPPRESS]
            if rows:
                parts += [f"**{group.title}**", markdown.table(WHAT, rows)]
        return "\n\n".join(parts)

    return text


def _row(action: argparse.Action) -> dict[str, str]:
    names = ", ".join(action.option_strings) or action.dest
    taken = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    values = f" {' '.join(taken) if isinstance(taken, tuple) else taken}" if action.nargs != 0 else ""
    more = " ..." if action.nargs in ("+", "*") else ""
    said = (action.help or "").replace("%(prog)s", "the program").replace("%%", "%")
    return {"option": f"`{names}{values}{more}`", "what": said}


def speed(facts: Facts) -> str:
    """How long the commands took where they were last timed."""
    timed = facts.stored_json("commands.json")
    if timed is None:
        return "Not measured: `make benchmark` has not been run."
    machine = timed["machine_info"]
    lines = [f"Timed by `make benchmark` on {machine['cpu']}, {machine['cores']} cores, start-up included:", ""]
    for found in timed["benchmarks"]:
        info = found["extra_info"]
        if "command" not in info:
            continue
        first = f", first row after {info['first_row_s']:.1f} s" if "first_row_s" in info else ""
        peak = info.get("said", "").partition("peak memory ")[2]
        lines.append(
            f"- `{info['command']}`: {found['stats']['median']:.1f} s (median of {found['stats']['rounds']} runs)"
            f"{first}" + (f", peak memory {peak}" if peak else "")
        )
    return "\n".join(lines)
