"""Limits on the wall time of commands, including start-up: the best of three runs must be below the limit.

The limits depend on the machine's load, so these are benchmarks and not tests.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMITS = {
    "a million candidates": (3, "budget --macs 1.2G --all-integers --range K=1:64 E=1:128 D=8:256"),
    "millions of candidates of MoH": (3, "budget --attention moh --macs 350G --all-integers"),
    "MoA derived in six sizes": (20, "derive --preset moa-8K8E128D --vars T,S,K,E,D,d_model"),
    "8B Llama, our count": (10, "count llama3-8b --seq-len 8192"),
    "8B Llama, every counter": (40, "count llama3-8b --seq-len 8192 --counter all"),
    "the largest MoH-ViT, every counter": (10, "count moh-vit-b-50 --counter all"),
    "JetMoE-8B, every counter": (10, "count jetmoe-8b --seq-len 4096 --counter all"),
    "MoH-LLaMA3-8B, ptflops": (15, "table moh-llama3 --counter ptflops-pytorch"),
    "every table in closed form": (1, "table --counter closed-form"),
}


def run(command: str) -> str:
    """Run the command and return its stderr."""
    argv = [sys.executable, "-m", "headcount", *command.split()]
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True).stderr


@pytest.mark.parametrize("name", LIMITS)
def test_time_is_below_limit(benchmark, name):
    seconds, command = LIMITS[name]
    errors = benchmark.pedantic(run, args=(command,), rounds=3, iterations=1)
    assert benchmark.stats.stats.min < seconds
    peak = re.search(r"peak memory ([\d.]+) GiB", errors)
    assert peak is None or float(peak[1]) < 1.5
