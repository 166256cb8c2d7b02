"""Tables of one counted target: the tree of its modules, and every counter's count of it. Imports no torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headcount.bench.column import TONES, Column, macs_column, plural
from headcount.bench.contractions import module_tree
from headcount.bench.contractions.module_tree import folded, merged
from headcount.bench.counters.base import ToolCount
from headcount.bench.counting.result import Count, bytes_of_element
from headcount.bench.macs.ranks import TRANSFER_COLUMNS, transfer_rows
from headcount.bench.output.figure import figure
from headcount.bench.result import Row, Table, columns_of, format_macs, format_params, shown
from headcount.formulas.summary import sizes

LONGEST = 50
"""The most characters of a label of a plot."""
ELEMENTWISE = (
    "A tensor with itself (norms, variances) and a product added to another term (gates) are named, never counted."
)


@dataclass(frozen=True)
class CounterRow(Row):
    """A tool's count of the target, its error, and whether the trace explains it."""

    counter: str = shown(Column, "counter")
    version: str | None = shown(Column, "version", priority=3)
    device: str | None = shown(Column, "device", priority=2)
    macs: int | None = shown(macs_column, "reported\nMACs", priority=0)
    difference: int | None = shown(macs_column, "error", sign=True, priority=0)
    verdict: str = shown(Column, "explained", priority=0, tones=TONES)
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()


@dataclass(frozen=True)
class CauseRow(Row):
    """Calls that cause an error, with their place in the tool's source; ``counter`` is in the first row of a count."""

    counter: str = shown(Column, "counter")
    macs: int = shown(macs_column, "MACs", sign=True, priority=0)
    what: str = shown(Column, "what", priority=2)
    name: str = shown(Column, "call", priority=0, wraps=20)
    calls: int = shown(Column, "calls", kind="int", priority=3)
    place: str = shown(Column, "place in the tool's source", wraps=20)


@dataclass(frozen=True)
class ElementwiseRow(Row):
    """Products written elementwise and summed, those of repeated layers together."""

    path: str = shown(Column, "module", code=True)
    kind: str = shown(Column, "kind")
    sizes: str = shown(Column, "sizes", priority=3)
    size: int = shown(Column, "multiplications", kind="int", of="MACs", priority=0)


@dataclass(frozen=True)
class UnsupportedRow(Row):
    """An operator that is not counted, with its place and sizes."""

    text: str = shown(Column, "operation", wraps=20, code=True)


def tables(count: Count, depth: int, elementwise: bool, check: bool) -> list[Table]:
    """Return the tree of a counted target, ``depth`` levels deep, every counter, and why each count differs.

    Products written elementwise are listed where ``elementwise``. A counter that fails is a failure; with ``check`` so
    is a count that the trace does not explain.
    """
    found: list[Table] = [replace(module_tree.table(count, _notes(count), depth), detail=True)]
    if count.collectives:
        sent = transfer_rows(count.collectives, bytes_of_element)
        found.append(Table("module-collectives", "collectives of the rank", TRANSFER_COLUMNS, sent))
    if count.tools:
        found.append(counters_table(count.tools, check))
        if (causes := causes_table(count.tools)).rows:
            found.append(causes)
    if count.elementwise and elementwise:
        found.append(_elementwise_table(count))
    if count.unsupported:
        unsupported = [UnsupportedRow(line.text()) for line in count.unsupported]
        found.append(Table("unsupported", "unsupported operators", columns_of(UnsupportedRow), unsupported))
    return found


def sentence(count: Count, in_flops: bool) -> str:
    """Return the cost of a counted target, how many reported counts are explained, and what did not run."""
    tools = count.tools or ()
    explained = sum(tool.reason is None and tool.explained for tool in tools)
    reported = f"; {explained} of {plural(len(tools), 'reported count')} explained by the trace" if tools else ""
    cost = f"{format_macs(count.macs, in_flops, count.headline)}, {format_params(count.params)}"
    return f"{cost}{reported}{_not_called(count)}."


def _not_called(count: Count) -> str:
    """Return the parts that did not run, with the options that add their inputs."""
    parts = [f"{path} ({plural(params, 'parameter')})" for path, params in count.not_called.items()]
    if not parts:
        return ""
    verb, them = ("was", "it") if len(parts) == 1 else ("were", "them")
    options = " and ".join(count.absent or ())
    how = f": {options} {'add' if ' and ' in options else 'adds'} {them}" if options else ""
    return f"; {', '.join(parts)} {verb} not called{how}"


def _notes(count: Count) -> list[str]:
    """Return how a target was counted, and what its count leaves out."""
    passes = "one forward and backward pass" if count.target and count.target.backward else "one forward pass"
    passes += " in training mode" * bool(count.target and count.target.training)
    device = "shapes only, no weights (meta device)" if count.device == "meta" else f"counted on {count.device}"
    notes = [f"{passes.capitalize()}, whole batch; {device}."]
    if count.why_there:
        notes.append(f"Not on meta: {count.why_there.rstrip('.')}.")
    if count.with_elementwise != count.macs:
        apart = count.with_elementwise - count.dispatched
        notes.append(
            f"Not counted: {apart:,} MACs of elementwise products that are summed; --elementwise include adds them."
        )
    if count.unsupported:
        calls = sum(line.calls for line in count.unsupported)
        notes.append(f"A partial count, without {plural(calls, 'unsupported call')}.")
    return [*notes, *(count.notes or ())]


def _elementwise_table(count: Count) -> Table[ElementwiseRow]:
    rows = [ElementwiseRow(one.path or "(model)", one.kind, sizes(one), one.size) for one in merged(count.elementwise)]
    title = "products written elementwise and summed"
    return Table("module-elementwise", title, columns_of(ElementwiseRow), rows, [ELEMENTWISE])


def counters_table(tools: Sequence[ToolCount], check: bool = False) -> Table[CounterRow]:
    """Return each counter's count. One that failed is a failure; with ``check`` so is one that is not explained."""
    rows = [_counter_row(tool, check) for tool in tools]
    above = ["Explained: the calls of the run give the whole error, by the rules in the tool's source."]
    return Table("module-counters", "counters", columns_of(CounterRow), rows, above=above, note_column="verdict")


def _counter_row(tool: ToolCount, check: bool) -> CounterRow:
    notes, failures = [], []
    if tool.reason:
        verdict, notes = "failed", [f"failed: {tool.reason}"]
        failures = [f"{tool.counter} failed: {tool.reason}"]
    elif tool.disagreement:
        verdict, notes = "unexplained", [f"{tool.counter} {tool.disagreement}"]
        failures = list(notes) if check else []
    else:
        verdict = "explained" if tool.difference else "equal"
    if tool.explanation and tool.explanation.unverified:
        unverified = f"its rules are unverified for {', '.join(tool.explanation.unverified)}"
        notes.append(unverified)
        failures = [f"{failure} ({unverified})" for failure in failures]
    if tool.why_there:
        notes.append(f"on {tool.device}: {tool.why_there.rstrip('.')}")
    return CounterRow(
        tool.counter,
        tool.result.version if tool.result else None,
        tool.device,
        tool.macs,
        tool.difference,
        verdict=verdict,
        notes=notes,
        failures=failures,
    )


def causes_table(tools: Iterable[ToolCount]) -> Table[CauseRow]:
    """Return the causes of each counter's difference."""
    rows = []
    for tool in tools:
        for position, cause in enumerate(tool.explanation.causes if tool.explanation else ()):
            rows.append(CauseRow("" if position else tool.counter, **vars(cause)))
    title = "where each tool's error comes from"
    return Table("module-causes", title, columns_of(CauseRow), rows, detail=True)


def plot(path: str, count: Count, depth: int | None) -> None:
    """Draw the share of MACs of each module with products of its own, of ``depth`` names, in the order of the model.

    Raises what output.figure.figure does.
    """
    sizes = count.ledger.group(lambda entry: ".".join(folded(entry.path).split(".")[:depth]) or "(model)")
    labels = [label if len(label) <= LONGEST else f"…{label[-LONGEST:]}" for label, size in sizes.items() if size]
    shares = [100 * size / count.macs for size in sizes.values() if size]
    with figure(path, 8, 1.2 + 0.28 * len(labels)) as (_, axes):
        # labels may be equal
        drawn = axes.barh(range(len(labels)), shares, color="steelblue")
        axes.bar_label(drawn, [f"{share:.1f}" if share >= 0.05 else "<0.1" for share in shares], padding=3, fontsize=8)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel="share of MACs in %", xlim=(0, 1.1 * max(shares, default=1)))
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{count.name or '(model)'}: {count.macs:,} MACs", fontsize=10)
