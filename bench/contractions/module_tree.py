"""Format a count as rows with repeated layers merged and as a tree of modules, in text or a data frame."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from headcount.bench.column import DASH, Column, macs_column, params_column
from headcount.bench.contractions.modules import ModuleRecord
from headcount.bench.output.layout import Style
from headcount.bench.render import emit
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.formulas.ledger import Entry, Ledger, flops

if TYPE_CHECKING:
    from headcount.bench.counting.result import Count

WIDTH = 100
"""The most characters of a line of a printed count."""
INDENT = "  "
BYTES = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
"""Units of bytes."""
MODEL = "(model)"
LISTS = ("ModuleList", "ModuleDict", "")
"""Classes that hold modules and do not run; "" for a path without a record."""
MAX_RUNS = 3
"""The most runs of equal layers that a label names: ``0-4,6-8,10 (9x)``."""


def folded(path: str) -> str:
    """Return a module path with ``*`` for every index, or range of a closed form: ``layers.*.self_attn``."""
    return re.sub(r"(?:(?<=\.)|^)\d+(-\d+)?(?=\.|$)", "*", path)


def ranges(indices: Iterable[str]) -> list[str]:
    """Return indices as texts of their runs: ``0-2`` and ``5``."""
    runs = groupby(enumerate(sorted(map(int, indices))), key=lambda pair: pair[1] - pair[0])
    numbers = [[number for _, number in run] for _, run in runs]
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in numbers]


def path_of_layers(paths: Sequence[str]) -> str:
    """Return the paths of modules that differ in numbers as one: ``layers.0-2.attn``."""
    parts = []
    for names in zip(*(path.split(".") for path in paths), strict=True):
        different = dict.fromkeys(names)
        parts.append(",".join(ranges(different)) if len(different) > 1 else names[0])
    return ".".join(parts)


def merged(entries: Iterable[Entry]) -> Ledger:
    """Merge entries of the same path, kind and sizes; paths have ``*`` for indices."""
    return merge_equal(replace(entry, path=folded(entry.path)) for entry in entries)


def merge_equal(entries: Iterable[Entry]) -> Ledger:
    """Return the entries of each path, kind and sizes as one, in order of first appearance."""
    times = Ledger(tuple(entries)).group(lambda e: (e.path, e.kind, tuple(e.dims.items())), of="times")
    return Ledger(tuple(Entry(path, kind, dict(dims), n) for (path, kind, dims), n in times.items()))


@dataclass
class Node:
    """A module of the printed tree: its record, its own products by kind, and the modules inside."""

    record: ModuleRecord
    own: dict[str, int] = field(default_factory=dict)
    inside: dict[str, "Node"] = field(default_factory=dict)

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of the module and of those inside."""
        return sum(self.own.values()) + sum(node.macs for node in self.inside.values())

    @cached_property
    def params(self) -> int:
        """Parameters of the module and of those inside."""
        return self.record.params + sum(node.params for node in self.inside.values())

    @cached_property
    def ran(self) -> bool:
        """Whether the module or one inside was called or multiplied."""
        return bool(self.record.calls or self.own) or any(node.ran for node in self.inside.values())

    @cached_property
    def signature(self) -> tuple:
        """Return the properties that equal layers share: everything but the path."""
        inside = tuple((name, node.signature) for name, node in self.inside.items())
        return (replace(self.record, path=""), tuple(self.own.items()), inside)

    def children(self) -> list[tuple[str, list["Node"]]]:
        """Return the modules inside by label, equal ones among numbered layers together: ``0-31 (32x)``.

        The modules of a list replace it: ``layers.0-31 (32x)``.
        """
        groups: dict[Any, list[str]] = {}
        for name, node in self.inside.items():
            groups.setdefault(node.signature if name.isdigit() else name, []).append(name)
        found = []
        for names in groups.values():
            label, nodes = _label(names), [self.inside[name] for name in names]
            if nodes[0].record.type in LISTS and nodes[0].ran and not nodes[0].own:
                found += [(f"{label}.{name}", same * len(nodes)) for name, same in nodes[0].children()]
            else:
                found.append((label, nodes))
        return found


def _label(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    texts = ranges(names)
    return f"{','.join(texts[:MAX_RUNS] + ['…'] * (len(texts) > MAX_RUNS))} ({len(names)}x)"


def tree(ledger: Ledger, modules: Iterable[ModuleRecord]) -> Node:
    """Return the modules of a count as a tree; a path without a record has no class."""
    nodes: dict[str, Node] = {}

    def node(path: str) -> Node:
        if path not in nodes:
            nodes[path] = Node(ModuleRecord(path, ""))
            if path:
                outer, _, name = path.rpartition(".")
                node(outer).inside[name] = nodes[path]
        return nodes[path]

    root = node("")
    for module in modules:
        node(module.path).record = module
    for entry in ledger:
        own = node(entry.path).own
        own[entry.kind] = own.get(entry.kind, 0) + entry.size
    return root


@dataclass(frozen=True)
class ModuleRow(Row):
    """A module, equal ones together, or a kind of a module's own products or its own parameters.

    Attributes:
        level: number of modules around it.
        module: the name in the module around it: ``0-31 (32x)`` for equal ones, ``(scores)`` for a kind of its own
            products, ``(parameters)`` for its own parameters beside those of modules inside.
        type: the class, with the number of calls where there are several.
        output: shape and type of the result.
        params: parameters of the module and of those inside; None for a kind.
        macs: multiply-accumulates of the module and of those inside; None where nothing ran, and for parameters.
        share: ``macs`` in percent of the whole count.
    """

    level: int
    module: str = shown(Column, "module", code=True, wraps=32, value=attrgetter("indented"))
    type: str = shown(Column, "class", priority=3)
    output: str = shown(Column, "output", priority=2, wraps=11)
    params: int | None = shown(params_column, "params")
    macs: int | None = shown(macs_column, "MACs", priority=0)
    share: Fraction | None = shown(Column, "share", unit="%", kind="fixed", digits=2)
    failures: Sequence[str] = ()

    @property
    def indented(self) -> str:
        """The name, indented by ``level``."""
        return INDENT * self.level + self.module


def _rows(label: str, nodes: Sequence[Node], depth: int | None, total: int, level: int = 0) -> Iterator[ModuleRow]:
    """Iterate over the row of equal ``nodes``, whose numbers are sums over all, and those of the modules inside."""
    node, times = nodes[0], len(nodes)
    record = node.record
    calls = f" ({record.calls} calls)" if record.calls > 1 else ""
    macs = times * node.macs if node.ran else None
    yield ModuleRow(level, label, record.type + calls, record.output, times * node.params, macs, percent(macs, total))
    children = node.children() if depth is None or level < depth else ()
    if children:
        for kind, own in node.own.items():
            macs = times * own
            yield ModuleRow(level + 1, f"({kind})", "", "", None, macs, percent(macs, total))
        if record.params:
            yield ModuleRow(level + 1, "(parameters)", "", "", times * record.params, None, None)
    for name, same in children:
        yield from _rows(name, same * times, depth, total, level + 1)


def percent(macs: int | None, total: int) -> Fraction | None:
    """Return ``macs`` in percent of a ``total``; None where either is unknown or the total is 0."""
    return Fraction(100 * macs, total) if macs is not None and total else None


def table(count: "Count", notes: Sequence[str], depth: int | None) -> Table[ModuleRow]:
    """Return the tree of a count's modules, ``depth`` levels deep (None for all), and its totals, then ``notes``."""
    model, *inside = _rows(MODEL, [tree(count.products, count.modules_or_holders)], depth, count.macs)
    failures = [f"{count.label} is not its closed form: {count.disagreement}"] if count.disagreement else []
    rows = [replace(model, failures=failures), *inside]
    uncalled = count.uncalled or ()
    totals = {
        "Total params": count.params,
        "Trainable params": count.trainable_params,
        "Active params": count.active_params,
        "Bytes of weights": count.weight_bytes,
        f"MACs, {count.headline}": count.macs,
        "FLOPs": flops(count.macs),
    }
    below = [f"{label}: {DASH if value is None else f'{value:,}'}" for label, value in totals.items()]
    if count.params:
        below.insert(list(totals).index("Bytes of weights") + 1, weights_by_type(count.params))
    if count.active_params is None:
        below.append(
            "Active params are not known: the run selects by value, so a token may not use every parameter; "
            "set model.active_params = N."
        )
    below += [f"Did not run: {', '.join(path or MODEL for path in uncalled)}"] if uncalled else []
    columns = columns_of(ModuleRow)
    return Table(
        "modules", count.name or MODEL, columns, rows, below=[*below, *failures, *notes], facts={"count": count}
    )


def nodes(node: Node) -> Iterator[Node]:
    """Iterate over a module and all modules inside, each before its own."""
    yield node
    for inside in node.inside.values():
        yield from nodes(inside)


def weights_by_type(params: int) -> str:
    """Return the bytes that ``params`` weights take in common types, without scales, in one unit."""
    bits = {"float32": 32, "bfloat16": 16, "int8": 8, "int4": 4}
    name, size = next(((name, size) for name, size in BYTES.items() if params >= size), ("B", 1))
    counts = {kind: -(-params * one // 8) for kind, one in bits.items()}
    texts = [f"{count / size:,.{2 if size > 1 else 0}f} {name} {kind}" for kind, count in counts.items()]
    return f"Weights would take {', '.join(texts)}"


def parameters_table(name: str, modules: Sequence[ModuleRecord], depth: int | None) -> Table[ModuleRow]:
    """Return the parameters of a module that did not run, ``depth`` levels deep, and their totals."""
    rows = list(_rows(MODEL, [tree(Ledger(()), modules)], depth, 0))
    params, trainable = (sum(getattr(one, key) for one in modules) for key in ("params", "trainable_params"))
    below = [f"Total params: {params:,}", f"Trainable params: {trainable:,}", "MACs: –, the module did not run"]
    return Table("modules", name, columns_of(ModuleRow), rows, below=below).only("module", "type", "params")


def text(printed: Table) -> str:
    """Return a table in lines of at most WIDTH characters."""
    stream = io.StringIO()
    emit([printed], "text", stream, Style(width=WIDTH, hints=False))
    return stream.getvalue().rstrip("\n")
