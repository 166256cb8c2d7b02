"""Full disks, closed streams, unusual environments and signals: how a command ends, one line per fault."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import headcount
from headcount.bench import records

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="faults are made with Linux's means")

TABLE = "macs --table moa-table3 --counter closed-form"
JSON = f"{TABLE} --format json"
CSV = f"{TABLE} --format csv"
BUDGET = "budget --macs 700M --limit 3"
MANY = ",".join(map(str, range(1, 29)))
LONG = f"macs --counter closed-form --grid\tK={MANY} E=41,43,47,53 D={MANY} T=7,11"
"""A tab separates its last word, which holds spaces."""
NARROW = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FULL = "No space left on device"


@dataclass(frozen=True)
class Fault:
    """A command, its shell line and environment, and how it ends: exit code, words on stderr, unchanged stdout."""

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
    "stdout full, table": Fault(TABLE, '"$@" > /dev/full', code=2, words=FULL),
    "reader leaves": Fault(TABLE, 'set -o pipefail; "$@" | head -n 1 > /dev/null'),
    "reader of both reads nothing": Fault(BUDGET, 'set -o pipefail; "$@" 2>&1 | head -c 0'),
    "stdin closed": Fault(TABLE, '"$@" <&-', same=True),
    "stdout closed": Fault(TABLE, '"$@" >&-'),
    "stderr closed": Fault(TABLE, '"$@" 2>&-', same=True),
    "all streams closed": Fault(f"{JSON} -o out.json", '"$@" <&- >&- 2>&-'),
    "disk full, table": Fault(f"{TABLE} -o disk/old", DISK, code=2, words=FULL, root=True),
    "read-only file": Fault(f"{TABLE} -o disk/x", read_only("disk"), code=2, words="Read-only file system", root=True),
    "read-only report": Fault(
        "report --only notation --out disk/x", read_only("disk"), code=2, words="Read-only file system", root=True
    ),
    "read-only checkout": Fault(TABLE, read_only(str(headcount.CHECKOUT)), same=True, root=True),
    "no HOME": Fault(TABLE, 'env -u HOME -u XDG_CACHE_HOME "$@"', same=True),
    "unknown user": Fault(TABLE, 'unshare --user --map-user=54321 "$@"', same=True),
    "LC_ALL=C": Fault(JSON, env=(("LC_ALL", "C"), *NARROW.items()), same=True),
    "ascii": Fault(JSON, env=(("PYTHONIOENCODING", "ascii"),), same=True),
    "ascii table": Fault(TABLE, env=(("PYTHONIOENCODING", "ascii"),)),
    "PYTHONOPTIMIZE=2": Fault(CSV, env=(("PYTHONOPTIMIZE", "2"),), same=True),
    "PYTHONWARNINGS=error": Fault(JSON, env=(("PYTHONWARNINGS", "error"),), same=True),
    "PYTHONSAFEPATH=1": Fault(JSON, env=(("PYTHONSAFEPATH", "1"),), same=True),
    "SIGHUP ignored, as under nohup": Fault(TABLE, 'trap "" HUP; "$@" & pid=$!; kill -HUP $pid; wait $pid'),
}  # fmt: skip


def argv(command: str) -> list[str]:
    head, *last = command.split("\t")
    return [sys.executable, "-m", "headcount", *head.split(), *last]


def environment():
    return {**os.environ, "PYTHONPATH": str(headcount.CHECKOUT), "COLUMNS": "100"}


@cache
def output_without_fault(command):
    return subprocess.run(argv(command), env=environment(), capture_output=True).stdout


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name, tmp_path):
    fault = FAULTS[name]
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
        assert done.stdout == output_without_fault(fault.command)
    if fault.shell == DISK:
        # the old file and the file that fills the disk are all that is left
        assert err.splitlines()[-3:] == ["old", "fill", "old"]
    assert not list(tmp_path.rglob(".*.tmp"))


def test_interrupt_is_one_line(tmp_path):
    process = start(LONG, tmp_path)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)
    assert err.decode().strip().splitlines()[-1].endswith("interrupted") and b"Traceback" not in err


def test_sigterm_leaves_nothing(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    process = start(f"{LONG}\t-o\told.txt", tmp_path)
    while not list(tmp_path.glob(".old.txt.*.tmp")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.05)
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143 and b"Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"] and (tmp_path / "old.txt").read_text() == "old"


def test_killed_writer_leaves_complete_file(tmp_path):
    old = tmp_path / "old"
    complete = subprocess.run(argv(JSON), cwd=tmp_path, env=environment(), capture_output=True).stdout
    for after in (0.1, 0.3, 0.5, 0.7):
        old.write_bytes(b"old\n")
        process = start(f"{JSON} -o old", tmp_path)
        time.sleep(after)
        process.kill()
        process.communicate()
        assert old.read_bytes() in (b"old\n", complete)


@pytest.mark.parametrize("limit", [700, 1100, 1900])
def test_disk_that_fills_up_keeps_records(limit, tmp_path):
    """Records before the one that does not fit stay whole, and no part of the new ones is left."""
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


def start(command, folder):
    """Start a command with the default handler of SIGINT."""
    return subprocess.Popen(
        argv(command), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
