"""Check the numeric options of the latency commands against their limits."""

import argparse
import math
import os

from headcount.bench.errors import UsageError

MOST, MOST_BLOCKS = 2**31 - 1, 10_000
"""Largest length or batch, and most blocks."""


def check(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError for the first option, of ``names`` or of all, that is below 1 or above its limit."""
    most = {"tokens": MOST, "batch_size": MOST, "blocks": MOST_BLOCKS, "threads": os.cpu_count() or 1}
    most |= {"within": math.inf, "seq_len": MOST}
    for name in names or most:
        given, bound = getattr(args, name), most[name]
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not 1 <= value <= bound:
                wanted = f"at most {bound:,}" if value > bound else "at least 1"
                raise UsageError(f"--{name.replace('_', '-')} must be {wanted}, not {value}")
