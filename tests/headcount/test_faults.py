"""A command ends with one line on a full disk, closed streams, an unusual environment or a signal."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import headcount
from headcount.bench import records
from tests.golden.conftest import run

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the faults need Linux")

TABLE = "table moa-table3 --counter closed-form"
JSON = f"{TABLE} --format json"
BUDGET = "budget --macs 700M --limit 3"
MANY = ",".join(map(str, range(1, 29)))
LONG = f"grid --counter=closed-form -o old.txt\tK={MANY} E=41,43 D={MANY} T=7"
"""A command; its last word has spaces and follows a tab."""
PYTHON = (("PYTHONOPTIMIZE", "2"), ("PYTHONWARNINGS", "error"), ("PYTHONSAFEPATH", "1"))
FULL = "No space left on device"


@dataclass(frozen=True)
class Fault:
    """A command, its shell line and environment, and the expected exit code, words on stderr and stdout."""

    command: str
    shell: str = '"$@"'
    env: tuple = ()
    code: int = 0
    words: str = ""
    same: bool = False
    root: bool = False


def read_only(folder: str) -> str:
    """Return a shell line that runs the command where ``folder`` cannot be written."""
    return f'unshare -m sh -c \'mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && "$@"\' sh "$@"'


FILL = "mount -t tmpfs -o size=16k tmpfs disk && echo old > disk/old && (cat /dev/zero > disk/fill 2>/dev/null; :)"
DISK = f'unshare -m sh -c \'{FILL} && "$@"; code=$?; cat disk/old >&2; ls -A disk >&2; exit $code\' sh "$@"'
"""A shell line that runs the command with a full disk mounted at ./disk."""
FAULTS = {
    "stdout full": Fault(TABLE, '"$@" > /dev/full', code=2, words=FULL),
    "reader leaves": Fault(TABLE, 'set -o pipefail; "$@" | head -n 1 > /dev/null'),
    "reader of both reads nothing": Fault(BUDGET, 'set -o pipefail; "$@" 2>&1 | head -c 0'),
    "stdin and stderr closed": Fault(TABLE, '"$@" <&- 2>&-', same=True),
    "stdout closed": Fault(TABLE, '"$@" >&-'),
    "all streams closed": Fault(f"{JSON} -o out.json", '"$@" <&- >&- 2>&-'),
    "disk full": Fault(f"{TABLE} -o disk/old", DISK, code=2, words=FULL, root=True),
    "no file of any size": Fault(
        "count moa-8K8E128D --seq-len 2", 'ulimit -f 0; "$@"', code=3, words="No usable temporary directory"
    ),
    "read-only file": Fault(f"{TABLE} -o disk/x", read_only("disk"), code=2, words="Read-only file system", root=True),
    "read-only checkout": Fault(TABLE, read_only(str(headcount.CHECKOUT)), same=True, root=True),
    "unknown user": Fault(TABLE, 'unshare --user --map-user=54321 "$@"', same=True),
    "no HOME, and options of Python": Fault(JSON, 'env -u HOME -u XDG_CACHE_HOME "$@"', PYTHON, same=True),
    "LC_ALL=C": Fault(JSON, env=(("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")), same=True),
    "ascii": Fault(TABLE, env=(("PYTHONIOENCODING", "ascii"),)),
    "SIGHUP ignored, as under nohup": Fault(TABLE, 'trap "" HUP; "$@" & pid=$!; kill -HUP $pid; wait $pid'),
}


def argv(command: str) -> list[str]:
    head, *last = command.split("\t")
    return [sys.executable, "-m", "headcount", *head.split(), *last]


def environment():
    return {**os.environ, "PYTHONPATH": str(headcount.CHECKOUT), "COLUMNS": "100"}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_one_line(name, tmp_path, monkeypatch):
    fault = FAULTS[name]
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "disk").mkdir()
    if fault.root and (os.getuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode):
        pytest.skip("mounting a disk needs root")
    if "--user" in fault.shell and subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode:
        pytest.skip("this system has no user namespaces")
    line, env = ["bash", "-c", fault.shell, "bash", *argv(fault.command)], {**environment(), **dict(fault.env)}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, timeout=60)
    err = done.stderr.decode()
    assert done.returncode == fault.code, err
    assert fault.words in err and "Traceback" not in err
    if fault.same:
        assert done.stdout.decode() == run(fault.command).out
    if fault.shell == DISK:
        # only the old file and the file that fills the disk are left
        assert err.splitlines()[-3:] == ["old", "fill", "old"]
    assert not list(tmp_path.rglob(".*.tmp"))


def has_rows(folder):
    """Return whether a temporary file in ``folder`` has rows; an empty one only tests whether files can be written."""
    with suppress(FileNotFoundError):
        return any(path.stat().st_size for path in folder.glob(".old.txt.*.tmp"))


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_signal_keeps_the_old_file(number, code, tmp_path):
    old = tmp_path / "old.txt"
    old.write_text("old")
    process = subprocess.Popen(
        argv(LONG), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    while not has_rows(tmp_path) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code and b"Traceback" not in err and old.read_text() == "old"
    assert err.endswith(b"interrupted\n") == (number == signal.SIGINT)
    assert number == signal.SIGKILL or list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("limit", [700, 1100, 1900])
def test_disk_that_fills_up_keeps_records(limit, tmp_path):
    """Stored records stay whole, and no part of the new ones is written."""
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
