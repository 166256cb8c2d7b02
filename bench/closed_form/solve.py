"""Find the letters of a size from its values at a few lengths. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

from headcount.bench.closed_form.terms import KEYS, NEW, SEQUENCES, Factor

MOST_SHIFT = 256
"""The most tokens that are added to those of the input, as by the padding of a convolution."""


@dataclass(frozen=True)
class Lengths:
    """Sequences, new tokens and stored tokens of a run."""

    B: int
    T: int
    n: int = 0

    def __str__(self) -> str:
        return f"B={self.B} T={self.T}" + (f" n={self.n}" if self.n else "")


@dataclass(frozen=True)
class Solver:
    """Writes sizes of runs at ``points`` as products of a number, sequences and tokens.

    ``windows`` and ``chunks`` are those that the configuration states. In a step one token is new, so that its sizes
    depend on stored tokens alone.
    """

    points: tuple[Lengths, ...]
    windows: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()

    @property
    def is_step(self) -> bool:
        """Whether the runs were of one new token."""
        return any(point.n for point in self.points)

    def solve(self, values: Sequence[int], *, keys: bool = False, squares: bool = False) -> list[Factor] | None:
        """Return the factors whose product has ``values`` at the points, the number last; None where there are none.

        ``keys``: tokens are those that a query attends to. ``squares``: tokens may appear twice, as pairs.
        """
        letter = KEYS if keys or self.is_step else NEW
        for factors in self._candidates(values, letter, squares):
            number = self._number(values, factors)
            if number is not None:
                return [*factors, Factor("", number)]
        return None

    def _number(self, values: Sequence[int], factors: Sequence[Factor]) -> int | None:
        """Return the number by which the factors give the values; None where they do not."""
        found = {divmod(value, size) for value, size in zip(values, self._sizes(factors), strict=True)}
        if len(found) != 1:
            return None
        number, rest = found.pop()
        return number if not rest else None

    def _sizes(self, factors: Sequence[Factor]) -> list[int]:
        return [prod(factor.value(one.B, one.T, one.n) for factor in factors) for one in self.points]

    def _candidates(self, values: Sequence[int], letter: str, squares: bool) -> Iterator[list[Factor]]:
        sequences = [[], [Factor("B", of=SEQUENCES)]]
        tokens = self._tokens(letter)
        for batch in sequences:
            yield batch
        for one, batch in product(tokens, sequences):
            yield [*batch, one]
        if squares:
            # some softmax has a sink in addition to the keys
            every = [*self._tokens(KEYS), Factor(KEYS, of=KEYS, shift=1)]
            for first, second, batch in product(self._tokens(NEW), every, sequences):
                yield [*batch, first, second]
        for batch in sequences:
            if shifted := self._shifted(values, batch, letter):
                yield [*batch, shifted]

    def _tokens(self, letter: str) -> list[Factor]:
        found = [Factor(letter, of=letter)]
        if letter == KEYS:
            found += [Factor(letter, of=letter, window=window) for window in self.windows]
        # a state before the first chunk is one more
        return found + [Factor("m", of=NEW, shift=more, chunk=chunk) for chunk in self.chunks for more in (0, chunk)]

    def _shifted(self, values: Sequence[int], batch: Sequence[Factor], letter: str) -> Factor | None:
        """Return T + k, where the first two points give a whole k."""
        plain = Factor(letter, of=letter)
        tokens, per = self._sizes([plain]), self._sizes(batch)
        (a, b), (s, t) = (values[0] * per[1], values[1] * per[0]), tokens[:2]
        if a == b or (a * t - b * s) % (b - a):
            return None
        shift = (a * t - b * s) // (b - a)
        is_small = 0 < abs(shift) <= MOST_SHIFT and min(tokens) + shift > 0
        return Factor(letter, of=letter, shift=shift) if is_small else None


def polynomial(
    values: Mapping[Lengths, int], batches: Sequence[int], tokens: Sequence[int]
) -> tuple[list[Fraction], list[Fraction]]:
    """Return the coefficients of 1, T and T^2 of values at three numbers of tokens: without sequences, and of each.

    ``batches``: one number of sequences, whose values have the first part alone, or two.
    """
    small, large = batches[0], batches[-1]
    one, two = (_quadratic(tokens, [values[Lengths(B, T)] for T in tokens]) for B in (small, large))
    more = [(b - a) / max(1, large - small) for a, b in zip(one, two, strict=True)]
    return [a - small * b for a, b in zip(one, more, strict=True)], more


def _quadratic(tokens: Sequence[int], values: Sequence[int]) -> list[Fraction]:
    """Return the coefficients of 1, T and T^2 of the polynomial through three points."""
    (a, b, c), (x, y, z) = tokens, values
    slope = Fraction(y - x, b - a)
    curve = (Fraction(z - y, c - b) - slope) / (c - a)
    return [x - slope * a + curve * a * b, slope - curve * (a + b), curve]
