"""Triton kernels compile ahead of time without spills, within shared memory, and with tensor cores."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.bench import records
from headcount.models.kernels.triton_configs import TABLE
from tests.models import triton_compile
from tests.models.triton_cases import needs_triton

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_stored_table_is_not_stale():
    """The table takes half an hour to compile, so that it may follow its kernels by a day; its page says so."""
    rows = csv.DictReader((records.shipped() / "kernels.csv").read_text().splitlines())
    assert tuple(rows.fieldnames) == triton_compile.COLUMNS
    assert {row["source"] for row in rows} == {triton_compile.digest()}


def execute(code, **variables):
    """Run ``code`` in a process whose kernels are compiled, not interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | variables
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_triton
@pytest.mark.compiles
def test_every_launch_configuration_is_compiled():
    code = """
from tests.models.triton_launches import launches
found = launches(arch=80) + launches(arch=90)
for kernel, launch in {(x.kernel.__name__, repr(x.launch)) for x in found}: print(kernel, launch)
"""
    found = set(execute(code).splitlines())
    rows = {f"{kernel}_kernel {row.launch!r}" for kernel, rows in TABLE.items() for row in rows}
    assert found == rows


@needs_triton
@pytest.mark.compiles
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_configuration_fits_sm_90(dtype):
    # float32 products use no tensor cores, and some spill
    code = f"""
from tests.models.triton_compile import rows
for row in rows(90, "{dtype}"):
    unfit = not row["blocks"] if "{dtype}" == "float32" else row["verdict"] != "ok"
    if unfit or row["registers"] < 16: print(row)
"""
    assert execute(code) == ""


@needs_triton
@pytest.mark.compiles
def test_compiled_kernels_serve_another_machine(tmp_path):
    # Triton stores paths of its files: a relative folder is found again in another place
    code = """
import os, triton
from tests.models.triton_compile import compile_launches
from tests.models.triton_launches import OTHERS, launches_of
os.chdir(os.environ["PLACE"])
hits = []
triton.knobs.compilation.listener = lambda cache_hit, **rest: hits.append(cache_hit)
made = {binary.hash for _, binary in compile_launches(launches_of(OTHERS[1:], "bfloat16"), 90)}
print(len(made), set(hits))
"""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    filled = execute(code, TRITON_CACHE_DIR="kernels", PLACE=str(here))
    here.rename(there)
    assert execute(code, TRITON_CACHE_DIR="kernels", PLACE=str(there)) == filled.replace("{False}", "{True}") != filled


@needs_triton
def test_float32_products_are_not_rounded_to_tf32():
    # the interpreter ignores the flag
    code = """
from tests.models.triton_launches import OTHERS, calls, launches_of
for dtype in ("float32", "bfloat16"):
    found = launches_of([call for call in calls(dtype) if call.seq_len in (1, 129) or call in OTHERS], dtype)
    found = {(x.kernel.__name__, x.constants["PRECISION"]) for x in found if "PRECISION" in x.constants}
    print(sorted(found))
"""
    kernels = sorted(f"{name}_kernel" for name in triton_compile.PRODUCTS)
    flags = [str([(name, flag) for name in kernels]) for flag in ("ieee", "tf32")]
    assert execute(code).splitlines() == flags


@needs_triton
@pytest.mark.compiles
def test_grids_of_long_batches_are_within_limits():
    code = """
from headcount.models.configs.layers import layer
from tests.models.triton_launches import Call, launches_of
calls = [Call(layer("moa-16K32E256D"), 8, 65537, "both"), Call(layer("moa-16K32E256D"), 17, 65537, "decode")]
calls += [Call(layer(name), 8, 65537, "forward") for name in ("moa-8K8E128D", "moh-32x64-50")]
found = launches_of(calls, "bfloat16")
for launched in found:
    if any(size > 65535 for size in launched.grid[1:]): print(launched.kernel.__name__, launched.grid)
print(len({launched.kernel for launched in found}))
"""
    assert execute(code) == f"{len(TABLE)}\n"
