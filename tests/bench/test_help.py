"""Command lines: every visible option is on the page of commands, and parsers need no torch."""

import argparse
import re
import subprocess
import sys
from importlib import import_module

import pytest

from headcount.__main__ import COMMANDS
from headcount.bench.latency.__main__ import SUBCOMMANDS
from headcount.reports.pages import commands

BENCH = [name for name, (package, _) in COMMANDS.items() if package.startswith("bench.")]
BELOW = [f"latency {name}" for name in SUBCOMMANDS]


def module_of(name):
    """The module of a command or subcommand."""
    first, *below = name.split()
    return ".".join(["headcount", COMMANDS[first][0], *(below or ["__main__"])])


def parser_of(name):
    return import_module(module_of(name)).parser(f"headcount {name}")


@pytest.mark.parametrize("name", [*BENCH, *BELOW])
def test_page_lists_every_option(name):
    page = commands.options(name.split()[0])(None)
    if name in BELOW:
        (page,) = re.findall(rf"^### headcount {name}\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL)
    parser = parser_of(name)
    assert parser.prog == f"headcount {name}" and parser.description.strip() in page
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            assert all(option in page for option in action.option_strings)


def test_parsers_need_no_torch():
    names = [module_of(name) for name in (*BENCH, *BELOW)]
    read = f"import importlib\nfor name in {names}: importlib.import_module(name).parser('headcount')"
    done = subprocess.run([sys.executable, "-c", f"import sys\nsys.modules['torch'] = None\n{read}"], text=True)
    assert done.returncode == 0
