"""Count MACs, parameters and KV cache of PyTorch models and attention layers, derive closed forms, measure time."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import headcount
from headcount.bench.cli import Parser, exit_process, run
from headcount.bench.errors import UsageError
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.suggest import choices

PROG = "headcount"
COMMANDS = {
    "count": ("bench.commands.count", "MACs and parameters of a model, counted exactly or in closed form"),
    "compare": ("bench.commands.compare", "cost difference of two models, and the sizes at which they cost the same"),
    "audit": ("bench.commands.audit", "what each installed counter reports, and the calls behind each difference"),
    "lock": ("bench.lock.__main__", "store a model's cost in a file, and fail when a term of it changes"),
    "derive": ("bench.derive.__main__", "the closed form of a layer, derived by running it"),
    "latency": ("bench.latency.__main__", "time per layer and per model, with the roofline bound"),
    "table": ("bench.commands.table", "the papers' tables, each printed number compared with the count"),
    "grid": ("bench.commands.grid", "one attention layer at every combination of sizes"),
    "budget": ("bench.budget.__main__", "attention sizes, or parallel plans, that fit a budget"),
    "fit": ("bench.budget.fit", "whether a model and its cache, or a training step, fit on a card"),
    "convert": ("bench.commands.convert", "a dense preset as mixture-of-head attention"),
    "routing": ("bench.routing.__main__", "tokens per expert or head of a trained model"),
}
"""By command: the module with its ``parser`` and ``main``, and its line of help."""

SHELLS = ("bash", "zsh")
FILES = ("out", "check", "update", "json", "records", "plot", "target")
"""Destinations of options that take a path."""
MODELS = ("preset", "model")
"""Destinations of options that take a preset with overrides, for which argparse has no choices."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options before the command."""
    lines = [f"  {name:8} {what}" for name, (_, what) in COMMANDS.items()]
    epilog = "\n".join(["commands:", *lines, "", "headcount COMMAND --help lists its options"])
    options = {"formatter_class": argparse.RawDescriptionHelpFormatter, "add_help": True}
    out = Parser(prog=PROG, usage=f"{PROG} COMMAND …", description=__doc__, epilog=epilog, **options)
    out.add_argument("--print-completion", choices=SHELLS, help="print the completion script for a shell")
    out.add_argument("--version", action="version", version=f"{PROG} {headcount.__version__}")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first of ``argv`` names and return its exit code."""
    return run(PROG, lambda: _main(list(sys.argv[1:] if argv is None else argv)))


def _main(words: list[str]) -> int:
    if not words or words[0] not in COMMANDS:
        if words and words[0].startswith("-"):
            options = parser().parse_args(words)
            if options.print_completion:
                print(completion(options.print_completion))
                return 0
        if not words:
            parser().print_help()
            return UsageError.exit_code
        raise UsageError(f"unknown command {words[0]!r}; {choices(words[0], COMMANDS)}")
    module, _ = COMMANDS[words[0]]
    return import_module(f"headcount.{module}").main(words[1:], prog=f"{PROG} {words[0]}")


def completion(shell: str) -> str:
    """Return the completion script for ``shell``, one of SHELLS: commands, options and their choices."""
    import shtab

    from headcount.formulas.published import tables

    top = parser()
    children = top.add_subparsers(parser_class=Parser)
    for name, (module, what) in COMMANDS.items():
        own = import_module(f"headcount.{module}").parser(f"{top.prog} {name}")
        for action in own._actions:
            if action.dest in FILES and action.nargs != 0:
                action.complete = shtab.FILE
            if action.dest in MODELS and action.option_strings:
                action.choices = tuple(PRESETS)
            if action.dest == "table":
                # any file of a table is one too
                action.choices = (*tables.names(), *tables.figure_names())
        children.add_parser(name, parents=[own], add_help=False, help=what, description=what)
    return shtab.complete(top, shell)


def program() -> NoReturn:
    """Run the command line of this process, and exit."""
    exit_process(main())


if __name__ == "__main__":
    program()
