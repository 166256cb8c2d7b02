"""``headcount report``, or ``python -m reports``: write the pages, and in a checkout every other generated file.

``--check`` writes nothing and exits 1 with the list of those that are stale. An installed copy has no files of its
own to fill: it writes the pages to --out DIR.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import headcount
from headcount.bench.cli import Parser, exit_process, run
from headcount.bench.errors import UsageError
from headcount.bench.output import files as output
from headcount.bench.output.progress import with_progress

PROG = "python -m reports"
OUT = Path("headcount-report")
README = "readme"
"""The name of README.md for --only."""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, add_help=True, description=__doc__)
    out.add_argument(
        "--only", metavar="PAGE", nargs="+", help=f"write only these pages with their plots and data, or {README}"
    )
    out.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    out.add_argument("--recount", action="store_true", help="count everything again and use no stored result")
    out.add_argument(
        "--out", metavar="DIR", type=Path, help=f"write the pages there (default of an installed copy: {OUT})"
    )
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog`` and return its exit code."""
    return run(prog, lambda: _main(parser(prog).parse_args(argv), headcount.CHECKOUT))


def _main(args: argparse.Namespace, checkout: Path | None) -> int:
    if args.check and not (args.out or checkout):
        raise UsageError("--check compares the files of a checkout, or of --out DIR; installed, name the latter")
    # workers that import this file again need none of the pages
    from headcount.bench.isolated.workers import Workers
    from headcount.reports.facts import Facts

    folder = args.out or (None if checkout else OUT)
    with Workers(2) as workers:
        files = make_files(Facts(workers, recount=args.recount), args, folder, checkout)
    return finish(files, args.check, folder or checkout)


def make_files(facts, args: argparse.Namespace, folder: Path | None, checkout: Path | None) -> dict[Path, str]:
    """Return the text of each requested file by path. UsageError for an unknown page."""
    from headcount.reports import pages, readme
    from headcount.reports.explorer import page as explorer
    from headcount.reports.facts import STORE

    by_name = pages.load(facts)
    known = [*by_name, *(() if folder else (README,))]
    names = args.only or known
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"unknown page {unknown[0]!r}; choose from {', '.join(known)}")
    makers = {}
    for page in (by_name[name] for name in names if name != README):
        makers |= page.outputs()
    if not args.only:
        facts.begin_stored()
        makers[explorer.FILE] = explorer.text
    into = folder or checkout / "reports" / "generated"
    made = ((into / name, make(facts)) for name, make in makers.items())
    files = dict(with_progress(made, PROG, "file"))
    if README in names:
        path = checkout / "README.md"
        files[path] = readme.fill(path.read_text("utf-8"), facts)
    if not (args.only or folder):
        files[checkout / "reports" / "records" / STORE] = facts.counts()
    return files


def finish(files: Mapping[Path, str], check: bool, root: Path) -> int:
    """Write the stale files, or only report them; return the exit code. UsageError for a file that cannot be
    written."""
    stale = {path: text for path, text in files.items() if not path.exists() or path.read_bytes() != text.encode()}
    for path, text in stale.items():
        if check:
            print(f"{PROG}: stale: {path.relative_to(root)}", file=sys.stderr)
            continue
        output.write(output.ensure_dir(path.parent) / path.name, text)
        print(f"wrote {path if path.is_relative_to(OUT) else path.relative_to(root)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    exit_process(main())
