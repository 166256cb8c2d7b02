"""What an attention layer costs: in closed form, counted, and measured."""

import argparse
import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

import headcount
from headcount.bench.cli import Parser, run
from headcount.bench.errors import UsageError
from headcount.completion import SHELLS, script

PROG = "headcount"
COMMANDS = {
    "macs": ("bench.macs", "MACs and parameters of the papers' tables, of a preset, a grid, or a user module"),
    "latency": ("bench.latency", "time per layer and per model, with the roofline bound"),
    "derive": ("bench.derive", "the closed form of a layer, derived by running it"),
    "budget": ("bench.budget", "the sizes of an attention that fit a budget"),
    "routing": ("bench.routing", "tokens per expert or head of a trained model"),
    "lock": ("bench.lock", "the cost of a user module in a file, and each term that changed since"),
    "report": ("reports", "the report, and in a checkout the other generated files"),
}
"""Package whose ``__main__`` a command is, and what the command prints, by command."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options before the command."""
    lines = [f"  {name:8} {what}" for name, (_, what) in COMMANDS.items()]
    epilog = "\n".join(["commands:", *lines, "", "headcount COMMAND --help lists its options"])
    layout = argparse.RawDescriptionHelpFormatter
    out = Parser(prog=PROG, usage=f"{PROG} COMMAND …", description=__doc__, epilog=epilog, formatter_class=layout)
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
                print(script(options.print_completion, parser(), COMMANDS))
                return 0
        raise UsageError(_unknown_command(words[0]) if words else f"no command; choose from {', '.join(COMMANDS)}")
    package, _ = COMMANDS[words[0]]
    return import_module(f"headcount.{package}.__main__").main(words[1:], prog=f"{PROG} {words[0]}")


def _unknown_command(word: str) -> str:
    near = "".join(f"did you mean {name}? " for name in difflib.get_close_matches(word, COMMANDS, n=1))
    return f"unknown command {word!r}; {near}choose from {', '.join(COMMANDS)}"


if __name__ == "__main__":
    sys.exit(main())
