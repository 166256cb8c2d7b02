"""Shell completion for ``headcount``: commands, options and their choices."""

import argparse
from importlib import import_module

from headcount.bench.cli import Parser
from headcount.models.configs.presets import PRESETS

SHELLS = ("bash", "zsh")
FILES = ("out", "check", "update", "json", "records", "plot", "module")
"""Destinations of options that take a path."""

MODELS = ("preset", "compare", "model")
"""Destinations of options that take a preset with overrides, for which argparse has no choices."""


def script(shell: str, top: argparse.ArgumentParser, commands: dict[str, tuple[str, str]]) -> str:
    """Return the completion script for ``shell``, one of SHELLS."""
    import shtab

    children = top.add_subparsers(parser_class=Parser)
    for name, (module, what) in commands.items():
        own = import_module(f"headcount.{module}").parser(f"{top.prog} {name}")
        for action in own._actions:
            if action.dest in FILES and action.nargs != 0:
                action.complete = shtab.FILE
            if action.dest in MODELS and action.option_strings:
                action.choices = tuple(PRESETS)
        children.add_parser(name, parents=[own], add_help=False, help=what, description=what)
    return shtab.complete(top, shell)
