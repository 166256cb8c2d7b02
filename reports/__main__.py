"""``python -m reports``: write the pages with their plots and data, the blocks of README and the guides, the explorer.

``--check`` writes nothing and exits 1 with the list of the files that are stale. Where the stored counts are, it names
these alone and counts nothing.
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


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, add_help=True, description=__doc__)
    out.add_argument("--only", metavar="PAGE", nargs="+", help="write only these pages with their plots and data")
    out.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    out.add_argument("--recount", action="store_true", help="count everything again and use no stored result")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _main(args: argparse.Namespace) -> int:
    # workers that import this file again need none of the pages
    from headcount.bench.targets.workers import Workers
    from headcount.reports.facts import STORE, Facts

    with Workers(2) as workers:
        facts = Facts(workers, recount=args.recount)
        if args.check and not (args.recount or args.only or facts.has_counts):
            print(f"{PROG}: stale: reports/records/{STORE}", file=sys.stderr)
            return 1
        files = make_files(facts, args.only)
    return finish(files, args.check, headcount.CHECKOUT)


def make_files(facts, only: Sequence[str] | None) -> dict[Path, str | bytes]:
    """Return the content of each generated file by path, or of ``only`` some pages with their plots and data.

    Raises:
        UsageError: An unknown page, or a marker that names no block.
    """
    from headcount.reports import template
    from headcount.reports.explorer import page as explorer
    from headcount.reports.facts import STORE

    sources = template.sources()
    if unknown := [name for name in only or () if name not in sources]:
        raise UsageError(f"unknown page {unknown[0]!r}; choose from {', '.join(sources)}")
    makers = {}
    for name in only or sources:
        makers |= template.outputs(sources[name])
    if not only:
        facts.begin_stored()
        makers[template.GENERATED / explorer.FILE] = explorer.text
    made = ((path, make(facts)) for path, make in makers.items())
    files = dict(with_progress(made, f"{PROG}, file"))
    if not only:
        files[template.ROOT / "reports" / "records" / STORE] = facts.counts()
    return files


def finish(files: Mapping[Path, str | bytes], check: bool, root: Path) -> int:
    """Write the stale files, or only report them; return the exit code. UsageError for a file that cannot be
    written."""
    stale = {
        path: content for path, content in files.items() if not path.exists() or path.read_bytes() != as_bytes(content)
    }
    for path, content in stale.items():
        if check:
            print(f"{PROG}: stale: {path.relative_to(root)}", file=sys.stderr)
            continue
        output.write(output.ensure_dir(path.parent) / path.name, content)
        print(f"wrote {path.relative_to(root)}", file=sys.stderr)
    return 1 if check and stale else 0


def as_bytes(content: str | bytes) -> bytes:
    """Return the bytes of a file of this content."""
    return content.encode() if isinstance(content, str) else content


if __name__ == "__main__":
    exit_process(main())
