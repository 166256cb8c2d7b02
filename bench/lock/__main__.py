"""``python -m bench.lock``: lock the MACs and parameters of modules in a file, and check that they stay the same.

    python -m bench.lock model.py:make llama3-8b -o macs.lock
    python -m bench.lock --check macs.lock --format md
    python -m bench.lock --update macs.lock
    python -m bench.lock model.py:make --max macs=2.1G --max params=25M -o macs.lock
    python -m bench.lock --history HEAD macs.lock
    python -m bench.lock --badge macs.svg macs.lock

The lock stores targets and options. Options given with --check or --update replace the stored ones, of --set, --formula
and lengths those of the same name; a TARGET replaces that of a lock of one target, and selects one of several. Files
are relative to the current folder. A lock is code: without --trust its functions must be defined in files of its
repository, or without git of its folder. A count above a limit is not written, and one without unsupported operations
fails a limit of MACs. Exit codes: 0 as locked, or within the limits; 1 not, or an operation is not supported; 2 wrong
usage, or a file that is no lock; 3 the device is not there.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path

from headcount.bench.cli import Parser, add_output, check_not_input, exit_process, serve
from headcount.bench.column import DASH, plural
from headcount.bench.contractions import linalg
from headcount.bench.counting.count import DEVICES, check_device, count
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError, read_file
from headcount.bench.lock.history import badge, history
from headcount.bench.lock.workflow import workflow
from headcount.bench.output.files import is_folder, write
from headcount.bench.result import Result
from headcount.bench.snapshot import file
from headcount.bench.snapshot.difference import (
    ELEMENTWISE,
    LIMITED,
    MACS,
    contractions,
    equal,
    failures,
    headline,
    limit_at,
    limits_at,
    summary,
    unmet_limits,
)
from headcount.bench.snapshot.tables import LOCKED, input_facts, merge_targets, tables
from headcount.bench.targets.process import shared_imports
from headcount.bench.targets.target import (
    POLICIES,
    Target,
    add_modes,
    add_operator_options,
    add_ranks,
    add_target_options,
    is_configuration,
    parse_target,
)
from headcount.bench.targets.user_code import UserCodeError, check_target, is_below
from headcount.models.configs.targets import split

PROG = "python -m bench.lock"


class AboveLimit(Exception):
    """A count that is not written, as its own check would fail."""

    exit_code = 1


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.lock."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument(
        "target", nargs="*", metavar="TARGET", help="what to count: preset, FILE.py:NAME, config.json, hf:NAME"
    )
    what = out.add_mutually_exclusive_group()
    what.add_argument("--check", metavar="LOCK", help="count again and compare with this lock")
    what.add_argument("--update", metavar="LOCK", help="count again and rewrite this lock")
    what.add_argument("--history", metavar="RANGE", help="read the lock TARGET in each of these commits")
    what.add_argument("--badge", metavar="FILE", help="write the totals of the lock TARGET as an .svg image")
    what.add_argument("--workflow", action="store_true", help="print a workflow file for GitHub Actions")
    out.add_argument("--plot", metavar="FILE", help="with --history, a plot: .svg, .png or .pdf")
    text = "limit of macs or params: macs=2.1G or macs=+5%%"
    out.add_argument("--max", action="append", metavar="QUANTITY=N", type=_limit, default=[], help=text)
    out.add_argument("--trust", action="store_true", help="run the code that LOCK names wherever it is")
    how = out.add_argument_group("what is counted")
    add = how.add_argument
    add_target_options(how)
    add_modes(how)
    add("--plan", metavar="PLAN", help="tp=8,sp; with --ranks FILE.py:FUNCTION or transformers")
    add_ranks(how)
    add("--device", choices=DEVICES, help="(default: meta, or the module's own)")
    add_operator_options(how)
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), command, argv)


@shared_imports()
def command(args: argparse.Namespace) -> Result | str:
    """Return the result for ``args``; the module is counted before anything is printed."""
    if args.workflow:
        return workflow().removesuffix("\n")
    if args.plot and not args.history:
        raise UsageError("--plot goes with --history")
    if args.history or args.badge:
        if len(args.target) != 1:
            example = "--history HEAD" if args.history else "--badge macs.svg"
            raise UsageError(f"--history RANGE and --badge FILE read one lock: headcount lock {example} macs.lock")
        if args.history:
            return history(args.history, args.target[0], args.plot)
        if not args.badge.endswith(".svg"):
            raise UsageError(f"a badge is an .svg file, not {args.badge!r}")
        write(args.badge, badge(args.target[0]))
        return f"{args.badge}: the totals of {args.target[0]}"
    if not args.check and args.format not in ("text", "json"):
        raise UsageError(f"--format {args.format} goes with --check; a lock is always JSON")
    if args.out and not args.check and is_folder(args.out):
        raise UsageError(f"cannot write {args.out}: a lock is one file, and this is a folder")
    if args.update and args.out:
        raise UsageError("--update writes the file that it reads; --out goes with TARGET and --check")
    path = args.check or args.update
    locked = file.parse(read_file(path), path) if path else ()
    # what headcount count prints has the other tools' counts, of which a lock has none
    if args.update and any(one.tools is not None for one in locked):
        raise UsageError(f"{args.update} is no lock; TARGET --out FILE writes one")
    jobs = [(old, _request(args, old, word), word) for old, word in _choose(args, locked)]
    if args.input and len(jobs) > 1:
        raise UsageError(f"--input goes with one TARGET, not {len(jobs)}: lock each apart, or return (module, inputs)")
    roots: dict[str, str] = {}
    for _, request, word in jobs:
        check_device(request.device)
        if args.out:
            check_not_input(args, *request.code)
        if path and not args.trust:
            roots |= _roots(path, {*request.code} - {request.spec if word else None, args.plan})
        if path and not word:
            _check_there(request, path, len(locked))
    found = []
    for old, request, _ in jobs:
        new = count(request, roots=roots)
        # a percentage is of the locked count, which is the new one where it is written
        limits = {**((old and old.limits) or {}), **limits_at(old if old and args.check else new, dict(args.max))}
        found.append((old, replace(new, limits=limits)))
    if args.check:
        return _compare(args, [(old, new) for old, new in found if old])
    again = {old.label: new for old, new in found if old}
    written = [again.get(old.label, old) for old in locked] or [new for _, new in found]
    before = {new.label: old for old, new in found if old}
    return _write([*{one.label: one for one in written}.values()], path or args.out, before)


def _choose(args: argparse.Namespace, locked: Sequence[Count]) -> list[tuple[Count | None, str]]:
    """Return the locked counts, or None, with the TARGET that is counted instead of theirs, or an empty text."""
    words = args.target
    if not locked or len(locked) == 1 >= len(words):
        return [(locked[0] if locked else None, word) for word in words or [""]]
    names = {_without_order(one.label): one.label for one in locked}
    chosen = {_without_order(word): word for word in words}
    if unknown := [word for name, word in chosen.items() if name not in names]:
        known = ", ".join(names.values())
        raise UsageError(f"{args.check or args.update} has no target {unknown[0]}; it has {known}")
    return [(one, "") for one in locked if not words or _without_order(one.label) in chosen]


def _without_order(name: str) -> tuple[str, frozenset[str]]:
    """Return the name of a target with its words in any order."""
    spec, words = split(name)
    return spec, frozenset(words)


def _limit(text: str) -> tuple[str, str]:
    """Return the quantity and the limit of ``macs=2.1G`` or ``macs=+5%``."""
    name, _, amount = text.partition("=")
    if name not in LIMITED:
        raise argparse.ArgumentTypeError(f"{text!r}: --max limits {' and '.join(LIMITED)}, as macs=2.1G or macs=+5%")
    try:
        limit_at(amount, 0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return name, amount


def _request(args: argparse.Namespace, locked: Count | None, word: str) -> Target:
    """Return the request of the lock with the TARGET ``word``, if any, and the options of the command line."""
    base = (locked and locked.target) or Target("")
    target = parse_target(word, args, base)
    if not target.spec:
        reason = "a lock written by a program names no module; " if locked else ""
        raise UsageError(f"{reason}give a TARGET, as FILE.py:FUNCTION{'' if locked else ', --check or --update LOCK'}")
    choices = {"device": (None, *DEVICES), "elementwise": POLICIES, "formula_set": (None, *linalg.SETS)}
    for name, valid in choices.items():
        if (value := getattr(target, name)) not in valid:
            raise UsageError(f"the lock's {name} {value} is none of {', '.join(filter(None, valid))}")
    return target


def _check_there(target: Target, lock: str, targets: int) -> None:
    """Raise UsageError, with how a lock gets another target, where its own is not there."""
    try:
        check_target(target.spec)
    except UserCodeError as error:
        advice = f"headcount lock --check {lock} TARGET counts another in its place, and --update stores it"
        if targets > 1:
            advice = f"headcount lock TARGET … -o {lock} writes a lock of others"
        raise UsageError(f"{target.name}: {error}; {advice}") from None


def _roots(lock: str, specs: Iterable[str]) -> dict[str, str]:
    """Return the root of the lock's repository, or without git its folder, by each of ``specs`` that is code.

    Raises UsageError for code of a file that is not below it.
    """
    folder = Path(lock).resolve().parent
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    code = [spec for spec in specs if ":" in spec and not is_configuration(spec)]
    for spec in code:
        target = spec.rpartition(":")[0]
        if not is_below(Path(target) if target.endswith(".py") else _place(target.partition(".")[0]), str(root)):
            raise UsageError(f"{lock} would run {spec}, which is not below {root}; --trust allows it")
    return dict.fromkeys(code, str(root))


def _place(package: str) -> Path | None:
    """Return the file or folder of a package, as it is found from the current folder; None where there is none."""
    found = PathFinder.find_spec(package, [os.getcwd(), *sys.path])
    places = [found.origin, *(found.submodule_search_locations or ())] if found else []
    return next((Path(place) for place in places if place), None)


def _compare(args: argparse.Namespace, found: Sequence[tuple[Count, Count]]) -> Result | str:
    """Return the tables of the difference, or a line for each target where all counts are as locked.

    A table that people read leaves out the targets that are as locked.
    """
    lines, parts, headlines, words = [], [], [], []
    for start, (old, new) in zip(_starts(args.check, [new for _, new in found]), found, strict=True):
        why = failures(old, new)
        name = f"{new.label} " * (len(found) > 1)
        lines.append(f"{start}as locked, {_totals(new)}")
        lines += [
            f"{start}{what}: {before or DASH} -> {after or DASH}" for what, before, after in input_facts(old, new)
        ]
        words.append(name + summary(old, new))
        if why or not equal(old, new) or args.format not in ("text", "md"):
            headlines.append(name + headline(old, new))
            parts.append((new.label, tables(old, new, LOCKED, [start + one for one in why])))
    if not parts:
        if args.out:
            write(args.out, "".join(f"{line}\n" for line in lines))
        return "\n".join(lines)
    changes, *others = merge_targets(parts, LOCKED) if len(found) > 1 else parts[0][1]
    is_within = all(new.limits and not failures(old, new) for old, new in found)
    title = "Within the limits" if is_within else changes.title
    changes = replace(changes, title=f"{title}: {'; '.join(headlines)}")
    return Result([changes, *others], lambda: f"{args.check}: {'; '.join(words)}.")


def _write(counted: Sequence[Count], path: str | None, before: Mapping[str, Count]) -> str:
    """Write the lock to ``path`` and return a line for each target; return the lock itself without a ``path``.

    ``before`` are the counts that are replaced, by the target that replaces them.
    """
    for one in counted:
        for why in unmet_limits(one).values():
            raise AboveLimit(f"{path or 'the lock'} is not written: {one.label} has {why}; --max raises the limit")
    if path is None:
        return file.text(*counted).removesuffix("\n")
    write(path, file.text(*counted))
    return "\n".join(
        f"{start}{_totals(one)}, {_numbers(one)}{_limits(one)}{_change(before.get(one.label), one)}"
        for start, one in zip(_starts(path, counted), counted, strict=True)
    )


def _numbers(count: Count) -> str:
    """Return how many contractions and parameters a lock has."""
    kinds = [quantity for quantity, _ in contractions(count)]
    parts = [plural(kinds.count(MACS), "contraction")]
    if apart := kinds.count(ELEMENTWISE):
        parts.append(f"{plural(apart, 'elementwise product')} apart")
    return f"{', '.join(parts)} and {plural(len(count.parameters), 'parameter tensor')}"


def _limits(count: Count) -> str:
    """Return the limits that a lock stores."""
    most = [f"{value:,} {LIMITED[name]}" for name, value in (count.limits or {}).items()]
    return f"; at most {' and '.join(most)}" if most else ""


def _change(old: Count | None, new: Count) -> str:
    """Return how a count differs from the one that it replaces, behind the line about it."""
    if old is None:
        return ""
    return "; as before" if equal(old, new) else f". {LOCKED.title}: {headline(old, new)}"


def _starts(path: str, counted: Sequence[Count]) -> list[str]:
    """Return the beginning of a line about each count: the lock and, where it has several targets, the target."""
    return [f"{path}: {one.label}: " if len(counted) > 1 else f"{path}: " for one in counted]


def _totals(counted: Count) -> str:
    return f"{counted.macs:,} MACs and {counted.params:,} parameters"


if __name__ == "__main__":
    exit_process(main())
