"""Shared code of all commands: output options, one-line errors, exit codes, and printing of the tables."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, NoReturn, TextIO

import headcount
from headcount.bench.errors import UsageError, format_error, needs, reset_warning_filters
from headcount.bench.output import files, progress
from headcount.bench.output.arguments import Help, Value
from headcount.bench.output.base import AUTO, RAW, UNITS, Style
from headcount.bench.output.text import wrapped
from headcount.bench.render import FORMATS, deliver
from headcount.bench.table import Section, shown
from headcount.models.configs.numbers import decimal, whole
from headcount.models.configs.suggest import did_you_mean

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of any other wrong usage, and name what may have been meant."""

    def __init__(self, **options: Any) -> None:
        width = max(60, min(shutil.get_terminal_size().columns, 120)) - 2
        options = {"formatter_class": partial(Help, width=width), **options}
        if options.get("description"):
            options["description"] = options["description"].replace("``", "")
        super().__init__(**options)
        self.register("type", int, Value("int", whole))
        self.register("type", float, Value("float", decimal))

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def parse_args(self, args=None, namespace=None):
        """The arguments; UsageError, with options like it, for one that is unknown."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            near = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        for action in self._actions:
            given = getattr(found, action.dest, None)
            # a variable of a shell that is not set is no path, and nothing that was left out
            if "" in (given if isinstance(given, list) else [given]):
                self.error(f"argument {'/'.join(action.option_strings) or action.dest}: it is empty")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(str(value), map(str, action.choices))
            listed = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} (choose from {listed}){near}")


def add_output(parser: argparse.ArgumentParser) -> None:
    """The options that every command has: what is printed where, in which format and unit."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=FORMATS, help="text, or what the ending of --out says; csv is one table")
    group.add_argument(
        "-o", "--out", metavar="PATH", help="write there instead of stdout; DIR/ for a file for each table"
    )
    group.add_argument("--wide", action="store_true", help="every column, however wide the terminal is")
    group.add_argument(
        "--unit", choices=(AUTO, RAW, *UNITS), default=AUTO,
        help="of large integers; auto: M or G where integers do not fit. json and csv have integers",
    )  # fmt: skip
    group.add_argument("--flops", action="store_true", help="FLOPs, two for each MAC; json and csv have MACs")
    group.add_argument("--brief", action="store_true", help="the answer without its details")
    group.add_argument("--version", action="version", version=f"headcount {headcount.__version__}")


@dataclass(frozen=True)
class Work:
    """What a command prints, and how it ends.

    Where ``strict``, what is wrong with a row is named on stderr and the exit code is 1. ``remark`` ends the line that
    says the time, read after the last row. ``verdict`` is said where nothing is wrong; empty where nobody asked.
    ``result`` is the last line: what came out, in one sentence, of the sections with all their rows.
    """

    sections: Iterable[Section]
    strict: bool = True
    remark: Callable[[], str] = lambda: ""
    verdict: str = ""
    result: Callable[[Sequence[Section]], str] = lambda printed: ""


def serve(
    prog: str,
    parser: argparse.ArgumentParser,
    plan: Callable[[argparse.Namespace], Work | str],
    argv: Sequence[str] | None = None,
    tells: bool = False,
) -> int:
    """The exit code of a command: parse ``argv``, plan, print each section as its rows are ready.

    ``plan`` raises for what cannot be had, before anything is printed; a text is printed as it is. ``tells``: the
    command has a progress of its own. The parser has the options of :func:`add_output`.
    """
    with progress.left_alone() if tells else nullcontext():
        return run(prog, lambda: _served(prog, parser.parse_args(argv), plan))


def _served(prog: str, args: argparse.Namespace, plan: Callable[[argparse.Namespace], Work | str]) -> int:
    started = time.perf_counter()
    args.format = files.chosen(args.format, args.out)
    if args.out:
        files.check(args.out)
    with progress.said(prog):
        work = plan(args)
    if isinstance(work, str):
        print(shown(work))
        return 0
    details = _Details(args.brief and args.format != "json")
    in_text = args.format == "text" and not (args.out and files.is_folder(args.out))
    done = _Done(prog, work, started, details, in_text, apart=bool(args.out) or args.format != "text")
    deliver(
        details.kept(progress.watched(work.sections, prog, "table")),
        args.format,
        args.out,
        partial(Style.of, wide=args.wide, unit=args.unit, flops=args.flops),
        lambda printed: work.result(details.with_all(printed)),
        done,
    )
    return 1 if done.failures else 0


@dataclass
class _Details:
    """The details that a ``brief`` answer keeps to itself, though they may fail it too."""

    brief: bool
    hidden: dict[int, Section] = field(default_factory=dict)

    def kept(self, sections: Iterable[Section]) -> Iterator[Section]:
        """The sections that are printed."""
        for place, section in enumerate(sections):
            if self.brief and section.detail:
                self.hidden[place] = replace(section, rows=list(section.rows))
            else:
                yield section

    def with_all(self, printed: Sequence[Section]) -> list[Section]:
        """What is printed and what is not, in order."""
        out = list(printed)
        for place, section in self.hidden.items():
            out.insert(place, section)
        return out


@dataclass
class _Done:
    """Says how a command ended, on stderr, and its result: ``in_text`` below the tables, or ``apart`` on stderr."""

    prog: str
    work: Work
    started: float
    details: _Details
    in_text: bool
    apart: bool
    failures: Sequence[str] = ()

    def __call__(self, stream: TextIO, style: Style, printed: Sequence[Section]) -> None:
        sections = self.details.with_all(printed)
        failures = [failure for section in sections for row in section.rows for failure in row.failures]
        self.failures = failures if self.work.strict else []
        for failure in self.failures:
            print(shown(f"{self.prog}: {failure}"), file=sys.stderr)
        print(shown(f"{time.perf_counter() - self.started:.1f} s{self.work.remark()}"), file=sys.stderr)
        if self.work.verdict:
            said = f"{len(self.failures)} disagree" if self.failures else self.work.verdict
            print(f"check: {said}", file=sys.stderr)
        result = self.work.result(sections)
        if result and self.in_text:
            stream.write("\n" * bool(printed) + wrapped(shown(result), style.notes) + "\n")
            stream.flush()
        if result and self.apart:
            print(shown(result), file=sys.stderr)


def run(prog: str, command: Callable[[], int]) -> int:
    """Run ``command`` and return its exit code. An error or Ctrl-C is reported in one line and has an exit code too."""
    _prepare_streams()
    reset_warning_filters()
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return _exit_with(f"\n{prog}: interrupted", INTERRUPTED)
    except Exception as error:
        found = format_error(error)
        if found is None:
            raise
        text, code = found
        return _exit_with(f"{prog}: error: {text}", code)


def start(prog: str, module: str, package: str) -> NoReturn:
    """Run the ``main`` of ``module``, which imports ``package``, and exit.

    A command's file calls this first when it is run as a program, so that a missing package, and a Ctrl-C during
    the imports, are reported in one line.
    """

    def command() -> int:
        needs(package)
        return import_module(module).main()

    sys.exit(run(prog, command))


def _exit_with(text: str, code: int) -> int:
    """Print ``text`` on stderr, if it is still read, and return ``code``."""
    try:
        print(shown(text), file=sys.stderr, flush=True)
    except OSError:
        _discard_output()
    return code


def _discard_output() -> None:
    """Redirect streams whose reader has left to /dev/null, so that Python's flush at exit reports nothing."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _prepare_streams() -> None:
    """Reopen closed standard streams on /dev/null and replace characters that the locale cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
