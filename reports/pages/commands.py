"""Every command with its options, from its parser, and the run times of commands."""

import argparse
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module

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
                Section(f"headcount {name}", [partial(options, name=name)], [f"headcount {name} --help"])
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
    """Return a command's description and a table for each group of its options."""
    main, *below = parsers(name)
    return "\n\n".join([*_parts(main), *(part for one in below for part in (f"### {one.prog}", *_parts(one)))])


def _parts(found: argparse.ArgumentParser) -> list[str]:
    parts = [f"```text\n{found.description.strip()}\n```", "<details><summary>options</summary>"]
    for title, table in _tables(found):
        first = _first_places()[table]
        same = f"as of [{first}](#{document.anchor(first)})"
        parts += [f"**{title}**", table] if first == found.prog else [f"**{title}**: {same}"]
    return [*parts, "</details>"]


def _tables(found: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield title and table of each group of options."""
    for group in found._action_groups:
        rows = [_row(action) for action in group._group_actions if action.help != argparse.SUPPRESS]
        if rows:
            yield group.title, document.records(rows)


@cache
def _first_places() -> dict[str, str]:
    """Return the first command that has a table of options, by table: groups that commands share are printed once."""
    found = [(table, one.prog) for name in COMMANDS for one in parsers(name) for _, table in _tables(one)]
    return dict(reversed(found))


def _row(action: argparse.Action) -> dict[str, str]:
    names = ", ".join(action.option_strings)
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    values = f" {' '.join(value) if isinstance(value, tuple) else value}" if action.nargs != 0 else ""
    more = " ..." if action.nargs in ("+", "*") else ""
    text = (action.help or "").replace("%(prog)s", "the program").replace("%%", "%")
    return {"option": f"`{(names + values).strip()}{more}`", "what": text}


def run_times(facts: Facts) -> str:
    """Return the stored run times of commands."""
    stored = facts.stored_json("commands.json")
    machine = stored["machine_info"]
    lines = [f"Timed by `make benchmark` on {machine['cpu']}, {machine['cores']} cores, start-up included:", ""]
    for found in (one for one in stored["benchmarks"] if "command" in one["extra_info"]):
        info, stats = found["extra_info"], found["stats"]
        runs = f"median of {stats['rounds']} runs" if stats["rounds"] > 1 else "one run"
        first = f", first row after {info['first_row_s']:.1f} s" if "first_row_s" in info else ""
        used = f", {info['processor_s'] / 60:.1f} minutes of processor time" if "processor_s" in info else ""
        peak = info.get("said", "").partition("peak memory ")[2]
        memory = f", peak memory {peak}" if peak else ""
        lines.append(f"- `{info['command']}`: {_format_time(stats['median'])} ({runs}){first}{used}{memory}")
    return "\n".join(lines)


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
