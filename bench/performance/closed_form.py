"""Kernels of a ledger, by the closed form alone: each operation is one kernel, and attention is a fused core.

Biases are added in the epilogue of their product. Imports no torch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, prod

from headcount.bench.performance.kernel import (
    CORE,
    CORE_BACKWARD,
    DECODE,
    ELEMENTWISE,
    GROUPED,
    WEIGHT_GRAD,
    CoreSizes,
    Kernel,
    product_kind,
)
from headcount.formulas.decoding import weights_read
from headcount.formulas.ledger import FORWARD_KINDS, RESULT, SELECTED, Entry, Ledger, MaskedEntry, at, divide

KEYS = ("S", "w", "M")
"""Letters of the tokens that a query attends to: all, or those of a window and pooled ones."""
TOKENS = ("B", "T", "S", "N_r")
"""Letters of rows, which no product has as an output."""
WIDTHS = ("d_m", "F")
"""Letters of tensors that two operands of an elementwise operation have: residuals and gated units. The gates of
experts and heads are small."""
NOT_RUN = ("bias", "cache", "cache_read", RESULT)
"""Kinds that are no kernels of their own: added by a product, or read by a core."""
BACKWARD_SHARE = Fraction(3, 2)
"""Bytes of the gradient of an operation without products, over its own: it reads a gradient and what was kept."""

Each = Mapping[str, int | Fraction]
"""Bytes of a number by what it is: ``weight``, ``cached``, or ``other``."""
BFLOAT16: Each = {"weight": 2, "cached": 2, "other": 2}


@dataclass(frozen=True)
class ClosedForm:
    """The kernels of a ledger.

    Attributes:
        form: a ledger of integers.
        each: bytes of a number by what it is.
        is_causal: of the path of an attention, whether each query sees the keys up to its own position.
        divides_queries: whether fewer queries than keys are a part of all tokens, of every position, and not the last.
    """

    form: Ledger
    each: Each
    is_causal: Callable[[str], bool]
    divides_queries: bool = False

    def forward(self) -> list[Kernel]:
        """Return the kernels of a forward pass, or of a decode step."""
        return [kernel for kernel, _ in self._operations()]

    def backward(self) -> list[Kernel]:
        """Return the kernels of the gradients, and none of the forward pass."""
        found: list[Kernel] = []
        inputs: set[tuple] = set()
        for kernel, entry in self._operations():
            if kernel.kind in (CORE, DECODE):
                found.append(replace(kernel, kind=CORE_BACKWARD, bytes=2 * kernel.bytes, macs=5 * kernel.macs // 2))
            elif kernel.macs:
                found += [kernel] * (not entry.from_input)
                if entry.trainable:
                    found.append(replace(kernel, kind=WEIGHT_GRAD) if kernel.kind == GROUPED else kernel)
                operand = prod(entry.dims.get(name, 1) for name in (*TOKENS, "d_m"))
                block = entry.path.rpartition(".")[0], entry.times, operand
                if block in inputs and "d_m" in entry.summed:
                    # products of one input: their gradients of it are summed
                    moved = ceil(3 * operand * self.each["other"])
                    found.append(Kernel(entry.path, ELEMENTWISE, moved, times=entry.times))
                inputs.add(block)
            else:
                found.append(replace(kernel, bytes=ceil(BACKWARD_SHARE * kernel.bytes)))
        return found

    def _operations(self) -> Iterator[tuple[Kernel, Entry]]:
        """Yield each kernel of a forward pass, with the entry that it computes."""
        inside = False
        cores: set[str] = set()
        for place, entry in enumerate(self.form):
            if entry.kind == "scores" and entry.size:
                scores = self._scores_with(place)
                if scores[0] is entry:
                    inside = True
                    cores.add(entry.path)
                    yield self._core(scores, self._values_after(place)), entry
            elif inside and set(KEYS) & entry.dims.keys() and (entry.kind == "values" or not entry.macs):
                # between the scores and the values everything stays in the core
                inside = entry.kind != "values"
            elif entry.path in cores and not entry.macs and "T" in entry.dims and set(KEYS) & entry.dims.keys():
                # a derived form lists the pairs of tokens of an attention after its products
                continue
            elif entry.kind in FORWARD_KINDS and entry.size:
                yield from ((kernel, entry) for kernel in self._product(entry))
            elif entry.kind not in NOT_RUN and not entry.macs and entry.size:
                width = self.each["cached"] if entry.kind == "cache_write" else self.each["other"]
                is_pair = entry.kind == "elementwise" and entry.dims.keys() & set(WIDTHS)
                moved = (3 if is_pair else 2) * _once(entry) * width
                yield Kernel(entry.path, ELEMENTWISE, ceil(moved), times=entry.times), entry

    def _values_after(self, place: int) -> Entry:
        return next(entry for entry in self.form.entries[place:] if entry.kind == "values")

    def _scores_with(self, place: int) -> list[Entry]:
        """Return the products that give the scores of one attention: two where a part of a head is rotated apart."""
        own = self.form.entries[place]
        rows = _rows(own)
        return [one for one in self.form if one.kind == "scores" and one.path == own.path and _rows(one) == rows]

    def _core(self, parts: Sequence[Entry], values: Entry) -> Kernel:
        """Return the core of an attention, which keeps no T x S numbers, given the products of its scores."""
        scores = parts[0]
        key = next(letter for letter in KEYS if letter in scores.dims)
        queries, keys = scores.dims.get("T", 1), scores.dims[key]
        batch = _once(scores) // (queries * keys * _width(scores))
        width = sum(map(_width, parts))
        out_width = _once(values) // (batch * queries * keys)
        visible = self._visible(scores, key, queries)
        macs = floor(visible * batch * queries * keys * (width + out_width))
        projections = self._projections(scores, keys)
        own = batch * queries * (width + out_width) * self.each["other"] + self._keys_and_values(scores, projections)
        is_step = queries == 1
        rows = scores.dims.get("B", 1) * keys
        if visible == 1 and not is_step and any(_results(entry) == rows * width for entry in projections):
            # the heads of a token are further rows of the one head of keys
            heads = batch // scores.dims.get("B", 1)
            batch, queries = batch // heads, queries * heads
        sizes = CoreSizes(batch, queries, keys, max(width, out_width))
        return Kernel(scores.path, DECODE if is_step else CORE, ceil(own), macs, sizes, times=scores.times)

    def _visible(self, scores: Entry, key: str, queries: int) -> int | Fraction:
        """Return the share of the pairs of queries and keys that the core computes."""
        keys = scores.dims[key]
        if isinstance(scores, MaskedEntry):
            return divide(scores.mask.pairs(keys), keys * keys)
        if key != "S" or not self.is_causal(scores.path):
            return 1
        return 1 - Fraction((keys if self.divides_queries else queries) - 1, 2 * keys)

    def _projections(self, scores: Entry, keys: int) -> list[Entry]:
        """Return the products that give the keys and values of an attention."""
        inside = (entry for entry in self.form if entry.path.startswith(at(scores.path, "")))
        return [one for one in inside if one.kind in FORWARD_KINDS and one.weight and one.dims.get("S") == keys]

    def _keys_and_values(self, scores: Entry, projections: Sequence[Entry]) -> int | Fraction:
        """Return the bytes of the keys and values of an attention: projected ones, or those of the cache."""
        stored = (one for one in self.form if one.path == scores.path and one.kind == "cache_read")
        cached = sum(map(_once, stored))
        if projections or not cached:
            return sum(map(_results, projections)) * self.each["other"]
        return cached * self.each["cached"]

    def _product(self, entry: Entry) -> list[Kernel]:
        """Return the kernels of a product: of selected experts also the sum over the rows of a token."""
        results, size = _results(entry), _once(entry)
        letters = entry.weight or entry.dims
        outputs = [letter for letter in letters if letter not in (*entry.summed, *TOKENS, *entry.selects)]
        # a channel of a convolution reads its own inputs
        operands = results if entry.kind == "conv" else size // prod(entry.dims[letter] for letter in outputs)
        rows = prod(entry.dims[SELECTED[letter]] for letter in entry.selects)
        is_dense = all(entry.dims[SELECTED[letter]] == entry.weight[letter] for letter in entry.selects)
        if entry.selects and "d_m" in entry.summed:
            # the rows of a token are the same
            operands //= rows
        is_grouped = "E" in entry.selects and not is_dense
        if entry.selects and "d_m" in outputs and not is_grouped:
            # one product sums over all experts, or over all heads
            results //= rows
        other = self.each["other"]
        moved = weights_read(entry) // entry.times * self.each["weight"] + (operands + results) * other
        sides = () if entry.kind == "conv" else (outputs, entry.summed)
        widths = (prod(entry.dims[letter] for letter in side) for side in sides)
        kind = GROUPED if is_grouped else product_kind(ceil(width * other) for width in widths)
        found = [Kernel(entry.path, kind, ceil(moved), size, times=entry.times)]
        if is_grouped and "d_m" in outputs:
            summed = results + results // rows
            found.append(Kernel(entry.path, ELEMENTWISE, ceil(summed * other), times=entry.times))
        return found


def update(params: int, recipe: Mapping[str, int]) -> Kernel:
    """Return the fused kernel that reads what ``recipe`` keeps of each parameter, in bytes, and writes all but the
    gradients."""
    read = sum(recipe.values())
    return Kernel("optimizer", ELEMENTWISE, params * (2 * read - recipe["gradients"]))


def total_macs(kernels: Iterable[Kernel]) -> int:
    """Return the multiply-accumulates of kernels."""
    return sum(kernel.times * kernel.macs for kernel in kernels)


def _width(scores: Entry) -> int:
    """Return the width of a head: the sizes after that of the keys."""
    rows = len(_rows(scores))
    return prod(list(scores.dims.values())[rows:])


def _rows(scores: Entry) -> list[tuple[str, int]]:
    """Return the sizes of the scores themselves, which end with that of the keys."""
    dims = list(scores.dims.items())
    return dims[: next(place for place, (letter, _) in enumerate(dims, 1) if letter in KEYS)]


def _once(entry: Entry) -> int:
    """Return the size of one of the repetitions of an entry."""
    return entry.size // entry.times


def _results(entry: Entry) -> int:
    """Return the elements of the result of one repetition."""
    return _once(entry) // prod(entry.dims.get(letter, 1) for letter in entry.summed)
