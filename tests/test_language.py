"""Plurals and help texts follow the language rules of CONTRIBUTING.md."""

import argparse
import re
from importlib import import_module

import pytest

import headcount
from headcount.__main__ import COMMANDS

ROOT = headcount.CHECKOUT
NOUNS = "bytes|calls|cases|columns|counters|entries|heads|layers|modules|objects|parameters|points|rows|tables|tokens"


@pytest.mark.parametrize("folder", ["reports/generated", "tests/golden"])
def test_nouns_are_singular_after_one(folder):
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".md", ".txt", ".ambr", ".html"}]
    wrong = {path.name: re.findall(rf"(?<![\d,./^-])1 (?:{NOUNS})\b", path.read_text("utf-8")) for path in files}
    assert files and {name: found for name, found in wrong.items() if found} == {}


def parsers():
    """Return every command's parser by its name, those of subcommands in modules of their own included."""
    found = {}
    for name, (module, _) in COMMANDS.items():
        package, main = module.removesuffix(".__main__"), import_module(f"headcount.{module}")
        found[name] = main.parser(f"headcount {name}")
        for other in getattr(main, "SUBCOMMANDS", ()):
            found[f"{name} {other}"] = import_module(f"headcount.{package}.{other}").parser(f"headcount {name} {other}")
    return found


def test_help_states_defaults():
    none = (None, True, False, [], (), argparse.SUPPRESS)
    silent = [
        f"{name} {action.option_strings[0]}"
        for name, parser in parsers().items()
        for action in parser._actions
        if action.option_strings and action.help not in (None, argparse.SUPPRESS)
        if action.default not in none and "(default: " not in action.help
    ]
    assert silent == []
