"""What every command shares: one-line errors, exit codes, a clean end on Ctrl-C and on a closed pipe, and the way
from arguments to printed tables."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headcount.bench.errors import UsageError
from headcount.bench.render import emit, open_output
from headcount.bench.table import Section

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of any other wrong usage; its description keeps its lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


@dataclass(frozen=True)
class Value:
    """What an option takes, for argparse: ``read`` of its text, where ``holds`` is true of that; else ``name`` says
    what was wanted."""

    name: str
    read: Callable[[str], Any]
    holds: Callable[[Any], bool] = lambda value: True

    def __call__(self, text: str) -> Any:
        try:
            value = self.read(text)
        except (ValueError, ZeroDivisionError):
            value = None
        if value is None or not self.holds(value):
            raise argparse.ArgumentTypeError(f"invalid {self.name} value: {text!r}")
        return value


@dataclass(frozen=True)
class Work:
    """What a command prints, and how it ends.

    Where ``strict``, what is wrong with a row is named on stderr and the exit code is 1. ``remark`` ends the line that
    says the time, read after the last row. ``verdict`` is said where nothing is wrong; empty where nobody asked.
    """

    sections: Iterable[Section]
    strict: bool = True
    remark: Callable[[], str] = lambda: ""
    verdict: str = ""


def serve(
    prog: str,
    parser: argparse.ArgumentParser,
    plan: Callable[[argparse.Namespace], Work | str],
    argv: Sequence[str] | None = None,
) -> int:
    """The exit code of a command: parse ``argv``, plan, print each section as its rows are ready.

    ``plan`` raises for what cannot be had, before anything is printed; a text is printed as it is. The parser has
    ``--format`` and ``--out``, or only the first.
    """
    return run(prog, lambda: _served(prog, parser.parse_args(argv), plan))


def _served(prog: str, args: argparse.Namespace, plan: Callable[[argparse.Namespace], Work | str]) -> int:
    started = time.perf_counter()
    work = plan(args)
    if isinstance(work, str):
        print(work)
        return 0
    with open_output(getattr(args, "out", None)) as stream:
        failures = emit(work.sections, args.format, stream)
    failures = failures if work.strict else []
    for failure in failures:
        print(f"{prog}: {failure}", file=sys.stderr)
    print(f"{time.perf_counter() - started:.1f} s{work.remark()}", file=sys.stderr)
    if work.verdict:
        print(f"check: {f'{len(failures)} disagree' if failures else work.verdict}", file=sys.stderr)
    return 1 if failures else 0


def run(prog: str, command: Callable[[], int]) -> int:
    """The exit code of ``command``: its own, or the ``exit_code`` of the error that ended it."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has what it wanted; Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        print(f"{prog}: error: {error}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
