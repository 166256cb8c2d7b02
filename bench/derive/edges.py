"""Find the sizes at which a closed form ends, by counting on both sides.

A run with symbols states what the module's own comparisons need. What a kernel refuses, as a selection of more entries
than there are, is no comparison of the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy

from headcount.bench.derive.guards import Domain
from headcount.formulas.symbols import format_sizes, symbol

Point = Mapping[str, int]
MOST = 4096
"""The largest size that is tried."""


@dataclass(frozen=True)
class Edges:
    """Bounds beyond which a module raises or counts otherwise, and the sizes that count the same at 1.

    Attributes:
        bounds: as texts, K <= E; each was tried on both sides, and is not proved.
        at_one: as texts, E=1; each was tried by itself, with the sizes that it bounds, E=1 with K=1.
    """

    bounds: tuple[str, ...] = ()
    at_one: tuple[str, ...] = ()


def find_edges(
    holds: Callable[[Point], bool], base: Point, growing: Sequence[str], conditions: tuple[sympy.Basic, ...]
) -> Edges:
    """Return the edges around ``base`` within ``conditions``.

    ``holds`` returns whether the module runs at a point and counts what the form gives. ``growing`` are the sizes that
    are tried above all others.
    """
    texts: list[str] = []
    below: list[tuple[str, str]] = []
    for name in growing:
        # a multiple, which keeps the divisors of a size
        large = base[name] * -(-2 * max(base.values()) // base[name])
        beyond = {**base, name: large}
        if large > MOST or not Domain(conditions).holds_at(beyond) or holds(beyond):
            continue
        values = _within(conditions, lambda size, name=name: {**base, name: size}, range(base[name], large + 1))
        last = _last(lambda size, name=name: holds({**base, name: size}), values)
        other = next((one for one in base if one != name and _is_bound(holds, base, name, last, one)), None)
        if other:
            below.append((name, other))
            texts.append(f"{name} <= {other}")
        else:
            rest = {one: 2 * size for one, size in base.items() if one != name}
            is_constant = holds({**rest, name: last}) and not holds({**rest, name: last + 1})
            texts.append(f"{name} <= {last}" + ("" if is_constant else _at_others(base, name)))
    bounds = tuple(symbol(name) <= symbol(other) for name, other in below)
    at_one = []
    for name in base:

        def point(size: int, name: str = name) -> dict[str, int]:
            smaller = {one: min(base[one], size) for one, other in below if other == name}
            return {**base, **smaller, name: size}

        within = (*conditions, *bounds)
        if not Domain(within).holds_at(point(1)):
            continue
        if holds(point(1)):
            smaller = {one: size for one, size in point(1).items() if size != base[one] and one != name}
            at_one.append(f"{name}=1" + (f" with {format_sizes(smaller)}" if smaller else ""))
        else:
            values = _within(within, point, range(1, base[name] + 1))
            # from above: the last one that holds is the least
            least = _last(lambda size, point=point: holds(point(size)), values[::-1])
            # what bounds the size may be another size, by a relation that is not known
            is_constant = not any(holds({**point(1), one: 1}) for one in base if one != name)
            texts.append(f"{name} >= {least}" + ("" if is_constant else _at_others(base, name)))
    return Edges(tuple(texts), tuple(at_one))


def _at_others(base: Point, name: str) -> str:
    """Return the values of the other sizes, behind a bound that was found with these alone."""
    return f" at {format_sizes({one: size for one, size in base.items() if one != name})}"


def _within(conditions: tuple[sympy.Basic, ...], point: Callable[[int], Point], sizes: Sequence[int]) -> list[int]:
    """Return the sizes at whose points the conditions hold."""
    domain = Domain(conditions)
    return [size for size in sizes if domain.holds_at(point(size))]


def _last(holds: Callable[[int], bool], sizes: Sequence[int]) -> int:
    """Return the last size that holds before the first that does not; the first one holds and the last does not."""
    low, high = 0, len(sizes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(sizes[middle]) else (low, middle)
    return sizes[low]


def _is_bound(holds: Callable[[Point], bool], base: Point, name: str, last: int, other: str) -> bool:
    """Return whether a size may be as large as another and no larger, here and where the other is twice as large."""
    twice = 2 * base[other]
    moved = {**base, other: twice}
    return last == base[other] and holds({**moved, name: twice}) and not holds({**moved, name: twice + 1})
