"""The Pareto front of many points: those that no other point is as good as in everything and better in something."""

from collections.abc import Iterator, Sequence

import numpy as np


def front(objectives: Sequence[np.ndarray]) -> Iterator[int]:
    """Indices of the front, best first by the first objective, then by the second, …; less is better in each.

    Each step takes the least point that is left and leaves out what it dominates: whatever dominates a point
    comes before it, so what is left is never dominated by what was taken. A step is linear in the points left.
    """
    points = [np.asarray(column) for column in objectives]
    index = np.arange(len(points[0]))
    while len(index):
        least = np.arange(len(index))
        for column in points:
            values = column[least]
            least = least[values == values.min()]
        chosen = [column[least[0]] for column in points]
        yield from (int(i) for i in index[least])
        # What equals the chosen point is the front too, and was given out with it.
        left = np.zeros(len(index), dtype=bool)
        for column, value in zip(points, chosen, strict=True):
            left |= column < value
        points, index = [column[left] for column in points], index[left]


def dominated(at: int, objectives: Sequence[np.ndarray], times: np.ndarray) -> bool:
    """Whether any point dominates the one ``at``; ``times`` (NaN where unknown) count between two known ones."""
    first, *others = objectives
    rivals = np.flatnonzero(first <= first[at])
    for column in others:
        rivals = rivals[column[rivals] <= column[at]]
    known = ~np.isnan(times[rivals]) & ~np.isnan(times[at])
    as_good = ~known | (times[rivals] <= times[at])
    better = known & (times[rivals] < times[at])
    for column in objectives:
        better |= column[rivals] < column[at]
    return bool(np.any(as_good & better))


def listing(
    objectives: Sequence[np.ndarray], times: np.ndarray, values: Sequence[np.ndarray], apart: float
) -> Iterator[int]:
    """The front where some points have a time, which counts between two that have one; those come first.

    With ``apart`` above 0 a point without a time is left out where all its ``values`` lie within that share of
    those of a point given before.
    """
    timed = ~np.isnan(times)
    yield from (int(i) for i in np.flatnonzero(timed) if not dominated(i, objectives, times))
    # A point without a time is judged by the other objectives, against every point.
    if apart:
        yield from _spread(objectives, values, apart, timed)
    else:
        yield from (i for i in front(objectives) if not timed[i])


def _spread(objectives, values, apart: float, skip: np.ndarray) -> Iterator[int]:
    points = [np.asarray(column) for column in objectives]
    none = np.full(len(skip), np.nan)
    pool = np.flatnonzero(~skip)
    while len(pool):
        chosen = pool
        for column in points:
            found = column[chosen]
            chosen = chosen[found == found.min()]
        at = int(chosen[0])
        near = pool == at
        # What a near one dominates is still in the pool.
        if not dominated(at, points, none):
            yield at
            near = np.ones(len(pool), dtype=bool)
            for column in values:
                near &= np.abs(column[pool] - column[at]) <= apart * column[at]
        better = np.zeros(len(pool), dtype=bool)
        for column in points:
            better |= column[pool] < column[at]
        pool = pool[~near & better]
