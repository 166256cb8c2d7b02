"""``python -m bench.lock``: lock the MACs and parameters of a module in a file, and check that they stay the same.

    python -m bench.lock model.py:make -o macs.lock              count, and write every contraction by name
    python -m bench.lock --check macs.lock                        count again; exit 1 with what changed
    python -m bench.lock --check macs.lock --format md            the same as a comment on a pull request
    python -m bench.lock --update macs.lock                       count again, and write that
    python -m bench.lock model.py:make --max macs=2.1G params=25M -o macs.lock   limits instead of the same count
    python -m bench.lock --history main~20..main macs.lock        the lock of each commit; runs nothing
    python -m bench.lock --badge macs.svg macs.lock               an image with the locked MACs and parameters
    python -m bench.lock --workflow                               a workflow of GitHub Actions that checks a lock

TARGET is FILE.py:FUNCTION, which returns (module, inputs), FILE.py:CLASS with --input, a preset, config.json or
hf:NAME. The lock stores target and options; options given with --check or --update replace them. Run it in the folder
where the lock was written: files are relative to the current folder. A lock is code: --check runs the function that
it names, from the lock's repository (without git, its folder) alone unless --trust allows others. Counts are integers,
so there is no tolerance.
Exit codes: 0 the count is as locked; 1 it is not, or an operation is unsupported; 2 wrong usage, or a file that is no
lock; 3 the device is not available.
"""

import argparse
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path

from headcount.bench.cli import Parser, Work, add_output, check_not_input, serve
from headcount.bench.contractions import linalg
from headcount.bench.errors import UsageError
from headcount.bench.isolated.module_count import count_module, parse_formulas
from headcount.bench.isolated.target import (
    add_ranks,
    add_target_options,
    check_ranks,
    is_configuration,
    parse_target,
)
from headcount.bench.lock.history import badge, history
from headcount.bench.lock.workflow import workflow
from headcount.bench.measure import DEVICES, check_device
from headcount.bench.output.files import write
from headcount.bench.render import open_output
from headcount.bench.snapshot import file
from headcount.bench.snapshot.difference import equal, summary
from headcount.bench.snapshot.sections import LOCKED, sections
from headcount.bench.snapshot.snapshot import LIMITED, CountRequest, CountSnapshot, snapshot_of
from headcount.bench.table import Column, Row, Section, Table
from headcount.models.configs.numbers import parse_amount

PROG = "python -m bench.lock"
OPTIONS = "dtype device allow_unsupported elementwise formula_set backward plan ranks rank".split()
"""Options of a count by their names in a CountRequest, where those of the command line have the same."""
POLICIES = ("report", "include", "refuse")


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.lock."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("target", nargs="?", metavar="TARGET", help="what to count: FILE.py:FUNCTION, a preset, …")
    what = out.add_mutually_exclusive_group()
    what.add_argument("--check", metavar="LOCK", help="count again and compare with this lock")
    what.add_argument("--update", metavar="LOCK", help="count again and rewrite this lock")
    what.add_argument("--history", metavar="RANGE", help="read the lock TARGET in each of these commits")
    what.add_argument("--badge", metavar="FILE", help="write the totals of the lock TARGET as an .svg image")
    what.add_argument("--workflow", action="store_true", help="print a workflow file for GitHub Actions")
    out.add_argument("--plot", metavar="FILE", help="with --history, a plot: .svg, .png or .pdf")
    out.add_argument(
        "--max", nargs="+", metavar="QUANTITY=N", type=_limit, default=[], help="limits of macs and params: macs=2.1G"
    )
    out.add_argument("--trust", action="store_true", help="run the code that LOCK names wherever it is")
    how = out.add_argument_group("what is counted; with --check and --update these replace the options of the lock")
    add = how.add_argument
    add("--module", metavar="TARGET", help=argparse.SUPPRESS)
    add_target_options(how)
    add("--backward", action="store_true", default=None, help="count the gradients too")
    add("--plan", metavar="PLAN", help="one rank: of a preset tp=8,sp, or by FILE.py:FUNCTION with --ranks")
    add_ranks(how)
    add("--device", choices=DEVICES, help="device of the count (default: meta, or the module's own)")
    for name, text in (("unsupported", "list unsupported operations, go on"), ("uncounted", argparse.SUPPRESS)):
        add(f"--allow-{name}", dest="allow_unsupported", action="store_true", default=None, help=text)
    add("--formula", dest="formulas", nargs="+", metavar="OPERATOR=EXPRESSION", help="MACs of an unsupported operation")
    add("--formula-set", choices=linalg.SETS, help=linalg.HELP)
    add("--elementwise", choices=POLICIES, help="contractions written elementwise (default: report)")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), plan, argv)


def plan(args: argparse.Namespace) -> Work | str:
    """Return the work for ``args``; the module is counted before anything is printed."""
    if args.workflow:
        return workflow().removesuffix("\n")
    if args.plot and not args.history:
        raise UsageError("--plot goes with --history")
    if (args.history or args.badge) and not args.target:
        raise UsageError("--history and --badge read a lock, as headcount lock --badge macs.svg macs.lock")
    if args.history:
        return history(args.history, args.target, args.plot)
    if args.badge:
        if not args.badge.endswith(".svg"):
            raise UsageError(f"a badge is an .svg file, not {args.badge!r}")
        write(args.badge, badge(args.target))
        return f"{args.badge}: the totals of {args.target}"
    if not args.check and args.format not in ("text", "json"):
        raise UsageError(f"--format {args.format} goes with --check; a lock is always JSON")
    if args.update and args.out:
        raise UsageError("--update writes the file that it reads; --out goes with --module and --check")
    path = args.check or args.update
    locked = file.read(path) if path else None
    if args.update and not locked.versions:
        raise UsageError(f"{args.update} is no lock; --module SPEC --out FILE writes one")
    if locked and locked.request:
        runs = locked.request.code
        if args.out:
            check_not_input(args, *runs)
        for spec in () if args.target or args.module or args.trust else runs:
            _check_trusted(spec, path)
    request = _request(args, locked)
    check_device(request.device)
    answer = count_module(request.module, request.settings, **request.options())
    counted = snapshot_of(answer, request, file.versions(answer.libraries))
    counted = replace(counted, limits=dict(args.max) or (locked.limits if locked else {}))
    return _compare(args, locked, counted) if args.check else _write(counted, args.update or args.out)


def _limit(text: str) -> tuple[str, int]:
    """Return the quantity and the number of ``macs=2.1G``."""
    name, _, amount = text.partition("=")
    if name not in LIMITED:
        raise argparse.ArgumentTypeError(f"{text!r}: --max limits {' and '.join(LIMITED)}, as macs=2.1G")
    try:
        return name, parse_amount(amount)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _request(args: argparse.Namespace, locked: CountSnapshot | None) -> CountRequest:
    """Return the request of the lock with the options of the command line."""
    base = (locked and locked.request) or CountRequest("")
    target = parse_target(args.target or args.module or base.module, args)
    found = {"module": target.spec, "settings": target.settings, "inputs": target.inputs, "lengths": target.lengths}
    given = {name: value for name, value in found.items() if value}
    for name in OPTIONS:
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)
    if args.formulas:
        given["formulas"] = parse_formulas(args.formulas)
    request = replace(base, **given)
    if not request.module:
        reason = "a lock written by a program names no module; " if locked else ""
        raise UsageError(f"{reason}give a TARGET, as FILE.py:FUNCTION{'' if locked else ', --check or --update LOCK'}")
    check_ranks(request.module, request.plan, request.ranks, request.rank or None)
    if request.device not in (None, *DEVICES) or request.elementwise not in POLICIES:
        raise UsageError(f"a lock with device {request.device} and elementwise {request.elementwise} cannot be counted")
    if request.formula_set not in (None, *linalg.SETS):
        raise UsageError(f"the lock's formula_set {request.formula_set} is none of {', '.join(linalg.SETS)}")
    return request


def _check_trusted(spec: str, lock: str) -> None:
    """Raise UsageError where ``spec`` is code from outside of the lock's repository, or without one of its folder."""
    target, colon, _ = spec.rpartition(":")
    if not colon or is_configuration(spec):
        return
    folder = Path(lock).resolve().parent
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    place = Path(target).resolve() if target.endswith(".py") else _place(target.partition(".")[0])
    # a repository may hold its virtual environment
    installed = Path(sysconfig.get_path("purelib")).resolve()
    if place is None or not place.is_relative_to(root) or place.is_relative_to(installed):
        raise UsageError(f"{lock} would run {spec}, which is not below {root}; --trust allows it")


def _place(package: str) -> Path | None:
    """Return the file or folder of a package, as it is found from the current folder; None where there is none."""
    found = PathFinder.find_spec(package, [os.getcwd(), *sys.path])
    return found and Path(found.origin or next(iter(found.submodule_search_locations))).resolve()


def _compare(args: argparse.Namespace, locked: CountSnapshot, counted: CountSnapshot) -> Work | str:
    """Return the tables of the difference, or one line where the count is as locked."""
    same = equal(locked, counted)
    within = all(getattr(counted, name) <= most for name, most in counted.limits.items())
    if same and within and args.format in ("text", "md"):
        line = f"{args.check}: as locked, {counted.macs:,} MACs and {counted.params:,} parameters"
        if args.out:
            with open_output(args.out) as stream:
                stream.write(f"{line}\n")
        return line
    if counted.limits:
        over = [name for name, most in counted.limits.items() if getattr(counted, name) > most]
        failures = [f"{args.check}: {', '.join(over)} above the limit"] if over else []
        tables = [_limits_section(counted, failures), *sections(locked, counted, LOCKED)]
    else:
        failures = [] if same else [f"{args.check}: the count is not as locked"]
        tables = sections(locked, counted, LOCKED, failures)
    return Work(tables, result=lambda printed: f"{args.check}: {summary(locked, counted)}.")


def _limits_section(counted: CountSnapshot, failures: Sequence[str]) -> Section:
    """Return a row for each limited quantity, the last with the ``failures``."""
    columns = [Column("quantity", "quantity", priority=0)]
    columns += [Column(key, key, kind="int", priority=0) for key in ("limit", "counted")]
    columns += [Column("left", "left", kind="int", sign=True, priority=0)]
    rows = []
    for name, most in counted.limits.items():
        value = getattr(counted, name)
        values = {"quantity": name, "limit": most, "counted": value, "left": most - value}
        rows.append(Row(values, records=[values]))
    rows[-1] = replace(rows[-1], failures=failures)
    return Section(Table("lock-limits", "limits of the lock", columns), rows)


def _write(counted: CountSnapshot, path: str | None) -> str:
    """Write the lock to ``path`` and return a line about it; return the lock itself without a ``path``."""
    if path is None:
        return file.text(counted).removesuffix("\n")
    with open_output(path) as stream:
        stream.write(file.text(counted))
    lines = f"{len(counted.terms):,} contractions and {len(counted.parameters):,} parameter tensors"
    return f"{path}: {counted.macs:,} MACs and {counted.params:,} parameters, {lines}"


if __name__ == "__main__":
    sys.exit(main())
