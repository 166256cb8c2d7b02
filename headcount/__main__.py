"""What an attention layer costs: in closed form, counted, and by the clock."""

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
    "macs": ("bench.macs", "the papers' MAC and parameter columns again, any preset, a grid, or a module of yours"),
    "latency": ("bench.latency", "time per layer and per model, beside the hardware's floor"),
    "derive": ("bench.derive", "the closed form of a layer, found by running it"),
    "budget": ("bench.budget", "the sizes of an attention that fit a budget"),
    "routing": ("bench.routing", "where a trained model's tokens go"),
    "lock": ("bench.lock", "what a module of yours costs, held by a file: what changed, by name"),
    "report": ("reports", "the report, and in a checkout the other generated files"),
}
"""Command -> the package whose ``__main__`` it is, and what it does."""


def parser() -> argparse.ArgumentParser:
    """The command line before that of a command."""
    lines = [f"  {name:8} {what}" for name, (_, what) in COMMANDS.items()]
    epilog = "\n".join(["commands:", *lines, "", "headcount COMMAND --help tells more"])
    layout = argparse.RawDescriptionHelpFormatter
    out = Parser(prog=PROG, usage=f"{PROG} COMMAND …", description=__doc__, epilog=epilog, formatter_class=layout)
    out.add_argument(
        "--print-completion", choices=SHELLS, help="the script that completes this command, for your shell to read"
    )
    out.add_argument("--version", action="version", version=f"{PROG} {headcount.__version__}")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first of ``argv`` names; its exit code."""
    return run(PROG, lambda: _main(list(sys.argv[1:] if argv is None else argv)))


def _main(words: list[str]) -> int:
    if not words or words[0] not in COMMANDS:
        if words and words[0].startswith("-"):
            asked = parser().parse_args(words)
            if asked.print_completion:
                print(script(asked.print_completion, parser(), COMMANDS))
                return 0
        raise UsageError(_unknown(words[0]) if words else f"no command; choose from {', '.join(COMMANDS)}")
    package, _ = COMMANDS[words[0]]
    return import_module(f"headcount.{package}.__main__").main(words[1:], prog=f"{PROG} {words[0]}")


def _unknown(word: str) -> str:
    near = "".join(f"did you mean {name}? " for name in difflib.get_close_matches(word, COMMANDS, n=1))
    return f"unknown command {word!r}; {near}choose from {', '.join(COMMANDS)}"


if __name__ == "__main__":
    sys.exit(main())
