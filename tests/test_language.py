"""Names, plurals and help texts follow the language rules of CONTRIBUTING.md."""

import argparse
import ast
import re
from importlib import import_module

import pytest

import headcount
from headcount.__main__ import COMMANDS

ROOT = headcount.CHECKOUT
PACKAGES = ("headcount", "bench", "formulas", "models", "reports")
RETIRED = set(
    """
    abreast undisturbed said_of was_taken asked_to_end no_warning_is_an_error right_count RightCount stand_ins
    young_only keep_freed written_as no_contraction in_a_ring own_sizes spellings arm_of layer_arms model_arms
    select_arm ArmSpec Lettered Told module_answer cuobjdump mutate replacing
    watching_functions each_tensor to_keep ROOMS rooms house Called Dispatched Regenerated Way ways_to_bill
    Surroundings
    """.split()
)
"""Names that a reader of the field cannot guess."""
NOUNS = "bytes|calls|cases|columns|counters|entries|heads|layers|modules|objects|parameters|points|rows|tables|tokens"


def names(path):
    """Return every name that a Python file defines: functions, classes, arguments, variables and imports."""
    found = {path.stem}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.rpartition(".")[2])
    return {name.lstrip("_") for name in found}


def test_no_retired_name_is_defined():
    files = [path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): sorted(names(path) & RETIRED) for path in files}
    assert len(RETIRED) <= 40
    assert {path: bad for path, bad in found.items() if bad} == {}


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
