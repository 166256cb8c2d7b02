"""The numbers of the clock's command lines, each with the least and the most that it may be."""

import argparse
import math
import os

from headcount.bench.errors import UsageError

MOST, MOST_BLOCKS = 2**31 - 1, 10_000
"""Of a length or a batch, and of blocks: beyond these nothing runs, or ends."""


def check(args: argparse.Namespace, *names: str) -> None:
    """UsageError naming the first option, of ``names`` or of all, that was given below 1 or above its most."""
    most = {"tokens": MOST, "batch_size": MOST, "blocks": MOST_BLOCKS, "threads": os.cpu_count() or 1}
    most |= {"within": math.inf, "seq_len": MOST}
    for name in names or most:
        given, bound = getattr(args, name), most[name]
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not 1 <= value <= bound:
                wanted = f"at most {bound:,}" if value > bound else "at least 1"
                raise UsageError(f"--{name.replace('_', '-')} must be {wanted}, not {value}")
