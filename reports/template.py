"""Fill the markers of pages with what the functions of reports/blocks return.

    {{moa.equations}}                   the text of the function ``equations`` of blocks/moa.py
    {{moa.savings.length:,}}            a number of the mapping that ``savings`` returns, in a format of Python's
    {{tables.counted moa-table1}}       a function of one more text
    {{contents}}                        the links to the page's sections

A page of reports/pages is written to reports/generated. README.md and the guides are filled in place: a marker there is
a comment, and its value stands between the marker and ``<!-- end -->``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
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

MARKER = re.compile(
    r"(?P<marker>\{\{(?P<name>[\w.-]+)(?::(?P<format>[^}\n]*)| (?P<argument>[^}\n]*))?\}\})"
    r"(?P<value> -->\n.*?^<!-- end -->$)?",
    re.DOTALL | re.MULTILINE,
)
CONTENTS = "{{contents}}"


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
    text = source.read_text("utf-8")
    made = {source if source in IN_PLACE else GENERATED / source.name: partial(fill, source)}
    for found in _markers(text):
        block = _block(found, _place(source, found))
        made |= {GENERATED / name: maker for name, maker in getattr(block, "files", {}).items()}
    return made


def fill(source: Path, facts: Facts) -> str:
    """Return the text of a page with the values of its markers.

    Raises:
        UsageError: A marker names no block, or no number of one.
    """
    filled = MARKER.sub(lambda found: _filled(found, source, facts), source.read_text("utf-8"))
    titles = re.findall(r"^## (.*)$", filled, re.MULTILINE)
    return filled.replace(CONTENTS, " · ".join(f"[{title}](#{anchor(title)})" for title in titles))


def _filled(found: re.Match, source: Path, facts: Facts) -> str:
    """Return the value of a marker; in place, the marker before it and the end after it."""
    if found[0] == CONTENTS:
        return CONTENTS
    place = _place(source, found)
    value = _call(_block(found, place), facts, found["argument"])
    subject, name, *path = found["name"].split(".")
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            known = ", ".join(value) if isinstance(value, Mapping) else "no names"
            raise UsageError(f"{place}: unknown {found['marker']}; {subject}.{name} has {known}")
        value = value[key]
    text = format(value, found["format"] or "")
    return f"{found['marker']} -->\n{text.strip()}\n<!-- end -->" if found["value"] else text


@cache
def _call(block: Callable[..., Any], facts: Facts, argument: str | None) -> Any:
    """Return what a block makes of the facts, computed once for all its markers."""
    return block(facts) if argument is None else block(facts, argument)


def _markers(text: str) -> Iterator[re.Match]:
    """Return the markers that name blocks."""
    return (found for found in MARKER.finditer(text) if found[0] != CONTENTS)


def _place(source: Path, found: re.Match) -> str:
    """Return the file and the line of a marker."""
    line = found.string.count("\n", 0, found.start()) + 1
    return f"{source.relative_to(ROOT) if source.is_relative_to(ROOT) else source}:{line}"


def _block(found: re.Match, place: str) -> Callable[..., Any]:
    """Return the function that a marker names."""
    subject, _, rest = found["name"].partition(".")
    subjects = [module.name for module in iter_modules(blocks.__path__)]
    if subject not in subjects:
        raise UsageError(f"{place}: unknown {found['marker']}; subjects are {', '.join(subjects)}")
    known = _blocks(import_module(f"{blocks.__name__}.{subject}"))
    name = rest.partition(".")[0]
    if name not in known:
        raise UsageError(f"{place}: unknown {found['marker']}; {subject} has {', '.join(known)}")
    _, *more = signature(known[name]).parameters.values()
    needed = any(one.default is Parameter.empty for one in more)
    if (needed and found["argument"] is None) or (not more and found["argument"] is not None):
        takes = "takes a text after its name" if more else "takes nothing after its name"
        raise UsageError(f"{place}: {found['marker']}: {subject}.{name} {takes}")
    return known[name]


def _blocks(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the blocks of a subject by name: its public functions of facts, its plots and its files."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_") and callable(value)}
    return {
        name: value
        for name, value in public.items()
        if not isinstance(value, type) and next(iter(signature(value).parameters), "") == "facts"
    }
