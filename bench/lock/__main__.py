"""``python -m bench.lock``: what a module costs, written down and held: integers are equal or they are not.

    python -m bench.lock --module model.py:make -o macs.lock      count, and write every contraction by name
    python -m bench.lock --check macs.lock                        count again; exit 1 with what changed
    python -m bench.lock --check macs.lock --format md            the same as a comment on a pull request
    python -m bench.lock --update macs.lock                       count again, and write that
    python -m bench.lock --workflow                               a workflow of GitHub Actions that does so

FUNCTION takes integers by keyword and returns (module, inputs). The lock remembers module, integers and options; what
is given with --check stands instead. Run it where it was written: FILE.py is looked for from the current folder. Exit
codes: 0 the cost is as locked; 1 it is not, or an operation is one that nobody knows; 2 wrong usage, or a file that
is no lock; 3 the device is not there.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

from headcount.bench.cli import Parser, Work, add_output, serve
from headcount.bench.errors import UsageError
from headcount.bench.isolated.module_count import count_module, parse_formulas
from headcount.bench.isolated.run import parse_settings
from headcount.bench.measure import DEVICES, check_device
from headcount.bench.output.base import AUTO, RAW
from headcount.bench.render import open_output
from headcount.bench.saved import file
from headcount.bench.saved.saved import Asked, Saved, of_answer
from headcount.bench.saved.sections import LOCKED, equal, sections, summary

PROG = "python -m bench.lock"
POLICIES = ("report", "include", "refuse")


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.lock."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    what = out.add_mutually_exclusive_group()
    what.add_argument("--check", metavar="LOCK", help="count what this file locks again, and compare")
    what.add_argument("--update", metavar="LOCK", help="count what this file locks again, and write it anew")
    what.add_argument("--workflow", action="store_true", help="print a workflow file for GitHub Actions")
    how = out.add_argument_group("what is counted; with --check and --update instead of what the lock remembers")
    how.add_argument("--module", metavar="SPEC", help="FILE.py:FUNCTION or package.module:FUNCTION of your own")
    how.add_argument("--set", nargs="+", metavar="NAME=INTEGER", help="what FUNCTION is called with")
    how.add_argument("--device", choices=DEVICES, help="count there instead of on meta or where the module is")
    how.add_argument("--allow-uncounted", action="store_true", default=None, help="list unknown operations, go on")
    how.add_argument("--formula", nargs="+", metavar="OPERATOR=EXPRESSION", help="MACs of an operation nobody knows")
    how.add_argument("--elementwise", choices=POLICIES, help="contractions written elementwise: named, counted, error")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; its exit code."""
    return serve(prog, parser(prog), plan, argv)


def plan(args: argparse.Namespace) -> Work | str:
    """What ``args`` asks for, counted before anything is printed."""
    if args.workflow:
        return files(__package__).joinpath("workflow.yml").read_text("utf-8").removesuffix("\n")
    if args.check:
        return _checked(args)
    # a lock is JSON, whatever its file is called
    if args.format not in ("text", "json"):
        raise UsageError(f"--format {args.format} goes with --check; a lock is JSON of its own")
    if args.update:
        if args.out:
            raise UsageError("--update writes the file that it reads; --out goes with --module and --check")
        return _written(_counted(_asked(args, file.read(args.update).asked)), args.update)
    return _written(_counted(_asked(args, None)), args.out)


def _checked(args: argparse.Namespace) -> Work | str:
    old = file.read(args.check)
    new = _counted(_asked(args, old.asked))
    same = equal(old, new)
    if same and args.format in ("text", "md"):
        line = f"{args.check}: as locked, {new.macs:,} MACs and {new.params:,} parameters"
        if args.out:
            with open_output(args.out) as stream:
                stream.write(f"{line}\n")
        return line
    failures = [] if same else [f"{args.check}: the cost is not as locked"]
    # what is held is integers
    args.unit = RAW if args.unit == AUTO else args.unit
    return Work(sections(old, new, LOCKED, failures), result=lambda printed: f"{args.check}: {summary(old, new)}.")


def _asked(args: argparse.Namespace, locked: Asked | None) -> Asked:
    """What is to be counted: what the lock remembers, but for what is given."""
    given = {
        "module": args.module,
        "settings": None if args.set is None else parse_settings(args.set),
        "device": args.device,
        "allow_uncounted": args.allow_uncounted,
        "elementwise": args.elementwise,
        "formulas": None if args.formula is None else parse_formulas(args.formula),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if locked is None and not args.module:
        where = args.check or args.update
        reason = f"{where} was written by a program and names no module; " if where else ""
        raise UsageError(f"{reason}give --module FILE.py:FUNCTION{'' if where else ', --check LOCK or --update LOCK'}")
    return replace(locked, **given) if locked else Asked(**given)


def _counted(asked: Asked) -> Saved:
    if asked.device not in (None, *DEVICES) or asked.elementwise not in POLICIES:
        raise UsageError(f"a lock with device {asked.device} and elementwise {asked.elementwise} cannot be counted")
    check_device(asked.device)
    return of_answer(count_module(asked.module, asked.settings, **asked.options()), asked, file.versions())


def _written(saved: Saved, path: str | None) -> str:
    """The lock as text without a ``path``; else it is written there, and what is said of it."""
    if path is None:
        return file.text(saved).removesuffix("\n")
    with open_output(path) as stream:
        stream.write(file.text(saved))
    lines = f"{len(saved.terms):,} contractions and {len(saved.parameters):,} parameter tensors"
    return f"{path}: {saved.macs:,} MACs and {saved.params:,} parameters, {lines}"


if __name__ == "__main__":
    sys.exit(main())
