"""The closed form of a configuration: terms whose sizes are letters B, T and n, as plain data. Imports no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from headcount.formulas.ledger import CountedWeights, Entry, Ledger, Mask, MaskedEntry, Size, divide, least

SEQUENCES, NEW, KEYS = "B", "T", "S"
"""What a size counts: sequences, new tokens, or the tokens that a query may attend to, stored and new ones."""


@dataclass(frozen=True)
class Factor:
    """One size of a term: a number, or sequences or tokens.

    Attributes:
        letter: its letter in the ledger.
        number: the size, where ``of`` is empty.
        of: one of SEQUENCES, NEW and KEYS.
        shift: tokens that are added.
        window: of KEYS, a new token attends to itself and to the window - 1 tokens before it.
        chunk: tokens are cut into chunks of so many, the last one filled up.
    """

    letter: str
    number: int = 1
    of: str = ""
    shift: int = 0
    window: int | None = None
    chunk: int | None = None

    def value(self, B: Size, T: Size, n: Size) -> Size:
        """Return the size for B sequences of T new tokens each behind n stored ones."""
        if not self.of:
            return self.number
        if self.of == SEQUENCES:
            return B
        tokens = T + self.shift
        if self.of == KEYS:
            tokens += n if self.window is None else least(n, self.window - 1)
        return tokens if self.chunk is None else _chunks(tokens, self.chunk)


def _chunks(tokens: Size, chunk: int) -> Size:
    if isinstance(tokens, int):
        return -(-tokens // chunk)
    import sympy

    return sympy.ceiling(tokens / sympy.Integer(chunk))


@dataclass(frozen=True)
class Term:
    """An entry of the ledger whose sizes depend on B, T and n.

    ``weight``, ``trainable``, ``summed`` and ``role`` are those of the entry. ``used``: of a term of parameters alone
    those that a token uses, -1 where that is unknown; ``is_read``: whether a pass reads them. ``mask``: the pairs that
    a query sees, None where they are not known or where every query sees every key.
    """

    path: str
    kind: str
    factors: tuple[Factor, ...]
    times: int = 1
    weight: Mapping[str, int] = field(default_factory=dict)
    trainable: bool = True
    summed: tuple[str, ...] = ()
    role: str = ""
    used: int | None = None
    is_read: bool = False
    mask: Mask | None = None

    def dims(self, B: Size, T: Size, n: Size) -> dict[str, Size]:
        """Return the sizes by letter."""
        return {factor.letter: factor.value(B, T, n) for factor in self.factors}

    def entry(self, B: Size, T: Size, n: Size) -> Entry:
        """Return the entry for B sequences of T new tokens each behind n stored ones."""
        common = {"times": self.times, "trainable": self.trainable, "role": self.role}
        if self.used is not None:
            used = None if self.used < 0 else self.times * self.used
            return CountedWeights(
                self.path, self.kind, {"n": 0}, weight=self.weight, used=used, is_read=self.is_read, **common
            )
        dims = self.dims(B, T, n)
        if self.mask is not None:
            return MaskedEntry(
                self.path, self.kind, dims, weight=self.weight, summed=self.summed, mask=self.mask, **common
            )
        return Entry(self.path, self.kind, dims, weight=self.weight, summed=self.summed, **common)


@dataclass(frozen=True)
class Stored:
    """A tensor of a cache: its sizes after a step, of which ``tokens`` counts the stored tokens; None for a state.

    ``window``: a cache that keeps the last window - 1 tokens.
    """

    path: str
    sizes: Mapping[str, int]
    grows: bool = True
    window: int | None = None
    times: int = 1

    def entries(self, B: Size, T: Size, n: Size) -> list[Entry]:
        """Return what is stored after a step, what is written, and what is read."""
        if not self.grows:
            dims = {"B": B, **self.sizes}
            return [Entry(self.path, kind, dims, self.times) for kind in ("cache", "cache_read")]
        kept, before = n + T, n
        if self.window is not None:
            kept, before = (least(tokens, self.window - 1) for tokens in (kept, before))
        tokens = {"cache": kept, "cache_write": T, "cache_read": before + T}
        return [Entry(self.path, kind, {"B": B, "S": size, **self.sizes}, self.times) for kind, size in tokens.items()]


@dataclass(frozen=True)
class Range:
    """Bytes as a polynomial of B and T, of at least ``start`` and at most ``stop`` tokens.

    ``first`` + B ``more``, each the coefficients of 1, T and T^2, ``over`` a number. ``alone``: that of one sequence,
    where it is another.
    """

    start: int
    stop: int | None
    first: tuple[int, ...]
    more: tuple[int, ...]
    over: int = 1
    alone: "Range | None" = None

    def value(self, B: int, T: int) -> int | Fraction:
        """Return the bytes."""
        if B == 1 and self.alone is not None:
            return self.alone.value(B, T)
        parts = zip(self.first, self.more, strict=True)
        return divide(sum((a + B * b) * T**power for power, (a, b) in enumerate(parts)), self.over)


@dataclass(frozen=True)
class Bytes:
    """Bytes of activations by ranges of lengths."""

    ranges: tuple[Range, ...] = ()

    def next_known(self, T: int) -> int | None:
        """Return the least length from T on whose bytes are known; None where none is."""
        starts = [max(T, one.start) for one in self.ranges if one.stop is None or T <= one.stop]
        return min(starts, default=None)

    def value(self, B: int, T: int) -> int | None:
        """Return the bytes of B sequences of T tokens; None where they are not known."""
        for one in self.ranges:
            if one.start <= T and (one.stop is None or T <= one.stop):
                found = one.value(B, T)
                return found if isinstance(found, int) else None
        return None


@dataclass(frozen=True)
class ClosedForm:
    """The closed form of a configuration.

    Attributes:
        model: class of the model, its library and type of weights.
        forward: a pass over T tokens without stored ones.
        step: a pass over one new token behind n stored ones; empty where ``no_step`` is not.
        stored: the tensors of the cache.
        results: the bytes that a pass keeps for the gradients, in the letters that plans divide; empty where they are
            not known or not wanted.
        results_of_one: those of one sequence, where they are others.
        windows: the windows and chunks of the layers that have one.
        positions: the most tokens of a sequence; None for any number.
        weight_bytes: bytes of all parameters in their types.
        no_step: why the model does not decode.
        no_mask: why the pairs that masks leave are not known, those of attention or of other products.
        no_training: why the gradients of products are not two products of their size each; empty where they are.
        unpriced: why the operations without products are not known; empty where they are.
        proof: at which lengths the form was compared with counts.
        notes: sentences about how the model was built.
    """

    variant = "configuration"
    has_module = False

    model: str
    forward: tuple[Term, ...]
    step: tuple[Term, ...] = ()
    stored: tuple[Stored, ...] = ()
    results: tuple[Term, ...] = ()
    results_of_one: tuple[Term, ...] = ()
    windows: tuple[int, ...] = ()
    positions: int | None = None
    weight_bytes: int = 0
    no_step: str = ""
    no_mask: str = ""
    no_training: str = ""
    unpriced: str = ""
    proof: str = ""
    notes: tuple[str, ...] = ()

    def letters(self) -> dict[str, int]:
        """Return no letters: sizes of the configuration are numbers."""
        return {}

    def of_tokens(self, B: Size, T: Size) -> Ledger:
        """Return the ledger of a pass over T tokens of B sequences, without a cache."""
        return Ledger(tuple(term.entry(B, T, 0) for term in self.forward))

    def of_training(self, B: Size, T: Size) -> Ledger:
        """Return the ledger of a pass over T tokens of B sequences, with the results that a run keeps."""
        results = self.results_of_one if B == 1 and self.results_of_one else self.results
        return self.of_tokens(B, T) + Ledger(tuple(term.entry(B, T, 0) for term in results))

    def of_step(self, B: Size, T: Size, n: Size) -> Ledger:
        """Return the ledger of T new tokens behind n stored ones, with what the cache stores."""
        terms = self.step if T == 1 else self.forward
        entries = [term.entry(B, T, n) for term in terms]
        return Ledger((*entries, *(entry for one in self.stored for entry in one.entries(B, T, n))))

    def masked(self, B: Size, T: int, mask: Mask | None = None) -> Ledger:
        """Return the ledger of a pass with the pairs that masks leave; ``mask`` replaces those of causal attention."""
        return masked_terms(self.forward, B, T, mask)


def masked_terms(terms: Iterable[Term], B: Size, T: int, mask: Mask | None = None) -> Ledger:
    """Return the entries of a pass with the pairs that masks leave; ``mask`` replaces those of causal attention."""
    found = []
    for term in terms:
        seen = mask if term.mask == Mask() and mask is not None else term.mask
        entry = term.entry(B, T, 0)
        if seen is not None:
            rest = {letter: size for letter, size in entry.dims.items() if letter not in ("T", "S")}
            entry = Entry(term.path, term.kind, {**rest, "N_qk": seen.pairs(T)}, term.times, role=term.role)
        found.append(entry)
    return Ledger(tuple(found))
