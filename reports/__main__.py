"""``headcount report``, or ``python -m reports``: write every generated file of a checkout.

``--check`` writes nothing and exits 1 with the list of those that are stale. An installed copy has no files of its
own to fill: it writes the report to --out DIR.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import headcount
from headcount.bench.cli import Parser, run
from headcount.bench.errors import UsageError

PROG = "python -m reports"
OUT = Path("headcount-report")


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line."""
    out = Parser(prog=prog, description=__doc__)
    out.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    out.add_argument("--recount", action="store_true", help="run every counter again, stored readings or not")
    out.add_argument("--out", metavar="DIR", type=Path, help=f"write the report there; installed, {OUT} without it")
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; its exit code."""
    return run(prog, lambda: _main(parser(prog).parse_args(argv), headcount.CHECKOUT))


def _main(args: argparse.Namespace, checkout: Path | None) -> int:
    if args.check and (args.out or not checkout):
        raise UsageError("--check compares the files of a checkout; it goes without --out, and not where installed")
    # workers that import this file again need none of the pages
    from headcount.reports.facts import Facts
    from headcount.reports.workers import Workers

    folder = args.out or (None if checkout else OUT)
    with Workers() as workers:
        facts = Facts(workers, recount=args.recount)
        files = pages(facts, folder) if folder else everything(facts, checkout)
    return finish(files, args.check, folder or checkout)


def pages(facts, folder: Path) -> dict[Path, str]:
    """The generated pages with the text that they must have."""
    from headcount.reports import document, quality

    document.begin(facts)
    return {folder / "report.md": document.text(facts), folder / quality.PLOT: quality.plot(facts)}


def everything(facts, root: Path) -> dict[Path, str]:
    """Every generated file of a checkout: the pages, and the files that have generated blocks."""
    from headcount.reports import blocks, readme
    from headcount.reports.facts import READINGS

    out = pages(facts, root / "reports" / "generated")
    out[root / "reports" / "records" / READINGS] = facts.readings()
    for path in (root / "README.md", root / "CONTRIBUTING.md"):
        out[path] = blocks.fill(path.read_text("utf-8"), readme.blocks(facts))
    return out


def finish(files: Mapping[Path, str], check: bool, root: Path) -> int:
    """Write the files that are stale, or only name them; the exit code. UsageError where one cannot be written."""
    stale = {path: text for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        if check:
            print(f"{PROG}: stale: {path.relative_to(root)}", file=sys.stderr)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        print(f"wrote {path if path.is_relative_to(OUT) else path.relative_to(root)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
