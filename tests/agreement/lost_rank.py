"""``python -m tests.agreement.lost_rank FAULT ...``: run ``latency --plan`` with a rank 1 that hangs or dies.

test_processes.py starts it on several ranks. FAULT is a key of FAULTS, and the other arguments are those of latency.
"""

import os
import signal
import sys
import time

from headcount.bench.latency.__main__ import main
from headcount.bench.latency.sharded_step import ShardedStep

FAULTS = {"hangs": lambda: time.sleep(600), "dies": lambda: os.kill(os.getpid(), signal.SIGKILL)}


def fail_rank_1(fault):
    """Replace the sum of gradients by one that fails first on rank 1."""
    run = ShardedStep._sum_gradients

    def fail_first(*args):
        if os.environ["RANK"] == "1":
            FAULTS[fault]()
        return run(*args)

    ShardedStep._sum_gradients = fail_first


if __name__ == "__main__":
    fail_rank_1(sys.argv.pop(1))
    raise SystemExit(main(sys.argv[1:], "headcount latency"))
