"""Count what a command names, and store the counts of configuration files between runs. Imports no torch."""

import os
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

from headcount.bench.case import Case
from headcount.bench.counting import count as counting
from headcount.bench.counting.result import Count
from headcount.bench.store import find_stored
from headcount.bench.targets.target import Target, is_configuration

META = "meta"
"""The device on which all machines count the same."""


def count(target: Target | Case, counters: Sequence[str] = (), **options: Any) -> Count:
    """Return the count that counting.count.count returns; that of a configuration file is stored.

    Other targets always run: user code may depend on anything.
    """
    if counters or isinstance(target, Case) or not _is_stored(target):
        return counting.count(target, counters, **options)
    return find_stored(
        "counts",
        target.spec,
        (os.path.abspath(target.spec), target, sorted(options.items())),
        lambda: counting.count(target, **options),
        methodcaller("to_json"),
        Count.from_json,
        is_kept=lambda found: found.device == META,
    )


def _is_stored(target: Target) -> bool:
    """Return whether all that a count of a target depends on is known: inputs and plans may be in other files."""
    is_file = is_configuration(target.spec) and not target.spec.startswith("hf:")
    return is_file and not (target.inputs or target.plan)
