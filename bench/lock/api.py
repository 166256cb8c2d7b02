"""``hc.lock``: count a module in a program, and write the count to a lock or check it against one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headcount.bench.api.count import count_macs
from headcount.bench.column import DASH, plural
from headcount.bench.counting.result import Count
from headcount.bench.output.files import write
from headcount.bench.snapshot import file
from headcount.bench.snapshot.difference import changes, failures, headline, limits_at, summary, unmet_limits
from headcount.bench.snapshot.tables import facts

Limits = Mapping[str, int | str]
"""Limits by quantity, as difference.limits_at reads them."""


class CostChanged(AssertionError):
    """The count of a module is not as locked; the message has the largest changes, by name."""


class LockMissing(AssertionError):
    """A test has no lock to compare with."""


class Lock(Count):
    """The count of a module, to write to a file or to check against one."""

    def write(self, path: str | Path, *, max: Limits | None = None) -> None:
        """Write the lock to ``path``, in an existing folder, with the limits ``max`` of macs and params.

        Raises UsageError where it cannot be written, CostChanged for a count above a limit, and ValueError for a limit
        that is neither a number nor a percentage, as ``{"macs": "+5%"}``.
        """
        __tracebackhide__ = True
        counted = replace(self, limits=limits_at(self, max or {}))
        if why := unmet_limits(counted):
            raise CostChanged(f"{path} is not written: {'; '.join(why.values())}")
        write(Path(path), file.text(counted))

    def check(self, path: str | Path, target: str | None = None, *, max: Limits | None = None) -> None:
        """Raise CostChanged, an AssertionError, unless what difference.equal compares is as locked, or within limits.

        Args:
            path: the lock.
            target: the one that is compared, in a lock of several.
            max: limits in place of those of the lock, by ``macs`` and ``params``: numbers, as ``2_100_000`` or "2.1G",
                or percentages above the locked count, as "+5%".

        Raises UsageError for a file that is missing or no lock, and for a target that it does not have, and ValueError
        for other limits.
        """
        __tracebackhide__ = True
        locked = file.read(path, target)
        counted = replace(self, limits={**(locked.limits or {}), **limits_at(locked, max or {})})
        if why := failures(locked, counted):
            start = "; ".join(why) if counted.limits else f"cost changed: {headline(locked, counted)}"
            raise CostChanged("\n".join([f"{path}: {start}", *_lines(locked, counted)]))


LARGEST = 4
"""Number of changes, and of differences in how they were counted, that a CostChanged names."""


def _lines(locked: Count, counted: Count) -> list[str]:
    """Return the totals, the largest changes and what differs in how they were counted, a line each."""
    found = [summary(locked, counted)]
    ordered = sorted(changes(locked, counted), key=lambda one: -abs(one.amounts[1] - one.amounts[0]))
    for one in ordered[:LARGEST]:
        before, after = one.amounts
        found.append(f"  {one.path or '(model)'}: {one.quantity} {one.what}, {one.sizes}, {after - before:+,}")
    if more := ordered[LARGEST:]:
        found.append(f"  and {plural(len(more), 'smaller change')}")
    how = [f"  {what}: {old or DASH} -> {new or DASH}" for what, old, new in facts(locked, counted)]
    return found + how[:LARGEST]


def lock(
    model: Any,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    input_size: Sequence[Any] | None = None,
    dtypes: Sequence[torch.dtype] | torch.dtype | None = None,
    **keywords: Any,
) -> Lock:
    """Count as ``count_macs`` does: every contraction and parameter, by name.

    Call ``hc.lock(model, x).write("macs.lock")`` once and ``hc.lock(model, x).check("macs.lock")`` from then on.
    A lock written by a program names no module, so ``headcount lock --check`` needs a TARGET for it.

    Args:
        model: the module to count, or what ``count_macs`` takes for it.
        inputs: its positional inputs.
        kwargs: its keyword inputs.
        input_size: sizes of inputs that are made, as ``count_macs`` takes them.
        dtypes: types of these inputs.
        keywords: options of ``count_macs``; others are keyword inputs.

    Raises:
        UnsupportedError, ElementwiseError, TypeError, ValueError: as ``count_macs``.
    """
    sizes = {"input_size": input_size, "dtypes": dtypes}
    return Lock(**vars(count_macs(model, *inputs, kwargs=kwargs, **sizes, **keywords)))
