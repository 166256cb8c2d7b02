"""Shared code of all commands: arguments and their help, one-line errors, exit codes, and printing of the tables."""

import argparse
import atexit
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from headcount.bench.column import escape_controls
from headcount.bench.errors import OptionError, UsageError, format_error, require_package, reset_warning_filters
from headcount.bench.output import files, progress
from headcount.bench.output.layout import AUTO, RAW, UNITS, Style
from headcount.bench.render import FORMATS, emit, open_output, write_folder
from headcount.bench.result import Result
from headcount.models.configs.numbers import LONGEST, TYPE_BITS, parse_element_bytes, parse_float, parse_int
from headcount.models.configs.suggest import did_you_mean, join_or

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_ENDED: list[int] = []
"""The exit code after a SIGTERM."""


class Help(argparse.HelpFormatter):
    """Layout of ``--help``: a usage of one line, and at most two lines for each option, its choices first.

    Paragraphs are wrapped at the terminal's width. Indented lines are examples and are not wrapped; the remark behind
    two spaces of an example goes to a separate line where both do not fit.
    """

    def __init__(self, prog: str, width: int) -> None:
        super().__init__(prog, max_help_position=26, width=width)

    def _format_usage(self, usage, actions, groups, prefix) -> str:
        words = [self._format_args(action, "") for action in actions if not action.option_strings]
        return f"usage: {usage or ' '.join((self._prog, *words, '[OPTION …]'))}\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._paragraph(part, width) for part in text.strip().split("\n\n"))

    def _paragraph(self, part: str, width: int) -> str:
        lines = part.split("\n")
        if not lines[0].startswith("    "):
            return textwrap.fill(" ".join(lines), width, break_on_hyphens=False)
        if max(map(len, lines)) <= width:
            return part
        return "\n".join(line for text in lines for line in _split_example(text, width))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, max_lines=2, placeholder=" …", break_on_hyphens=False)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        name: Any = action.metavar or ("NAME" if action.choices else action.dest.upper())
        forms: dict[Any, str] = {"+": f"{name} …", "*": f"[{name} …]", "?": f"[{name}]"}
        return forms.get(action.nargs, name)

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        if not action.choices or action.metavar:
            return text
        return f"{', '.join(action.choices)}{' ' if text.startswith('(') else ': '}{text}"


def _split_example(line: str, width: int) -> list[str]:
    command, _, what = line.strip().partition("  ")
    return [f"    {command}", *textwrap.wrap(what.strip(), width, initial_indent=" " * 8, subsequent_indent=" " * 8)]


_NAMED = re.compile(r"[A-Za-z_]\w*=\S*")
"""A value with its name, which no TARGET is."""
_HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9_]{4,}")
"""An exponent that writes thousands of digits in few characters."""


@dataclass(frozen=True)
class Value:
    """Type of an option for argparse: ``parse`` of its text, if that ``is_valid``; ``name`` describes it in errors."""

    name: str
    parse: Callable[[str], Any]
    is_valid: Callable[[Any], bool] = lambda value: True

    def __call__(self, text: str) -> Any:
        try:
            # a number of thousands of digits takes long and cannot be printed again
            value = self.parse(text) if len(text) <= LONGEST and not _HUGE_EXPONENT.search(text) else None
        except (ValueError, ZeroDivisionError):
            value = None
        if value is None or not self.is_valid(value):
            raise argparse.ArgumentTypeError(f"invalid {self.name} value: {text!r}")
        return value


COUNT = Value("positive integer", parse_int, lambda number: number >= 1)
RATE = Value("bytes per second", parse_float, lambda rate: rate > 0)
ELEMENT = Value(f"number of bytes, as 2 and 0.5, or type ({', '.join(TYPE_BITS)})", parse_element_bytes)
SET: Mapping[str, Any] = {"action": "append", "metavar": "FIELD=VALUE", "default": []}
"""Arguments of an option that changes a field of a preset, and may be repeated."""


class NameList(argparse.Action):
    """Store a list of names, each of the choices if there are any; commas or spaces stand between them.

    An option that is given twice adds to the first.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, **{"nargs": "+", "default": [], **options})

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        before = getattr(namespace, self.dest) if self in parser.given else []
        parser.given.add(self)
        setattr(namespace, self.dest, [*before, *(name for word in values for name in word.split(","))])


class Store(argparse._StoreAction):
    """Store what stands behind an option. Raises UsageError where the option is given twice: the last alone counted."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        if option_string and self in parser.given:
            name = str(self.metavar or self.dest)
            noun = name.lower() if name.isalpha() and len(name) > 1 else "value"
            takes = f"it takes one {noun}" if self.nargs is None else f"all its values stand behind one {option_string}"
            parser.error(f"{option_string} is given twice; {takes}")
        parser.given.add(self)
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """Argument parser that raises UsageError, and suggests the nearest option or choice.

    ``given``: the options of one value or one list that were read.
    ``elsewhere``: the command that takes an option that this one does not.
    ``names_words``: whether arguments without an option are NAME=VALUE.
    """

    elsewhere: Mapping[str, str] = {}
    names_words = False

    def __init__(self, **options: Any) -> None:
        width = max(60, min(shutil.get_terminal_size().columns, 120)) - 2
        options = {"formatter_class": partial(Help, width=width), "add_help": False, **options}
        if options.get("description"):
            options["description"] = options["description"].replace("``", "")
        super().__init__(**options)
        self.given: set[argparse.Action] = set()
        for name in (None, "store"):
            self.register("action", name, Store)
        self.register("type", int, Value("int", parse_int))
        self.register("type", float, Value("float", parse_float))

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def parse_args(self, args=None, namespace=None):
        """Return the arguments. Raise UsageError for an unknown one, for an empty value and for an option given twice.

        Positional arguments may stand before, between and behind options of one value. An option that may be repeated
        stands before each of several NAME=VALUE, or before the first alone.
        """
        self.given.clear()
        words = self._repeat(sys.argv[1:] if args is None else args)
        found, unknown = self.parse_known_intermixed_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._advice(unknown)}{self._others(unknown)}")
        for action in self._actions:
            given = getattr(found, action.dest, None)
            # an unset shell variable gives an empty argument
            if "" in (given if isinstance(given, list) else [given]):
                self.error(f"argument {'/'.join(action.option_strings) or action.metavar or action.dest}: it is empty")
        return found

    def _repeat(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command with a repeatable option before each of several NAME=VALUE behind it."""
        found: list[str] = []
        option = ""
        for word in words:
            is_named = not self.names_words and _NAMED.fullmatch(word)
            if option and is_named and found[-1] != option:
                found.append(option)
            if not is_named:
                option = word if isinstance(self._option_string_actions.get(word), argparse._AppendAction) else ""
            found.append(word)
        return found

    def _advice(self, unknown: Sequence[str]) -> str:
        option = unknown[0].partition("=")[0]
        if option in self.elsewhere:
            return f"; use {self.elsewhere[option]}"
        return did_you_mean(option, self._option_string_actions)

    def _others(self, unknown: Sequence[str]) -> str:
        """Return the other commands that take the unknown options."""
        given = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        options = [option for option in given if option not in self.elsewhere]
        if not options:
            return ""
        # the commands import this file
        commands = import_module("headcount.__main__").COMMANDS
        parsers = {name: import_module(f"headcount.{module}").parser() for name, (module, _) in commands.items()}
        found = []
        for option in dict.fromkeys(options):
            names = [f"headcount {name}" for name, one in parsers.items() if option in one._option_string_actions]
            # the first commands are those used most
            found += [f"; {join_or(names[:3])} takes {option}"] if names else []
        return "".join(found)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Python 3.11 checks the default of a list without values too
        if action.choices is None or value is action.default:
            return
        for name in value.split(",") if isinstance(action, NameList) else [value]:
            if name not in action.choices:
                near = did_you_mean(str(name), map(str, action.choices))
                listed = ", ".join(map(str, action.choices))
                raise argparse.ArgumentError(action, f"invalid choice: {name!r} (choose from {listed}){near}")


def add_output(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that every command has, help, output file, format and unit, and return their group."""
    group = parser.add_argument_group("output")
    add = group.add_argument
    add("-h", "--help", action="help", help="print this text")
    add("--format", choices=FORMATS, help="(default: by --out)")
    add("-o", "--out", metavar="PATH", help="output file; DIR/ writes a file for each table")
    add("--wide", action="store_true", help="print every column, however narrow the terminal is")
    add("--unit", choices=(AUTO, RAW, *UNITS), default=AUTO, help="of large integers in tables")
    add("--flops", action="store_true", help="print FLOPs = 2 x MACs; json and csv have MACs")
    add("--brief", action="store_true", help="print one line; other formats: no details")
    return group


def serve(
    prog: str,
    parser: argparse.ArgumentParser,
    plan: Callable[[argparse.Namespace], Result | str | Callable[[], int]],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a command and return its exit code: parse ``argv``, plan, print each table as its rows are ready.

    ``plan`` raises before anything is printed. It returns a result, a text to print, or a function that prints and
    returns the exit code. The parser has the options of :func:`add_output`.
    """
    return run(prog, lambda: _serve(prog, parser.parse_args(argv), plan), parser)


def _serve(prog: str, args: argparse.Namespace, plan: Callable[[argparse.Namespace], Any]) -> int:
    started = time.perf_counter()
    form = args.format = files.infer_format(args.format, args.out)
    if args.out:
        files.check_writable(args.out)
        check_not_input(args)
    with progress.stage(prog):
        answer = plan(args)
    if isinstance(answer, str):
        print(escape_controls(answer))
        return 0
    if not isinstance(answer, Result):
        return answer()
    style = partial(Style.of, wide=args.wide, unit=args.unit, flops=args.flops)
    brief = args.brief and form != "json"
    tables = progress.with_progress(answer.tables, f"{prog}, table")
    if args.out and files.is_folder(args.out):
        printed = write_folder(tables, form, args.out, style, brief)
    else:
        with open_output(args.out) as stream:
            printed = emit(tables, form, stream, style(stream), answer.sentence, brief)
    rows = [row for table in printed for row in table.rows]
    failures = [failure for row in rows for failure in row.failures if answer.strict or row.exit_code]
    for failure in failures:
        print(escape_controls(f"{prog}: {failure}"), file=sys.stderr)
    for path in filter(None, (args.out, getattr(args, "plot", None))):
        print(escape_controls(f"{path} is written"), file=sys.stderr)
    print(escape_controls(f"{time.perf_counter() - started:.1f} s{_peak_memory()}{answer.remark()}"), file=sys.stderr)
    if (args.out or form != "text") and (sentence := answer.sentence()):
        print(escape_controls(sentence, kept="\n"), file=sys.stderr)
    code = next((row.exit_code for row in rows if row.exit_code), 0)
    return code or (1 if failures else 0)


def _peak_memory() -> str:
    """Return ``, peak memory 1.75 GiB``, resident, of this process or of an ended child; empty on Windows."""
    try:
        import resource
    except ImportError:
        return ""
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return f", peak memory {most * (1 if sys.platform == 'darwin' else 1024) / 2**30:.2f} GiB"


def check_not_input(args: argparse.Namespace, *others: str) -> None:
    """Raise UsageError where --out is a file of another argument or of ``others``: PATH, PATH:NAME or MODULE:NAME."""
    values = [value for name, value in vars(args).items() if name != "out"]
    for value in (*values, others):
        for word in value if isinstance(value, list | tuple) else [value]:
            file = word.rpartition(":")[0] if isinstance(word, str) else ""
            paths = (word, file, f"{file.replace('.', os.sep)}.py") if isinstance(word, str) else ()
            if any(os.path.isfile(path) and os.path.realpath(path) == os.path.realpath(args.out) for path in paths):
                raise UsageError(f"--out {args.out} is an input of this command")


def run(prog: str, command: Callable[[], int], parser: argparse.ArgumentParser | None = None) -> int:
    """Run ``command`` and return its exit code. An error or Ctrl-C is one line, with a code other than 0.

    The line names the command that takes the options of a count which ``parser`` does not take.
    """
    _prepare_streams()
    reset_warning_filters()
    _unwind_on_sigterm()
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
        if _ENDED:
            # an import of C code reports SystemExit as an error of that import
            sys.exit(_ENDED[0])
        found = format_error(error)
        if found is None:
            raise
        text, code = found
        ending = error.ending(parser._option_string_actions) if parser and isinstance(error, OptionError) else ""
        return _exit_with(f"{prog}: error: {text}{ending}", code)


def _unwind_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit, so that temporary files and other processes are removed first."""

    def end(number: int, _: Any) -> NoReturn:
        _ENDED.append(128 + number)
        sys.exit(_ENDED[0])

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def start(prog: str, module: str, package: str) -> NoReturn:
    """Run the ``main`` of ``module``, which imports ``package``, and exit.

    A command's file calls this first when it is run as a program, so that a missing package, and a Ctrl-C during
    the imports, are reported in one line.
    """

    def command() -> int:
        require_package(package)
        return import_module(module).main()

    exit_process(run(prog, command))


def exit_process(code: int) -> NoReturn:
    """Exit at once: to free every object of torch takes seconds."""
    atexit._run_exitfuncs()
    _discard_output()
    os._exit(code)


def _exit_with(text: str, code: int) -> int:
    """Print ``text`` on stderr, if it is still read, and return ``code``."""
    try:
        print(escape_controls(text), file=sys.stderr, flush=True)
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
