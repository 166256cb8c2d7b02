"""``python -m reports``: write every generated file; ``--check``: exit 1 with the list of those that are stale."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from headcount.bench.cli import Parser, run
from headcount.reports import blocks, document, readme
from headcount.reports.results import GENERATED, ROOT

PROG = "python -m reports"


def files() -> dict[Path, str]:
    """Every generated file with the text that it must have."""
    # The report runs its commands side by side; the blocks take what is there then.
    out = {GENERATED / "report.md": document.text()}
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        out[path] = blocks.fill(path.read_text("utf-8"), readme.blocks())
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = Parser(prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    return run(PROG, lambda: _main(parser.parse_args(argv).check))


def _main(check: bool) -> int:
    stale = [(path, text) for path, text in files().items() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        if check:
            print(f"{PROG}: stale: {path.relative_to(ROOT)}", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
