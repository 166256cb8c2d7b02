"""``Count``: what one run of a target costs, or its closed form. Imports no torch."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from headcount.bench.contractions import module_tree
from headcount.bench.contractions.audit import UNKNOWN, AuditLine, merge_equal_lines
from headcount.bench.contractions.modules import ModuleRecord, outer_paths
from headcount.bench.counters.base import ToolCount
from headcount.bench.counting.other_tools import attribute_error
from headcount.bench.errors import excerpt
from headcount.bench.output import notebook
from headcount.bench.targets.target import Target
from headcount.formulas.ledger import DISPATCHED_KINDS, MAC_KINDS, Ledger, at, flops, total_of
from headcount.formulas.published.typed import from_data, to_data
from headcount.formulas.rank import BYTES, Transfer
from headcount.formulas.summary import sizes
from headcount.models.configs.suggest import did_you_mean

if TYPE_CHECKING:
    import pandas

    from headcount.bench.result import Table


DISPATCHED, WITH_ELEMENTWISE = "matrix products and convolutions", "elementwise products included"


PRODUCTS, MODULES = "products", "modules"
"""Rows of a data frame."""


def check_rows(rows: str, known: Sequence[str]) -> None:
    """Raise ValueError for rows of a data frame that are not ``known``."""
    if rows not in known:
        raise ValueError(f"to_dataframe has no rows {rows!r}; choose from {', '.join(map(repr, known))}")


def module_frame(ledger: Ledger, modules: Iterable[ModuleRecord]) -> "pandas.DataFrame":
    """Return a row for each module: path, class, output, calls, params, MACs and their share in percent.

    Parameters and MACs are with those of modules inside; what did not run has no MACs.
    """
    import pandas

    root = module_tree.tree(ledger, modules)
    rows = []
    for node in module_tree.nodes(root):
        record, macs = node.record, node.macs if node.ran else None
        share = module_tree.percent(macs, root.macs)
        cells = (record.path, record.type, record.output, record.calls, node.params, macs)
        rows.append((*cells, None if share is None else float(share)))
    names = ["path", "type", "output", "calls", "params", "macs", "share"]
    # integers that may be unknown
    return pandas.DataFrame(rows, columns=names).astype({"macs": "Int64", "share": "float64"})


def bytes_of_element(name: str) -> int:
    """Return the bytes of an element that a collective sends, by its kind in a closed form, else by its type.

    The name of a type has its bits, as in bfloat16 and float8_e4m3fn.
    """
    if name in BYTES:
        return BYTES[name]
    bits = re.search(r"\d+", name)
    return int(bits[0]) // 8 if bits else 1


@dataclass(frozen=True)
class Unknown:
    """Why a value is not known, in place of it."""

    reason: str


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor: its name in the module, ``layers.0.weight``, and its shape.

    ``times``: equal tensors of repeated layers, which a closed form writes once.
    """

    path: str
    shape: tuple[int, ...]
    trainable: bool = True
    times: int = 1

    @property
    def params(self) -> int:
        """Number of elements of all ``times``."""
        return self.times * prod(self.shape)

    @property
    def module(self) -> str:
        """The path of the module that holds it."""
        return self.path.rpartition(".")[0]


def _parameters(ledger: Ledger) -> tuple[Parameter, ...]:
    """Return the parameter tensors of a closed form, whose entries have their weights."""
    return tuple(
        Parameter(
            at(entry.path, "bias" if entry.kind.endswith("bias") else "weight"),
            tuple(entry.weight.values()),
            entry.trainable,
            entry.times,
        )
        for entry in ledger
        if entry.weight
    )


class FromRun:
    """A field that takes long to find: where it is not given, the run of the count gives it at the first use.

    ``without`` gives it of the ledger where there is no run: of a closed form.
    """

    def __init__(self, without: Callable[[Ledger], Any] = lambda _: None) -> None:
        self._without = without

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, count: "Count | None", owner: type) -> Any:
        if count is None:
            # the default of the field: not given
            return self
        values = vars(count)
        if values[self._name] is self:
            values[self._name] = count.run.find(self._name) if count.run else self._without(count.ledger)
        return values[self._name]

    def __set__(self, count: "Count", value: Any) -> None:
        vars(count)[self._name] = value


def from_run(without: Callable[[Ledger], Any] = lambda _: None) -> Any:
    """Return a FromRun, as a default of any type: a type checker sees the value of the field."""
    return FromRun(without)


@dataclass(frozen=True, repr=False)
class Count:
    """The count of one forward pass over the whole batch, or of forward and backward. What is unknown is None.

    Prints as a tree of ``modules``, ``depth`` levels deep (None for all), with outputs, parameters, MACs and shares, in
    notebooks too.

    Attributes:
        name: class of the model.
        ledger: all contractions by module path and kind.
        target: what a command counted; None for a module that a program counted.
        device: where it was counted.
        why_there: why not on meta.
        included: whether ``ledger`` and ``macs`` have the contractions written elementwise too.
        elementwise: products written elementwise: contractions, squares and scaled additions.
        parameters: parameter tensors, each once.
        modules: modules that were called or hold parameters.
        stated_active_params: what a module's attribute ``active_params`` states, where the run does not show them.
        uncalled: topmost modules with parameters that did not run and none of whose parameters was read.
        collectives: of a module that is divided over ranks, each with the elements that it sends.
        audit: every operation by module, and whether a rule counts it.
        tools: what each other tool reports, with the causes of its difference.
        columns: values of columns that need a further run.
        bytes_moved: bytes that operations move, unfused.
        causal_macs: ``macs`` without the pairs that masks of attention hide.
        other_flops: FLOPs of operations without MACs by kind, at the prices of formulas/prices.toml.
        inputs: place, shape and type of each input tensor.
        versions: of headcount, Python, torch and the libraries that decide which operations torch runs.
        disagreement: of a preset or a layer, in what it differs from the closed form.
        notes: sentences about how the module was made and what the run changed.
        absent: options of a command that add inputs which the model takes and did not have.
        limits: the most MACs and parameters that a lock allows, instead of the same count.
        run: the recorded run, in the process that counted; it is not compared.
    """

    name: str
    ledger: Ledger
    target: Target | None = None
    device: str | None = None
    why_there: str | None = None
    included: bool = False
    elementwise: Ledger = from_run(lambda _: Ledger(()))
    parameters: tuple[Parameter, ...] = from_run(_parameters)
    modules: tuple[ModuleRecord, ...] | None = from_run()
    uncalled: tuple[str, ...] | None = from_run()
    collectives: tuple[Transfer, ...] = ()
    audit: tuple[AuditLine, ...] | None = ()
    tools: tuple[ToolCount, ...] | None = ()
    columns: Mapping[str, int | Unknown] | None = field(default_factory=dict)
    bytes_moved: int | None = from_run()
    causal_macs: int | None = from_run()
    other_flops: Mapping[str, int] | None = from_run()
    inputs: tuple[str, ...] = ()
    versions: Mapping[str, str] = from_run(lambda _: {})
    disagreement: str | None = None
    notes: tuple[str, ...] | None = from_run(lambda _: ())
    absent: tuple[str, ...] | None = ()
    limits: Mapping[str, int] | None = field(default_factory=dict)
    stated_active_params: int | None = None
    run: Any = field(default=None, compare=False)
    depth: int | None = field(default=3, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the attribute that is meant."""
            raise attribute_error(type(self), name)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for another process, without the run."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"run": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)

    @property
    def trace(self) -> Any:
        """The recorded run, operation by operation; None of a count of another process or of a file."""
        return self.run and self.run.trace

    @property
    def label(self) -> str:
        """TARGET or TARGET,NAME=VALUE,… of a command; the class of a module that a program counted."""
        return self.target.name if self.target else self.name

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the ledger: with ``included`` those of contractions written elementwise too."""
        return self.ledger.macs

    @property
    def headline(self) -> str:
        """A label that states what ``macs`` includes."""
        label = WITH_ELEMENTWISE if self.included else DISPATCHED
        return f"{label}, text only" if self.absent else label

    @property
    def not_called(self) -> dict[str, int]:
        """Parameters of the outermost parts that did not run, by path; not of experts, heads and layers by number."""
        parts = [path for path in self.uncalled or () if not re.search(r"(^|\.)\d+(\.|$)", path)]
        return {
            path: sum(one.params for one in self.parameters if one.path.startswith(f"{path}."))
            for path in parts
            if path
        }

    @property
    def flops(self) -> int:
        """Floating-point operations, two for each of ``macs``."""
        return flops(self.macs)

    @property
    def products(self) -> Ledger:
        """The entries with multiply-accumulates; a closed form has others too."""
        return self.ledger.select(lambda entry: entry.kind in MAC_KINDS)

    @property
    def own_params(self) -> dict[str, int]:
        """Parameters by the path of the module that holds them, without those of modules inside."""
        found: dict[str, int] = {}
        for one in self.parameters:
            found[one.module] = found.get(one.module, 0) + one.params
        return found

    @property
    def dispatched(self) -> int:
        """Multiply-accumulates of operations that are contractions."""
        return self.ledger.select(lambda entry: entry.kind in DISPATCHED_KINDS).macs

    @property
    def elementwise_macs(self) -> int:
        """MACs of contractions written elementwise, whether ``macs`` includes them or not."""
        return self.elementwise.macs

    @property
    def with_elementwise(self) -> int:
        """Dispatched contractions and those written elementwise."""
        return self.dispatched + self.elementwise_macs

    @property
    def intensity(self) -> Fraction | None:
        """``macs`` per byte moved; None where nothing moves."""
        return Fraction(self.macs, self.bytes_moved) if self.bytes_moved else None

    @property
    def params(self) -> int:
        """All parameters, each tensor once."""
        return sum(one.params for one in self.parameters)

    @property
    def trainable_params(self) -> int:
        """Parameters that require gradients."""
        return sum(one.params for one in self.parameters if one.trainable)

    @property
    def active_params(self) -> int | None:
        """Parameters that one token uses: of a run by contractions.modules.active_shares, of a closed form its own."""
        weights = self.ledger.select(lambda entry: entry.weight)
        found = weights.active_params if self.modules is None and len(weights) else self._sum("active_params")
        return self.stated_active_params if found is None else found

    @property
    def used_params(self) -> int | None:
        """Parameters that an operation of the run read."""
        return self._sum("used_params")

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of all parameters, in their dtypes."""
        return self._sum("weight_bytes")

    def _sum(self, name: str) -> int | None:
        return None if self.modules is None else total_of(getattr(module, name) for module in self.modules)

    @property
    def sent(self) -> int:
        """Elements that leave the rank."""
        return sum(one.sent for one in self.collectives)

    @property
    def sent_bytes(self) -> int:
        """Bytes that leave the rank."""
        return sum(bytes_of_element(one.element) * one.sent for one in self.collectives)

    @property
    def unsupported(self) -> tuple[AuditLine, ...]:
        """The audit lines of unsupported operators."""
        return tuple(line for line in self.audit or () if line.state == UNKNOWN)

    def by_module(self) -> dict[str, int]:
        """Return multiply-accumulates by module path, submodules included; the model is the empty path."""
        found: dict[str, int] = {"": 0}
        for entry in self.ledger:
            for path in outer_paths(entry.path):
                found[path] = found.get(path, 0) + entry.macs
        return found

    def by_kind(self) -> dict[str, int]:
        """Return multiply-accumulates by kind of product."""
        return self.products.group(lambda entry: entry.kind, of="size")

    def to_dataframe(self, rows: str = PRODUCTS) -> "pandas.DataFrame":
        """Return a row for each product: path, class, kind, sizes, times, macs, flops, share in percent and params.

        Parameters are in the first row of their module, or in one of their own without a product. With
        ``rows="modules"`` it is a row for each module, with those inside: path, class, output, calls, params, macs and
        share. Raises ValueError for other rows.
        """
        check_rows(rows, [PRODUCTS, MODULES])
        if rows == MODULES:
            return module_frame(self.products, self.modules_or_holders)
        import pandas

        types = {module.path: module.type for module in self.modules or ()}
        params, cells = self.own_params, []
        for entry in self.products:
            share = 100 * entry.size / self.ledger.macs if self.ledger.macs else None
            values = (entry.path, entry.kind, sizes(entry), entry.times, entry.size, flops(entry.size), share)
            cells.append((*values, types.get(entry.path, ""), params.pop(entry.path, 0)))
        cells += [(path, "", "", 0, 0, 0, 0.0, types.get(path, ""), own) for path, own in params.items()]
        names = ["path", "kind", "sizes", "times", "macs", "flops", "share", "type", "params"]
        return pandas.DataFrame(cells, columns=names)

    def with_values(self, **values: Any) -> "Count":
        """Return this count with some other values; unlike dataclasses.replace it finds no others meanwhile."""
        found = object.__new__(type(self))
        vars(found).update(vars(self), **values)
        return found

    def to_json(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """Return fields and sums as plain data, all or those of ``names``; :meth:`from_json` reads it."""
        names = names or (*(one.name for one in fields(self) if one.compare), *SUMS)
        data = {name: getattr(self, name) for name in names}
        return {name: _entries(one) if isinstance(one, Ledger) else to_data(one) for name, one in data.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Count":
        """Return the count that :meth:`to_json` wrote. Fields that it has not are None, and sums are checked.

        Raises TypeError or ValueError, with the name, for a value of another type and a sum that is not the entries'.
        """
        names = [one.name for one in fields(cls) if one.compare]
        given = {**dict.fromkeys(names), **{name: value for name, value in data.items() if name not in SUMS}}
        for name in ("ledger", "elementwise"):
            given[name] = {"entries": _without_sizes(data[name], name)}
        count = from_data(cls, given, "count")
        for name in ("ledger", "elementwise"):
            for entry, record in zip(getattr(count, name), data[name], strict=True):
                _check_sum(f"size of {entry.path} {entry.kind}", entry.size, record["size"])
        for name in SUMS:
            if name in data:
                _check_sum(name, getattr(count, name), data[name])
        return count

    @property
    def modules_or_holders(self) -> Sequence[ModuleRecord]:
        """The modules; of a closed form those that hold its parameters."""
        return self.modules or [ModuleRecord(path, "", params=own) for path, own in self.own_params.items()]

    def __getitem__(self, name: Any) -> Any:
        """Raise TypeError, with what a module's numbers are called, and those of the whole count."""
        if isinstance(name, int):
            raise TypeError(f"a {type(self).__name__} is no pair: .macs and .params are its numbers")
        paths = [*self.by_module()]
        path = name if name in paths else next(iter(paths[1:]), "")
        near = "" if name in paths else did_you_mean(str(name), paths)
        raise TypeError(
            f"a {type(self).__name__} has no [{name!r}]: .by_module()[{path!r}] are the MACs of a module, and "
            f".to_dataframe('modules') has them all{near}"
        )

    def _table(self, depth: int | None) -> "Table[module_tree.ModuleRow]":
        """Return the tree of modules with what is not counted below it."""
        notes = []
        if self.elementwise_macs and not self.included:
            notes.append(f"Not counted: {self.elementwise_macs:,} MACs of elementwise products that are summed.")
        notes += [f"Not counted: {line.text()}." for line in merge_equal_lines(self.unsupported)]
        return module_tree.table(self, [*notes, *(self.notes or ())], depth)

    def __str__(self) -> str:
        return module_tree.text(self._table(self.depth))

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(f"a {type(self).__name__} is no number: format its .macs, .flops or .params with {spec!r}")
        return str(self)

    def _repr_html_(self) -> str:
        return notebook.page(self._table(None), self.depth)

    @property
    def tokens(self) -> int | None:
        """Tokens of the first input: its integers, or B T of B x T x width; None where they are unknown."""
        sizes, dtype = self.first_input
        if "int" in dtype:
            return prod(sizes)
        return sizes[0] * sizes[1] if len(sizes) == 3 else None

    @property
    def samples(self) -> int:
        """Sequences or images of the first input; 1 of an input of one size."""
        sizes, _ = self.first_input
        return sizes[0] if len(sizes) > 1 else 1

    @property
    def first_input(self) -> tuple[list[int], str]:
        """Sizes and type of the ids among the inputs, a decoder's first; else of input 1."""
        found = {place: text.split() for place, _, text in (line.partition(": ") for line in self.inputs)}
        ids = (found[name] for name in ("decoder_input_ids", "input_ids") if name in found)
        shape, dtype = next(ids, next(iter(found.values()), ("scalar", "")))
        return [int(size) for size in shape.split("x") if size.isdecimal()], dtype


SUMS = (
    "macs", "headline", "flops", "dispatched", "with_elementwise", "elementwise_macs", "params", "trainable_params",
    "active_params", "used_params", "weight_bytes", "sent",
)  # fmt: skip
"""Properties that :meth:`Count.to_json` writes in addition to the fields."""


def _entries(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the entries of a ledger as plain data with their sizes."""
    return [to_data(entry) | {"size": entry.size} for entry in ledger]


def _without_sizes(records: Any, name: str) -> list[dict[str, Any]]:
    """Return the records of a ledger's entries without their sizes. Raises TypeError for anything else."""
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise TypeError(f"{name} has the wrong type: {records!r}")
    return [{key: value for key, value in record.items() if key != "size"} for record in records]


def _check_sum(what: str, total: Any, written: Any) -> None:
    """Raise ValueError where a stored sum or product is not that of its entries or factors."""
    if type(total) is not type(written) or total != written:
        raise ValueError(f"{what}: {total!r} by the entries, the file has {excerpt(written)}")
