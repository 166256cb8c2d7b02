"""A command ends with one line where its n-th write or process start fails, or where a package is missing.

The command runs in a fork of this process, which has imported it. FAULTS=all in the environment (make nightly) adds
slow commands, full disks, later starts, user code in separate processes, and every package.
"""

import _posixsubprocess
import errno
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path

import pytest

from headcount import CHECKOUT
from headcount.__main__ import main
from headcount.bench.counting import case
from headcount.bench.targets import process as of_targets
from tests.golden.conftest import run
from tests.headcount.test_dependencies import CORE

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the faults need Linux")

ALL = os.environ.get("FAULTS") == "all"
TIMES = ("old.jsonl", "latency.jsonl", "env.json")
"""JSON files that state the time of the run."""
MARK = "HEADCOUNT_FAULT"
"""Environment variable of every process of a run."""
TIMED = "latency --layer mha-base --implementation reference --seq-len 5 --tokens 5 --blocks 1 --pass forward"
TIMED += " --hardware h200"
QUICK = {
    "table": "table moa-table3 --counter closed-form --format json -o old.json",
    "count": "count model.py:make --format json -o old.json",
    "lock": "lock model.py:make -o old.lock",
    "lock-update": "lock --update old.lock",
    "latency": f"{TIMED} --json old.jsonl",
}
SLOW = {
    "grid": "grid 'K=1,2 E=2,3 D=7 T=13,17' --format json -o old.json",
    "latency-folder": "latency --quick --blocks 1 --hardware h200 --out-dir old",
}
COMMANDS = QUICK | SLOW
STARTS = ("count", "lock", "lock-update")
"""Commands that fail where their first process cannot be started."""
NEW = of_targets.CONTEXT
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NO_FILE = ("os.rename", "os.mkdir")
"""Audit events that write without opening a file. Removal is not among them: it works on a full disk."""


@dataclass(frozen=True)
class Ended:
    code: int
    err: str
    happened: bool


def fail_write(n, happened):
    """Raise ENOSPC in the ``n``-th call that opens a file for writing, renames one or makes a folder."""
    numbers = count(1)

    def hook(event, args):
        path = args[0] if event == "open" and args[2] & WRITES or event in NO_FILE else None
        if isinstance(path, str) and path != os.devnull and next(numbers) == n:
            happened()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    sys.addaudithook(hook)


def fail_start(n, happened):
    """Raise EAGAIN in the ``n``-th start of a process."""
    numbers, start = count(1), _posixsubprocess.fork_exec
    of_targets.CONTEXT = NEW

    def fork_exec(*args):
        if next(numbers) == n:
            happened()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start(*args)

    subprocess._fork_exec = _posixsubprocess.fork_exec = fork_exec


def fill_disk(n, happened):
    """Limit the files of this process and its children to 4^(n + 2) bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 ** (n + 2),) * 2)
    if n < 10:
        happened()


def run_with(fault, n, line):
    """Run a command in a fork with the ``n``-th ``fault``, and wait for all processes that hold its stderr."""
    (texts, err), (signs, sign) = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        try:
            os.dup2(err, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
            os.environ[MARK] = str(os.getppid())
            case._COUNTS.clear()
            fault(n, lambda: os.write(sign, b"x"))
            code = main(shlex.split(line))
            sys.stderr.flush()
        except BaseException as error:
            code = f"{error!r}"[:99]
            os.write(2, f"Traceback of {code}\n".encode())
        os._exit(code if isinstance(code, int) else 70)
    os.close(err)
    os.close(sign)
    with open(texts) as text, open(signs) as happened:
        found = text.read()
        return Ended(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), found, happened.read() != "")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_left(process):
    """Return whether a process belongs to this run, by the variable in its environment."""
    with suppress(OSError):
        return f"{MARK}={os.getpid()}".encode() in (process / "environ").read_bytes()
    return False


def check(ended, before, after, folder):
    """Assert that stderr has at most two lines, no process is left, and each file is as before or complete.

    ``after`` are the files of a complete run. Lines with names of written files do not count.
    """
    assert ended.code in ((0, 2, 3) if ended.happened else (0,)), ended
    lines = [line for line in ended.err.splitlines() if not line.startswith("wrote ")]
    assert len(lines) <= 2 and "Traceback" not in ended.err, ended
    found = contents(folder)
    for path in before.keys() | found.keys():
        old = before.get(path, b"")
        if path.name in TIMES:
            whole = found.get(path, b"")
            assert whole.startswith(old)
            for line in [whole] if path.suffix == ".json" else whole.splitlines():
                json.loads(line)
        else:
            assert found.get(path) in (before.get(path), *([after[path]] if path in after else [])), path
    assert ended.code or found.keys() == after.keys()
    deadline = time.monotonic() + 10
    while any(map(is_left, Path("/proc").glob("[0-9]*"))):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.02)


@pytest.fixture
def work(folder, forks, monkeypatch):
    """Enter the folder of files, with old outputs and a folder for temporary files."""
    for name in ("old", "temporary"):
        (folder / name).mkdir()
    shutil.copy("log.jsonl", "old.json")
    shutil.copy("a.jsonl", "old.jsonl")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    monkeypatch.setenv("TMPDIR", str(folder / "temporary"))
    monkeypatch.setattr("headcount.bench.latency.timing.WARM_UP_S", {"cpu": 0.0})
    return folder


# count writes its file as table, and runs user code as lock
FAULTS = [(name, fail_write) for name in QUICK if name != "count"] + [(name, fail_start) for name in STARTS]
if ALL:
    FAULTS = list(product(COMMANDS, (fail_write, fail_start, fill_disk)))


@pytest.mark.parametrize("name, fault", FAULTS)
def test_nth_fault_is_one_line(name, fault, work, request):
    if not ALL:
        request.getfixturevalue("warm")
    if name == "lock-update":
        assert run("lock model.py:make -o old.lock").code == 0
    before, only_first = contents(work), fault is fail_start and not ALL
    assert only_first or run(COMMANDS[name]).code == 0
    after = contents(work)
    for n in count(1):
        for path in contents(work).keys() - before.keys():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
        ended = run_with(fault, n, COMMANDS[name])
        check(ended, before, after, work)
        if only_first or not ended.happened:
            assert ended.happened == only_first
            break


@pytest.mark.parametrize("name", sorted(QUICK.keys() - {"lock-update"}) if ALL else ["count", "latency"])
@pytest.mark.parametrize("package", sorted(CORE) if ALL else ["torch"])
def test_missing_package_is_one_line(package, name, work, tmp_path):
    """The package is also missing in the processes that a command starts."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None\n")
    before = contents(work)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{CHECKOUT}", "PYTHONDONTWRITEBYTECODE": "1"}
    line = [sys.executable, "-m", "headcount", *shlex.split(COMMANDS[name])]
    done = subprocess.run(line, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 2, done.stderr
    if name == "latency" and done.returncode == 1:
        # the row of a layer states why it was not timed
        assert f"ModuleNotFoundError: import of {package} halted" in done.stderr
    else:
        assert done.returncode == 0 or (done.returncode == 3 and f"this needs {package}" in done.stderr), done.stderr
        assert done.returncode == 0 or contents(work) == before
