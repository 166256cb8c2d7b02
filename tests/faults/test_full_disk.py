"""Full disks: what was there stays, nothing half is left, one line."""

import json
import os
import resource
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from headcount.bench import records
from tests.faults.conftest import CHEAP_WRITING, DEAR, OLD, SAY, WRITING, choose, program


@contextmanager
def small_disk(place, rest):
    """A disk of the place's own that has ``rest`` bytes left; skipped where nobody may mount one."""
    disk = place.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        for name in ("old", "old.svg"):
            (disk / name).write_text(OLD)
        with (disk / "fill").open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(4096))
        if rest:
            os.truncate(disk / "fill", max(0, (disk / "fill").stat().st_size - rest))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("rest", [0, 4096], ids=["no byte left", "4 KiB left"])
@pytest.mark.fault(
    "a disk without room, before and while a file is written",
    "exit code 2 and one line, or 0 where it fitted; the older file stays whole, nothing half or temporary is left",
)
@choose(*CHEAP_WRITING, dear=[name for name in WRITING if name not in CHEAP_WRITING])
def test_a_full_disk_leaves_what_was_there(command, rest, place):
    with small_disk(place, rest) as disk:
        before = {path.name for path in disk.iterdir()}
        done = place.run(WRITING[command])
        made = {path.name for path in disk.rglob("*") if path.is_file()} - before
        old = [(disk / name).read_text() for name in ("old", "old.svg")]
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    if done.returncode:
        assert (done.returncode, len(errors)) == (2, 1), done.stderr
        assert "No space left on device" in errors[0] and "Traceback" not in done.stderr
        assert old == [OLD, OLD]
    assert not [name for name in made if name.endswith(".tmp")]


@pytest.mark.fault("stdout is a device that is always full", "exit code 2 and one line that says so")
@choose(*SAY, dear=[name for name in DEAR])
def test_a_full_stdout_is_one_line(command, place):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with open("/dev/full", "w") as full:
        done = place.run(command, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert (done.returncode, errors) == (2, [f"{program(command)}: error: No space left on device"])
    assert "Traceback" not in done.stderr


@pytest.mark.fault(
    "a disk that fills up while a cell's records are added", "the records before it stay, whole, and none of the cell's"
)
@pytest.mark.parametrize("limit", range(700, 2300, 100))
def test_records_are_kept_when_a_disk_fills_up(limit, tmp_path):
    path = tmp_path / "r.jsonl"
    records.append(path, {"i": 0, "text": "x" * 600})
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        with pytest.raises(records.UsageError, match="File too large"):
            records.append(path, *({"i": i, "text": "x" * 600} for i in (1, 2, 3)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [json.loads(line)["i"] for line in path.read_text().splitlines()] == [0]
