"""Benchmark the wall time of commands, including start-up."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*argv: str) -> dict[str, float | str]:
    """Run bench.macs in a new process; return the seconds to the first row, and stderr."""
    command = [sys.executable, "-u", "-m", "bench.macs", *argv]
    started = time.perf_counter()
    first_row = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        for line in process.stdout:
            if first_row is None and line.startswith("Transformer base"):
                first_row = time.perf_counter() - started
        errors = process.stderr.read().strip()
    assert process.returncode == 0, errors
    return {"first_row_s": first_row, "stderr": errors}


def test_three_tables_with_four_counters(benchmark):
    found = benchmark.pedantic(run, rounds=3, iterations=1)
    benchmark.extra_info.update(found, command="python -m bench.macs")


def test_three_tables_in_closed_form(benchmark):
    found = benchmark.pedantic(run, args=("--counter", "closed-form"), rounds=5, iterations=1, warmup_rounds=1)
    benchmark.extra_info.update(found, command="python -m bench.macs --counter closed-form")


def check_report() -> None:
    """Run ``reports --check``, which must succeed."""
    subprocess.run([sys.executable, "-m", "reports", "--check"], check=True, cwd=ROOT)


def test_the_check_of_the_report(benchmark):
    benchmark.pedantic(check_report, rounds=3, iterations=1, warmup_rounds=1)
    benchmark.extra_info.update(command="python -m reports --check")


def run_suite() -> None:
    """Run ``make test`` with shape checks."""
    env = {name: value for name, value in os.environ.items() if name != "JAXTYPING_DISABLE"}
    subprocess.run(["make", "test"], check=True, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)


def test_the_suite(benchmark):
    benchmark.pedantic(run_suite, rounds=1, iterations=1)
    benchmark.extra_info.update(command="make test")
