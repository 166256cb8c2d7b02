"""Format a closed form as a tree of modules."""

from collections.abc import Iterable, Iterator
from typing import Any

MODEL = "(model)"
HEADS = ("module", "MACs", "elements", "params")


def sizes(entry) -> str:
    """Return the named sizes of an entry: ``6 x T=10 d_m=512``; constants and symbols stand alone."""
    alone = {letter for letter, size in entry.dims.items() if letter.isdigit() or letter == str(size)}
    text = " ".join(str(size) if letter in alone else f"{letter}={size}" for letter, size in entry.dims.items())
    return f"{entry.times} x {text}" if entry.times != 1 else text


def lines(entries: Iterable[Any]) -> Iterator[tuple[int, str, tuple[Any, Any, Any]]]:
    """Yield depth and label of each line, and its MACs, its elements of operations without any, and its parameters.

    A module has the sums of what is inside; a kind of operation has its own line below its module.
    """
    entries = tuple(entries)
    yield 0, MODEL, _sums(entries)
    known: set[str] = set()
    for entry in entries:
        names = entry.path.split(".") if entry.path else []
        for depth in range(1, len(names) + 1):
            path = ".".join(names[:depth])
            if path not in known:
                known.add(path)
                yield depth, names[depth - 1], _sums(e for e in entries if f"{e.path}.".startswith(f"{path}."))
        yield len(names) + 1, f"({entry.kind})  {sizes(entry)}", _sums([entry])


def _sums(entries: Iterable[Any]) -> tuple[Any, Any, Any]:
    entries = tuple(entries)
    elements = sum(entry.size for entry in entries if not entry.macs)
    return sum(entry.macs for entry in entries), elements, sum(entry.params for entry in entries)


def _number(size: Any) -> str:
    """Return a size as text, 0 as a dash."""
    text = f"{size:,}" if isinstance(size, int) else str(size).replace("**", "^")
    return "–" if size == 0 else text


def text(entries: Iterable[Any]) -> str:
    """Return the tree with aligned columns."""
    rows = [HEADS, *(["  " * depth + label, *map(_number, numbers)] for depth, label, numbers in lines(entries))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([label.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))])
        for label, *numbers in rows
    )
