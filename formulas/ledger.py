"""The ledger: what a model does, as entries that are products of named sizes.

MACs, parameters and all other totals are computed from the same entries. Sizes are integers, which give
counts, or sympy symbols, which give formulas.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from html import escape
from itertools import groupby
from math import prod
from typing import Any

from headcount.formulas import summary

Size = Any
"""An int or a sympy expression."""

FORWARD_KINDS = ("linear", "expert_linear", "scores", "values", "conv", "contraction")
"""Kinds of a forward pass with multiply-accumulates; ``contraction`` is any other product that sums over an index."""

BACKWARD_KINDS = tuple(f"{kind}_{part}" for kind in FORWARD_KINDS for part in ("dx", "dw", "recompute"))
"""Kinds of a backward pass: gradient of the first operand, gradient of the second (a weight), forward recomputed."""

DISPATCHED_KINDS = FORWARD_KINDS + BACKWARD_KINDS
"""Kinds of operations that are contractions."""

WRITTEN_ELEMENTWISE = "elementwise_contraction"
"""Kind of a contraction that a run wrote as an elementwise product of two tensors and a sum. No closed form has it."""

MAC_KINDS = (*DISPATCHED_KINDS, WRITTEN_ELEMENTWISE)
"""Kinds whose size is a number of multiply-accumulates."""

OTHER_KINDS = (
    "bias", "expert_bias", "softmax", "norm", "rms_norm", "activation", "elementwise", "pooling", "embedding",
    "rope", "reduction", "other",
)  # fmt: skip
"""Kinds without multiply-accumulates: their size is the number of output elements, of ``pooling`` and ``reduction``
that of what is averaged or reduced."""

STORED_KINDS = ("cache", "cache_write", "cache_read")
"""Kinds of cache entries of a decode step: stored after the step, written, and read by the queries."""

RESULT = "result"
"""Kind of what a run keeps of its results for the backward pass: its size is a number of bytes."""

ELEMENTWISE_KINDS = ("square_sum", "scaled_addition")
"""Other multiplications that a run wrote elementwise and summed: of a tensor with itself, and as one term added to
something else. No closed form has them and no tool counts them, so none is in ``macs``: their size is."""

KINDS = frozenset((*MAC_KINDS, *OTHER_KINDS, *STORED_KINDS, *ELEMENTWISE_KINDS, RESULT))
"""All valid kinds."""


SELECTED = {"E": "K", "h": "k"}
"""Letter of a weight -> letter of the number of those that a token uses."""


def divide(a: Size, b: Size) -> Size:
    """Return ``a / b`` without rounding: an int if exact, else a Fraction; a quotient of symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return Fraction(a, b) if a % b else a // b
    if not (isinstance(a, (int, Fraction)) and isinstance(b, (int, Fraction))):
        return a / b
    quotient = Fraction(a, b)
    return quotient.numerator if quotient.denominator == 1 else quotient


def least(a: Size, b: Size) -> Size:
    """Return the smaller of two sizes, of symbols sympy's minimum."""
    try:
        return min(a, b)
    except TypeError:
        import sympy

        return sympy.Min(a, b)


def flops(macs: Size) -> Size:
    """Return the floating-point operations of ``macs``: 2 per multiply-accumulate."""
    return 2 * macs


def at(path: str, name: str) -> str:
    """Return the path of ``name`` in the module at ``path``; the empty path is the root, and that module itself."""
    return f"{path}.{name}" if path and name else path or name


@dataclass(frozen=True)
class Entry:
    """One operation, of size ``times`` * product of ``dims``.

    ``path`` is the module path, with ``*`` for the index of a repeated layer (``encoder.layers.*.self_attn``), or
    ``3-7`` for those of a run of layers.
    ``weight``: sizes of the parameter tensor; empty if there is none or if it is tied.
    ``shared``: number of the experts or heads of a token that are shared by all tokens.
    ``from_input``: the first operand is an input of the model or a constant, which needs no gradient.
    ``summed``: letters of ``dims`` that a product sums over.
    ``role``: the path that a closed form would have, where that of the model is another: rules of MACs read it.
    """

    path: str
    kind: str
    dims: Mapping[str, Size]
    times: Size = 1
    weight: Mapping[str, Size] = field(default_factory=dict)
    trainable: bool = True
    shared: Size = 0
    from_input: bool = False
    summed: tuple[str, ...] = field(default=(), compare=False)
    role: str = field(default="", compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {self.kind!r} at {self.path!r}")

    def with_sizes(self, **sizes: Any) -> "Entry":
        """Return the entry with other ``dims``, ``times`` or ``weight``: as dataclasses.replace, in less time."""
        out = object.__new__(type(self))
        fields = self.__dict__ | sizes
        # cached of the old sizes
        fields.pop("size", None)
        fields.pop("selects", None)
        out.__dict__.update(fields)
        return out

    @cached_property
    def size(self) -> Size:
        """Multiply-accumulates, or output or cache elements of a kind without MACs."""
        return self.times * prod(self.dims.values())

    @property
    def macs(self) -> Size:
        """Multiply-accumulates; 0 for a kind that has none."""
        return self.size if self.kind in MAC_KINDS else 0

    @property
    def params(self) -> Size:
        """Elements of the parameter tensor, all repetitions together."""
        return self.times * prod(self.weight.values()) if self.weight else 0

    @property
    def active_params(self) -> Size:
        """Parameters that one token uses: only the selected experts or heads.

        K of E experts, k of h heads: ``weight`` has the total, ``dims`` the selected number.
        """
        used = {letter: self.dims[SELECTED[letter]] for letter in self.selects}
        return self.times * prod({**self.weight, **used}.values()) if self.weight else 0

    @cached_property
    def selects(self) -> tuple[str, ...]:
        """Letters of the weight that each token selects from: E or h."""
        return tuple(n for n in self.weight if n not in self.dims and SELECTED.get(n) in self.dims)

    def with_dims(self, **sizes: Size) -> "Entry":
        """Return this entry with new sizes for the letters that it has."""
        return self.with_sizes(dims={k: sizes.get(k, v) for k, v in self.dims.items()})


@dataclass(frozen=True)
class CountedWeights(Entry):
    """The parameters of a counted module, of which a token uses ``used``: None where that is unknown.

    ``is_read``: whether a pass reads all of them.
    """

    used: int | None = None
    is_read: bool = False

    @property
    def active_params(self) -> Size | None:
        """Parameters that one token uses; None where that is unknown."""
        return self.used


@dataclass(frozen=True)
class Mask:
    """The pairs of a query and a key that attention sees: the keys up to the query, all or those of a range.

    ``window``: a query sees itself and the window - 1 tokens before it. ``chunk``: it sees the tokens of its own chunk.
    """

    window: int | None = None
    chunk: int | None = None

    @property
    def width(self) -> int | None:
        """The most keys that a query sees; None for all up to the query."""
        return self.window or self.chunk

    def pairs(self, T: Size) -> Size:
        """Return the pairs of a sequence of T tokens."""
        if self.chunk is not None:
            # of an integer: ranges of a symbol have no polynomial
            whole, rest = divmod(T, self.chunk)
            return whole * _triangle(self.chunk) + _triangle(rest)
        keys = T if self.window is None else least(T, self.window)
        return divide(keys * (2 * T - keys + 1), 2)


def _triangle(tokens: Size) -> Size:
    return divide(tokens * (tokens + 1), 2)


@dataclass(frozen=True)
class MaskedEntry(Entry):
    """A product of attention over all pairs of tokens of a prompt, of which ``mask`` leaves some."""

    mask: Mask = Mask()


def counted_weights(path: str, params: int, active_params: int | None) -> CountedWeights:
    """Return an entry for parameters alone: the operations that use them have entries of their own."""
    return CountedWeights(path, "elementwise", {"n": 0}, weight={"n": params}, used=active_params)


def total_of(amounts: Iterable[Size | None]) -> Size | None:
    """Return a sum; None where a part is unknown."""
    total: Size = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


@dataclass(frozen=True)
class Ledger:
    """An ordered list of entries; totals are sums over them."""

    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        """Return the entries as a tree of modules."""
        return summary.text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with a row for each entry: path, kind, sizes, repetitions, size and costs."""
        import pandas

        columns = ("path", "kind", "times", "size", "macs", "params")
        rows = [{name: getattr(entry, name) for name in columns} for entry in self]
        sizes = [summary.sizes(entry) for entry in self]
        return pandas.DataFrame(rows).assign(sizes=sizes, flops=[flops(entry.macs) for entry in self])

    def __add__(self, other: "Ledger") -> "Ledger":
        return Ledger(self.entries + other.entries)

    @property
    def macs(self) -> Size:
        """Multiply-accumulates of one forward pass."""
        return sum(entry.macs for entry in self)

    @property
    def flops(self) -> Size:
        """Floating-point operations: 2 per MAC."""
        return flops(self.macs)

    @property
    def params(self) -> Size:
        """All parameters, including frozen ones; each tensor once."""
        return sum(entry.params for entry in self)

    @property
    def frozen_params(self) -> Size:
        """Parameters that are not trained."""
        return sum(entry.params for entry in self if not entry.trainable)

    @property
    def active_params(self) -> Size | None:
        """Parameters that one token uses; None where those of an entry are unknown."""
        return total_of(entry.active_params for entry in self)

    def total_under(self, multiplicity: Callable[[Entry], int | Fraction]) -> Size:
        """Return the total size under ``multiplicity``, the number of times that each entry is counted."""
        return sum(multiplicity(entry) * entry.size for entry in self)

    def select(self, predicate: Callable[[Entry], Any]) -> "Ledger":
        """Return the entries for which ``predicate`` is true."""
        return Ledger(tuple(entry for entry in self if predicate(entry)))

    def repeat(self, times: Size) -> "Ledger":
        """Return the ledger of ``times`` equal layers."""
        return Ledger(tuple(entry.with_sizes(times=times * entry.times) for entry in self))

    def group(self, key: Callable[[Entry], Any], of: str = "macs") -> dict[Any, Size]:
        """Return sums of one property (``macs``, ``params``, ``size``, …) by ``key``, in order of appearance."""
        totals: dict[Any, Size] = {}
        for entry in self:
            totals[key(entry)] = totals.get(key(entry), 0) + getattr(entry, of)
        return totals


def ledger(*parts: Entry | Ledger | Iterable[Entry]) -> Ledger:
    """Return one ledger of entries and ledgers, in order."""
    entries: list[Entry] = []
    for part in parts:
        entries += [part] if isinstance(part, Entry) else part
    return Ledger(tuple(entries))


def stack(path: str, mixers: Sequence[Any], block: Callable[[str, Any], Ledger]) -> Ledger:
    """Return ``block(path.index, mixer)`` for each of ``mixers``; neighbours with the same mixer share entries."""
    out = []
    for _, run in groupby(enumerate(mixers), key=lambda indexed: indexed[1]):
        indices, (mixer, *_) = zip(*run, strict=True)
        times = len(indices)
        index = "*" if times == len(mixers) else str(indices[0]) if times == 1 else f"{indices[0]}-{indices[-1]}"
        out.append(block(at(path, index), mixer).repeat(times))
    return ledger(*out)
