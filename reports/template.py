"""Fill the markers of pages with what the functions of reports/blocks return.

    {{moa.equations}}                   the text of the function ``equations`` of blocks/moa.py
    {{moa.savings.length:,}}            a number of the mapping that ``savings`` returns, in a format of Python's
    {{tables.counted moa-table1}}       a function of one more text
    {{contents}}                        the links to the page's sections

A page of reports/pages is written to reports/generated. README.md and the guides are filled in place: a marker there is
a comment, and its value stands between the marker and ``<!-- end -->``.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import headcount
from headcount.bench.errors import UsageError
from headcount.reports import blocks
from headcount.reports.document import Maker, anchor
from headcount.reports.facts import Facts

ROOT = headcount.CHECKOUT
SOURCES = ROOT / "reports" / "pages"
GENERATED = ROOT / "reports" / "generated"
IN_PLACE = (ROOT / "README.md", *sorted((ROOT / "reports" / "site" / "guides").glob("*.md")))
"""Texts that hold the values of their markers."""

CONTENTS = "{{contents}}"
MARKER = re.compile(
    r"(?P<marker>\{\{(?!contents\}\})(?P<name>[^\s:{}]*)(?::(?P<format>[^}\n]*)| (?P<argument>[^}\n]*))?\}\})"
    r"(?P<in_place> -->\n.*?^<!-- end -->$)?",
    re.DOTALL | re.MULTILINE,
)
Block = Callable[..., Any]


def sources() -> dict[str, Path]:
    """Return the sources of all pages by their names for --only: those of reports/pages, then README and the guides."""
    pages = {path.stem: path for path in sorted(SOURCES.glob("*.md"))}
    readme, *guides = IN_PLACE
    return pages | {"readme": readme} | {f"guides/{path.stem}": path for path in guides}


def outputs(source: Path) -> dict[Path, Maker]:
    """Return the makers of a page and of the plots and data that its markers name, by path.

    Raises:
        UsageError: A marker names no block.
    """
    made = {source if source in IN_PLACE else GENERATED / source.name: partial(fill, source)}
    for marker in MARKER.finditer(source.read_text("utf-8")):
        files = getattr(_block(marker, source), "files", {})
        made |= {GENERATED / name: maker for name, maker in files.items()}
    return made


def fill(source: Path, facts: Facts) -> str:
    """Return the text of a page with the values of its markers.

    Raises:
        UsageError: A marker names no block, or no number of one.
    """
    filled = MARKER.sub(lambda marker: _filled(marker, source, facts), source.read_text("utf-8"))
    titles = re.findall(r"^## (.*)$", filled, re.MULTILINE)
    return filled.replace(CONTENTS, " · ".join(f"[{title}](#{anchor(title)})" for title in titles))


def _filled(marker: re.Match, source: Path, facts: Facts) -> str:
    """Return the value of a marker; in place, the marker before it and the end after it."""
    value = _call(_block(marker, source), facts, *_arguments(marker))
    subject, name, *keys = marker["name"].split(".")
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            numbers = ", ".join(value) if isinstance(value, Mapping) else "no names"
            raise _error(marker, source, f"unknown {marker['marker']}; {subject}.{name} has {numbers}")
        value = value[key]
    text = format(value, marker["format"] or "")
    return f"{marker['marker']} -->\n{text.strip()}\n<!-- end -->" if marker["in_place"] else text


@cache
def _call(block: Block, facts: Facts, *arguments: str) -> Any:
    """Return what a block makes of the facts, computed once for all its markers."""
    return block(facts, *arguments)


def _arguments(marker: re.Match) -> list[str]:
    return [] if marker["argument"] is None else [marker["argument"]]


def _block(marker: re.Match, source: Path) -> Block:
    """Return the block that a marker names."""
    subject, _, rest = marker["name"].partition(".")
    subjects = [module.name for module in iter_modules(blocks.__path__)]
    if subject not in subjects:
        raise _error(marker, source, f"unknown {marker['marker']}; subjects are {', '.join(subjects)}")
    known = _blocks(import_module(f"{blocks.__name__}.{subject}"))
    name = rest.partition(".")[0]
    if name not in known:
        raise _error(marker, source, f"unknown {marker['marker']}; {subject} has {', '.join(known)}")
    try:
        signature(known[name]).bind(None, *_arguments(marker))
    except TypeError as error:
        raise _error(marker, source, f"{marker['marker']}: {error}") from None
    return known[name]


def _blocks(module: ModuleType) -> dict[str, Block]:
    """Return the blocks of a subject by name: its public functions of facts, its plots and its files."""
    functions = {name: one for name, one in vars(module).items() if callable(one) and not isinstance(one, type)}
    return {
        name: one
        for name, one in functions.items()
        if not name.startswith("_") and next(iter(signature(one).parameters), "") == "facts"
    }


def _error(marker: re.Match, source: Path, text: str) -> UsageError:
    """Return an error with the file and the line of a marker."""
    line = marker.string.count("\n", 0, marker.start()) + 1
    return UsageError(f"{source.relative_to(ROOT)}:{line}: {text}")
