"""Format a count as rows with repeated layers merged and as a tree of modules, in text, HTML or a data frame."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from html import escape
from textwrap import wrap
from typing import Any

from headcount.formulas.ledger import Entry, Ledger, flops

WIDTH = 80
INDENT = "  "
MODEL = "(model)"
COLUMNS = ["path", "kind", "sizes", "times", "macs", "flops", "share"]
"""The columns of the data frame."""


def folded(path: str) -> str:
    """Return a module path with ``*`` for every index: ``layers.*.self_attn``."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)


def cut(path: str, depth: int | None) -> str:
    """Return the first ``depth`` names of a path; all of them for None."""
    return path if depth is None else ".".join(path.split(".")[:depth])


def sizes(entry: Entry) -> str:
    """Return the named sizes of an entry: ``6 x T=10 i=512 j=512``."""
    # A constant factor, as the 2 of a scaling and an addition, has no letter.
    text = " ".join(str(size) if letter.isdigit() else f"{letter}={size}" for letter, size in entry.dims.items())
    return f"{entry.times} x {text}" if entry.times != 1 else text


def merged(entries: Iterable[Entry], depth: int | None) -> Ledger:
    """Merge entries of the same path, kind and sizes; paths have ``*`` for indices and at most ``depth`` names.

    With a ``depth`` the sizes are ``{"i": MACs}``, because different products have one path.
    """
    times: dict[tuple, Entry] = {}
    for entry in entries:
        entry = replace(entry, path=cut(folded(entry.path), depth))
        if depth is not None:
            key = (entry.path, entry.kind)
            old = times.get(key)
            entry = replace(entry, dims={"i": entry.macs + (old.macs if old else 0)}, times=1)
        else:
            key = (entry.path, entry.kind, tuple(entry.dims.items()))
            old = times.get(key)
            entry = replace(entry, times=entry.times + (old.times if old else 0))
        times[key] = entry
    return Ledger(tuple(times.values()))


@dataclass
class Node:
    """A module: its own products by kind and the modules inside."""

    name: str
    own: dict[str, int] = field(default_factory=dict)
    inside: dict[str, "Node"] = field(default_factory=dict)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the module and of its submodules."""
        return sum(self.own.values()) + sum(node.macs for node in self.inside.values())

    def lines(self, depth: int = 0) -> Iterator[tuple[int, str, int]]:
        """Iterate over depth, label and MACs of the tree's lines; a module with only one submodule shares its line."""
        node, name = self, self.name
        while len(node.inside) == 1 and not node.own and depth:
            (node,) = node.inside.values()
            name = f"{name}.{node.name}"
        alone = len(node.own) == 1 and not node.inside
        yield depth, f"{name}  {next(iter(node.own))}" if alone else name, node.macs
        for kind, macs in () if alone else node.own.items():
            yield depth + 1, f"({kind})", macs
        for child in node.inside.values():
            yield from child.lines(depth + 1)


def tree(ledger: Ledger) -> Node:
    """Return the modules of a ledger as a tree, repeated layers merged."""
    root = Node(MODEL)
    for entry in merged(ledger, None):
        node = root
        for name in entry.path.split(".") if entry.path else ():
            node = node.inside.setdefault(name, Node(name))
        node.own[entry.kind] = node.own.get(entry.kind, 0) + entry.size
    return root


def text(ledger: Ledger, notes: Iterable[str]) -> str:
    """Return the tree in lines of at most 80 characters, below ``notes``."""
    lines = list(tree(ledger).lines())
    total = lines[0][2]
    numbers = max(len("MACs"), len(f"{total:,}"))
    room = WIDTH - numbers - len("  100.00 %") - 2
    labels = [_cut(INDENT * depth + label, room) for depth, label, _ in lines]
    width = max(map(len, [*labels, "module"]))
    header = [line for note in notes for line in wrap(note, WIDTH, subsequent_indent=INDENT)]
    out = [*header, "", f"{'module':<{width}}  {'MACs':>{numbers}}  {'share':>8}"]
    for label, (_, _, macs) in zip(labels, lines, strict=True):
        out.append(f"{label:<{width}}  {macs:>{numbers},}  {_share(macs, total):>8}")
    return "\n".join(out)


def html(ledger: Ledger, notes: Iterable[str]) -> str:
    """Return the tree as an HTML table, every name escaped."""
    lines = list(tree(ledger).lines())
    rows = "".join(
        f'<tr><td style="text-align:left;padding-left:{depth + 0.5}em">{escape(label)}</td>'
        f"<td>{macs:,}</td><td>{_share(macs, lines[0][2])}</td></tr>"
        for depth, label, macs in lines
    )
    header = "<br>".join(map(escape, notes))
    return f"<p>{header}</p><table><tr><th>module</th><th>MACs</th><th>share</th></tr>{rows}</table>"


def by_module(ledger: Ledger) -> dict[str, int]:
    """Return multiply-accumulates of each module with its submodules, by path; the model is the empty path."""
    found: dict[str, int] = {"": 0}
    for entry in ledger:
        names = entry.path.split(".") if entry.path else []
        for depth in range(len(names) + 1):
            path = ".".join(names[:depth])
            found[path] = found.get(path, 0) + entry.size
    return found


def records(ledger: Ledger) -> list[dict[str, Any]]:
    """Return a row for each entry: path, kind, sizes, repetitions, MACs, FLOPs and share in percent."""
    total = sum(entry.size for entry in ledger)
    return [_record(entry, total) for entry in ledger]


def _record(entry: Entry, total: int) -> dict[str, Any]:
    return {
        "path": entry.path,
        "kind": entry.kind,
        "sizes": sizes(entry),
        "times": entry.times,
        "macs": entry.size,
        "flops": flops(entry.size),
        "share": 100 * entry.size / total if total else None,
    }


def _share(macs: int, total: int) -> str:
    return f"{100 * macs / total:.2f} %" if total else "–"


def _cut(label: str, room: int) -> str:
    return label if len(label) <= room else f"{label[: room - 3]}..."
