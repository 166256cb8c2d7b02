"""Generated blocks inside hand-written files: the text between two markers belongs to a function."""

import re
from collections.abc import Callable, Mapping


def markers(name: str) -> tuple[str, str]:
    """The two lines between which the block ``name`` stands."""
    return f"<!-- generated: {name} -->", f"<!-- end: {name} -->"


def names(text: str) -> list[str]:
    """The blocks of a text, in order."""
    return re.findall(r"^<!-- generated: ([\w-]+) -->$", text, re.MULTILINE)


def fill(text: str, make: Mapping[str, Callable[[], str]]) -> str:
    """``text`` with every block made anew. ValueError for a block without a maker or without its end."""
    for name in names(text):
        begin, end = markers(name)
        if name not in make:
            raise ValueError(f"no one makes the block {name!r}; there are {', '.join(make)}")
        before, _, rest = text.partition(f"{begin}\n")
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"the block {name!r} has no end")
        text = f"{before}{begin}\n{make[name]().strip()}\n{end}{after}"
    return text
