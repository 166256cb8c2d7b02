"""Run by several processes, ``latency --plan`` with a rank 1 that ``hangs`` or ``dies`` in its step."""

import os
import signal
import sys
import time

from headcount.bench.latency.__main__ import main
from headcount.bench.latency.sharded_step import ShardedStep

FAULTS = {"hangs": lambda: time.sleep(600), "dies": lambda: os.kill(os.getpid(), signal.SIGKILL)}


def lose(fault):
    """Let rank 1 fail before it sums gradients."""
    run = ShardedStep._sum_gradients

    def changed(*args):
        if os.environ["RANK"] == "1":
            FAULTS[fault]()
        return run(*args)

    ShardedStep._sum_gradients = changed


if __name__ == "__main__":
    lose(sys.argv.pop(1))
    raise SystemExit(main(sys.argv[1:], "headcount latency"))
