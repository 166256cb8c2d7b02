"""Faults that a user meets: a full disk, a reader that leaves, Ctrl-C, a missing package, a terminal without Unicode.

Each ends with at most one line, and leaves files as they were.
"""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import headcount
from headcount.bench import records

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the faults need Linux")

TABLE = "table moa-table3 --counter closed-form"
FAULTS = {
    "stdout full": (TABLE, '"$@" > /dev/full', 2, "No space left on device"),
    "disk full": (f"{TABLE} -o old.txt", 'ulimit -f 0; "$@"', 2, "File too large"),
    "reader leaves": (TABLE, 'set -o pipefail; "$@" | head -n 1 > /dev/null', 0, ""),
    "no Unicode": (TABLE, 'PYTHONIOENCODING=ascii "$@"', 0, ""),
    "no torch": ("count moa-8K8E128D --seq-len 2", '"$@"', 3, "torch is missing: pip install torch;"),
}
"""Command, its shell line, exit code and words on standard error."""


def start(command, folder, shell='"$@"', **options):
    """Start ``headcount command`` in a shell line."""
    words = [sys.executable, "-m", "headcount", *shlex.split(command)]
    env = {**os.environ, "PYTHONPATH": f"{folder}:{headcount.CHECKOUT}", "COLUMNS": "100"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(["bash", "-c", shell, "bash", *words], cwd=folder, env=env, **pipes, **options)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_one_line(name, tmp_path):
    command, shell, code, words = FAULTS[name]
    (tmp_path / "old.txt").write_text("old")
    if name == "no torch":
        (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None\n")
    before = {path.name for path in tmp_path.iterdir()}
    process = start(command, tmp_path, shell)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert words in err and "Traceback" not in err and (not code or err.count("\n") == 1)
    assert (tmp_path / "old.txt").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


def has_rows(folder):
    """Return whether a temporary file has rows; an empty one only tests whether files can be written."""
    with suppress(FileNotFoundError):
        return any(path.stat().st_size for path in folder.glob(".old.txt.*.tmp"))


def test_interrupt_keeps_the_old_file(tmp_path):
    old, sizes = tmp_path / "old.txt", ",".join(map(str, range(1, 29)))
    old.write_text("old")
    command = f"grid 'K={sizes} E=41,43 D={sizes} T=7' --counter=closed-form -o old.txt"
    # a shell's background job ignores Ctrl-C
    heeds = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    process = start(command, tmp_path, 'exec "$@"', **heeds)
    while process.poll() is None and not has_rows(tmp_path):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.splitlines()[-1]) == (130, "headcount grid: interrupted") and "Traceback" not in err
    assert list(tmp_path.iterdir()) == [old] and old.read_text() == "old"


def test_disk_that_fills_up_keeps_records(tmp_path):
    """Stored records stay whole, and no part of the new ones is written."""
    path = tmp_path / "r.jsonl"
    records.append(path, {"i": 0, "text": "x" * 600})
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1100, limits[1]))
        with pytest.raises(records.UsageError, match="File too large"):
            records.append(path, *({"i": i, "text": "x" * 600} for i in (1, 2, 3)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [json.loads(line)["i"] for line in path.read_text().splitlines()] == [0]
