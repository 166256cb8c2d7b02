"""--help says of a command what the report's page of commands says: every option, its values and its words."""

import argparse
import re
import subprocess
import sys
from importlib import import_module

import pytest

from headcount.__main__ import COMMANDS
from headcount.bench.records import shipped

PAGE = shipped().parent / "generated" / "commands.md"
OURS = [name for name, (package, _) in COMMANDS.items() if package.startswith("bench.")]
OTHERS = ("latency compare", "latency gates", "latency campaign")
"""Commands below another, with a command line of their own."""


def on_the_page(name):
    """What the page has of a command: what it is for, and by group its options with their words."""
    text = PAGE.read_text("utf-8")
    (section,) = re.findall(rf"^##+ headcount {name}\n(.*?)^##+ ", text, re.MULTILINE | re.DOTALL)
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
    return " ".join([*filter(None, [", ".join(action.option_strings)]), *values, *["..."] * several])


def module_of(name):
    """Where the command line of a command is, or of one below another."""
    first, *below = name.split()
    return ".".join(["headcount", COMMANDS[first][0], *(below or ["__main__"])])


def parser_of(name):
    """The command line itself."""
    return import_module(module_of(name)).parser(f"headcount {name}")


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
def test_help_and_the_page_of_commands_say_the_same(name):
    parser = parser_of(name)
    about, groups = on_the_page(name)
    assert (parser.prog, parser.description.strip()) == (f"headcount {name}", about)
    for group in parser._action_groups:
        found = {option(one): one.help or "" for one in group._group_actions if one.help != argparse.SUPPRESS}
        assert found == groups.pop(group.title, {})
    assert groups == {}


@pytest.mark.parametrize("name", OTHERS)
def test_a_command_below_another_names_itself_and_its_options(name):
    parser = parser_of(name)
    usage, _, rest = parser.format_help().partition("\n\n")
    assert usage.startswith(f"usage: headcount {name} ") and "None" not in rest
    for action in parser._actions:
        # what can be chosen speaks for itself
        assert action.help or action.choices or not action.option_strings
        assert action.metavar == (action.metavar and action.metavar.upper())


def test_a_command_line_is_read_without_torch():
    names = [module_of(name) for name in (*OURS, *OTHERS)]
    read = f"import importlib\nfor name in {names}: importlib.import_module(name).parser('headcount')"
    done = subprocess.run([sys.executable, "-c", f"import sys\nsys.modules['torch'] = None\n{read}"], text=True)
    assert done.returncode == 0
