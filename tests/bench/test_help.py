"""--help says of a command what the report's page of commands says: every option, its values and its words."""

import argparse
import re
from importlib import import_module

import pytest

from headcount.__main__ import COMMANDS
from headcount.bench.records import shipped

PAGE = shipped().parent / "generated" / "commands.md"
OURS = [name for name, (package, _) in COMMANDS.items() if package.startswith("bench.")]
OTHERS = ("compare", "gates", "campaign")
"""Of headcount latency, with a command line of their own."""


def on_the_page(name):
    """What the page has of a command: what it is for, and by group its options with their words."""
    text = PAGE.read_text("utf-8")
    (section,) = re.findall(rf"^## headcount {name}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    (about,) = re.findall(r"^```text\n(.*?)\n```$", section, re.MULTILINE | re.DOTALL)
    groups = {}
    for title, rows in re.findall(r"^\*\*(.+)\*\*\n\n((?:\|.*\n)+)", section, re.MULTILINE):
        cells = re.findall(r"^\| `(.*)` \| (.*?) ?\|$", rows.replace(r"\|", "¦"), re.MULTILINE)
        groups[title] = {option.replace("¦", "|"): words.replace("¦", "|") for option, words in cells}
    return about, groups


def option(action):
    """An option with its values as a line of usage has them."""
    several = action.nargs in ("+", "*")
    if action.nargs == 0:
        values = ()
    elif action.choices and not action.metavar:
        values = ["|".join(action.choices)]
    else:
        values = action.metavar if isinstance(action.metavar, tuple) else [action.metavar or "?"]
    return " ".join([", ".join(action.option_strings), *values, *["..."] * several])


@pytest.mark.parametrize("name", OURS)
def test_help_and_the_page_of_commands_say_the_same(name):
    parser = import_module(f"headcount.{COMMANDS[name][0]}.__main__").parser(f"headcount {name}")
    about, groups = on_the_page(name)
    assert (parser.prog, parser.description.strip()) == (f"headcount {name}", about)
    for group in parser._action_groups:
        found = {option(one): one.help or "" for one in group._group_actions if one.help != argparse.SUPPRESS}
        assert found == groups.pop(group.title, {})
    assert groups == {}


@pytest.mark.parametrize("name", OTHERS)
def test_a_command_below_another_names_itself_and_its_options(name):
    parser = import_module(f"headcount.bench.latency.{name}").parser(f"headcount latency {name}")
    usage, _, rest = parser.format_help().partition("\n\n")
    assert usage.startswith(f"usage: headcount latency {name} ") and "None" not in rest
    for action in parser._actions:
        # what can be chosen speaks for itself
        assert action.help or action.choices or not action.option_strings
        assert action.metavar == (action.metavar and action.metavar.upper())
