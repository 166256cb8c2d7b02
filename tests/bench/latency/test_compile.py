"""What a compiled kernel is judged by; which launches are compiled; one of them compiled."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.bench.errors import EnvironmentMissing
from headcount.bench.latency import compile as command
from headcount.models.kernels.triton_configs import INTERPRETED, TABLE
from tests.models.triton_cases import needs_triton

ROW = {"kernel": "expert", "spills": 0, "stack_bytes": 0, "tensor": 4, "blocks": 2}


@pytest.mark.parametrize(
    "arch, registers, shared_kib, num_warps, blocks",
    [
        (90, 128, 96, 4, 2),  # shared memory: 228 // 97
        (90, 255, 0, 8, 1),  # registers: 65536 // (256 * 256)
        (90, 209, 0, 8, 1),  # in units of 8: 216
        (80, 128, 96, 4, 1),
        (90, 16, 0, 4, 16),  # threads
        (90, 16, 0, 1, 32),  # blocks
        (80, 128, 164, 4, 0),  # more than there is
    ],
)
def test_blocks_of_a_multiprocessor(arch, registers, shared_kib, num_warps, blocks):
    assert command.blocks_per_multiprocessor(arch, registers, shared_kib * 1024, num_warps) == blocks


@pytest.mark.parametrize(
    "change, faults",
    [
        ({}, []),
        ({"spills": 2}, ["spills"]),
        ({"stack_bytes": 8}, ["spills"]),
        ({"tensor": 0}, ["no tensor cores"]),
        ({"tensor": 0, "kernel": "slots"}, []),
        ({"blocks": 0}, ["does not fit"]),
    ],
)
def test_what_makes_a_configuration_unfit(change, faults):
    assert list(command.faults(ROW | change)) == faults


def test_the_committed_table_is_of_these_kernels():
    table = Path(command.__file__).parents[2] / "reports" / "records" / "kernels.csv"
    assert {row["source"] for row in csv.DictReader(table.read_text().splitlines())} == {command.digest()}


def test_without_triton_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentMissing, match=r"pip install 'headcount\[gpu\]'") as raised:
        command.main([])
    assert raised.value.exit_code == 3


@pytest.mark.parametrize(
    "verdicts, code", [(["ok", "ok"], 0), (["ok", "spills"], 1), (["spills, does not fit", "ok"], 1)]
)
def test_an_unfit_configuration_fails(verdicts, code, monkeypatch, capsys):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "triton_interprets", lambda: False)
    sources = [command.Source("expert", (), (("BM", size),), (), 4, 3) for size in (16, 64)]
    monkeypatch.setattr(command, "sources", lambda: sources)

    def compiled(source, arch):
        verdict = verdicts[sources.index(source)] if arch == 90 else "spills"
        row = ROW | dict(shape=source.shape, arch=arch, registers=9, shared_bytes=0, wide=0, verdict=verdict)
        return row | dict(source="0123456789ab", triton="3.9.0")

    monkeypatch.setattr(command, "compiled", compiled)
    assert command.main(["--arch", "80", "90", "--format", "csv"]) == code
    out, err = capsys.readouterr()
    assert out.count("\nexpert,") == 4 and f"{verdicts.count('ok')} of 2 configurations" in err


def outside(code):
    """Run ``code`` in a process whose kernels are compiled, not interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_triton
def test_every_launch_of_the_table_is_compiled():
    code = """
from headcount.bench.latency.launches import launches
for kernel, launch in {(x.kernel.__name__, repr(x.launch)) for x in launches()}: print(kernel, launch)
"""
    found = set(outside(code).splitlines())
    rows = {f"{kernel}_kernel {row.launch!r}" for kernel, rows in TABLE.items() for row in rows}
    assert found == rows and set(INTERPRETED) == set(TABLE)


@needs_triton
def test_a_kernel_is_compiled_without_a_gpu():
    code = """
from headcount.bench.latency.compile import compiled, sources
source = next(s for s in sources() if s.kernel == "expert" and "BM16 " in s.shape)
row = compiled(source, 90)
print(row["verdict"], row["registers"] > 16, row["tensor"] > 0, row["wide"] > 0, row["shared_bytes"] > 0)
"""
    assert outside(code).split() == ["ok", "True", "True", "True", "True"]
