"""Triton kernels compile ahead of time without spills, within shared memory, and with tensor cores."""

import csv
import os
import subprocess
import sys
from pathlib import Path

from headcount.bench import records
from headcount.models.kernels.triton_configs import INTERPRETED, TABLE
from tests.models import triton_compile
from tests.models.triton_cases import needs_triton

ROOT = Path(__file__).parents[2]


def test_stored_table_is_not_stale():
    rows = csv.DictReader((records.shipped() / "kernels.csv").read_text().splitlines())
    assert tuple(rows.fieldnames) == triton_compile.COLUMNS
    assert {row["source"] for row in rows} == {triton_compile.digest()}


def outside(code):
    """Run ``code`` in a process whose kernels are compiled, not interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_triton
def test_every_launch_configuration_is_compiled():
    code = """
from tests.models.triton_launches import launches
for kernel, launch in {(x.kernel.__name__, repr(x.launch)) for x in launches()}: print(kernel, launch)
"""
    found = set(outside(code).splitlines())
    rows = {f"{kernel}_kernel {row.launch!r}" for kernel, rows in TABLE.items() for row in rows}
    assert found == rows and set(INTERPRETED) == set(TABLE)


@needs_triton
def test_every_configuration_fits_sm_90():
    code = """
from tests.models.triton_compile import compiled, sources
for source in sources():
    row = compiled(source, 90)
    if row["verdict"] != "ok" or row["registers"] <= 16: print(row)
"""
    assert outside(code) == ""


def test_compile_command_names_its_replacement():
    done = subprocess.run(
        [sys.executable, "-m", "bench.latency.compile", "--arch", "90"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "") and "make kernels" in done.stderr
