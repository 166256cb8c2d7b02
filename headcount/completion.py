"""What a shell completes after ``headcount``: commands, their options, and what these can be chosen from."""

import argparse
from importlib import import_module

from headcount.bench.cli import Parser
from headcount.bench.errors import EnvironmentMissing
from headcount.models.configs.presets import PRESETS

SHELLS = ("bash", "zsh")
FILES = ("out", "check", "update", "json", "records", "plot", "module")
"""Options, by the name of what they set, that take a path."""

MODELS = ("preset", "compare", "model")
"""Options that take a preset, and more than its name, so that they name no choices themselves."""


def script(shell: str, top: argparse.ArgumentParser, commands: dict[str, tuple[str, str]]) -> str:
    """The script that ``shell``, one of SHELLS, reads; EnvironmentMissing where shtab is not installed."""
    try:
        import shtab
    except ImportError:
        raise EnvironmentMissing("completion needs shtab; pip install 'headcount[completion]'") from None
    children = top.add_subparsers(parser_class=Parser)
    for name, (package, what) in commands.items():
        own = import_module(f"headcount.{package}.__main__").parser(f"{top.prog} {name}")
        for action in own._actions:
            if action.dest in FILES and action.nargs != 0:
                action.complete = shtab.FILE
            if action.dest in MODELS:
                action.choices = tuple(PRESETS)
        children.add_parser(name, parents=[own], add_help=False, help=what, description=what)
    return shtab.complete(top, shell)
