"""The process of somebody's code: who is at fault where it ends, and that nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.isolated import child
from headcount.bench.isolated.run import ProcessExited, _run, parse_settings, run_isolated, timeout

ROOT = Path(__file__).parents[3]
FACTORY = """
import os, subprocess, sys, time
import torch

def breaks_us(T=3):
    import headcount.bench.contractions.count as ours
    ours.Kinds = None                      # from here on our own code raises
    return torch.nn.Linear(5, 7), (torch.ones(T, 5),)

def breaks_derive(T=3):
    import headcount.bench.derive.guards as guards, headcount.bench.derive.derivation as ours
    ours._beyond = None
    return torch.nn.Linear(5, 7), (torch.ones(T, 5),)

def raises(T=3): raise KeyError("no such size")
def leaves(T=3): os._exit(5)
def listens(T=3): return torch.nn.Linear(5, 7), (torch.ones(len(sys.stdin.read()) + T, 5),)

def hangs(T=3):
    helper = subprocess.Popen(["sleep", "600"])
    with open(os.environ["MARKER"] + ".part", "w") as marker:
        marker.write(f"{os.getpid()} {helper.pid}")
    os.rename(os.environ["MARKER"] + ".part", os.environ["MARKER"])
    time.sleep(600)
"""
DETAILS = {"settings": {}, "counters": [], "device": None, "allow_uncounted": False, "formulas": {}}
DETAILS |= {"elementwise": "report", "base": {"T": 3}, "step": {"T": 1}}
"""Of a question of either task."""
COMMANDS = {
    "bench.macs": ["-m", "bench.macs", "--counter", "torch", "--module"],
    "bench.derive": ["-m", "bench.derive", "--vars", "T", "--module"],
}


@pytest.fixture
def factory(tmp_path):
    (tmp_path / "factory.py").write_text(FACTORY)
    return f"{tmp_path / 'factory.py'}"


def run(command, spec):
    done = subprocess.run([sys.executable, *COMMANDS[command], spec], capture_output=True, text=True, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


def run_warm(command, spec, capfd):
    """The same where the process of their code is a fork of one that has torch already."""
    _, name, *words = COMMANDS[command]
    code = import_module(f"headcount.{name}.__main__").main([*words, spec])
    return code, *capfd.readouterr()


@pytest.mark.parametrize("command, breaks", [("bench.macs", "breaks_us"), ("bench.derive", "breaks_derive")])
def test_an_error_of_ours_is_ours(command, breaks, factory, warm, capfd):
    spec = f"{factory}:{breaks}"
    code, out, err = run_warm(command, spec, capfd)
    assert (code, out) == (1, "")
    assert "Traceback" in err and "TypeError: 'NoneType' object is not callable" in err
    assert f"{command}: error: {spec}: this program failed, with the traceback above" in err


def test_code_that_ends_its_process_is_said_to(factory):
    with pytest.raises(ProcessExited) as raised:
        run_isolated({"task": "count", "spec": f"{factory}:leaves", **DETAILS})
    assert raised.value.code == 5


def test_their_code_has_no_input(factory):
    code, out, _ = run("bench.macs", f"{factory}:listens")
    assert code == 0 and f"{3 * 5 * 7:,}" in out


@pytest.fixture
def hanging(factory, tmp_path):
    """A command that runs code which never ends: the process, and those of the code and of what it started."""
    (tmp_path / "tmp").mkdir()
    marker = tmp_path / "marker"
    environment = {**os.environ, "MARKER": str(marker), "TMPDIR": str(tmp_path / "tmp")}

    def start(command):
        argv = [sys.executable, *COMMANDS[command], f"{factory}:hangs"]
        process = subprocess.Popen(
            argv, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True
        )
        while not marker.exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        return process, [int(number) for number in marker.read_text().split()]

    yield start
    # torch makes a folder there when it is imported.
    assert not [path for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("torchinductor")]


def gone(number):
    """Whether a process ends within 2 s; one that nobody has waited for yet has ended too."""
    for _ in range(100):
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(number, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_is_one_line_and_leaves_nothing(hanging, command):
    process, started = hanging(command)
    before = time.perf_counter()
    # As a terminal does: to every process of the group in the foreground.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert time.perf_counter() - before < 2
    assert (process.returncode, err) == (130, f"\npython -m {command}: interrupted\n")
    assert all(gone(number) for number in started)


def test_a_command_that_is_killed_takes_their_code_with_it(hanging):
    process, started = hanging("bench.macs")
    process.kill()
    process.communicate(timeout=20)
    assert all(gone(number) for number in started)


def test_settings_are_integers_by_name():
    assert parse_settings(["d=8", "offset=-1"]) == {"d": 8, "offset": -1}
    for wrong in ("d", "d=wide", "2=3", "d=", "d=²", "d=٣", "d=1_0", "d=--3", "d=1" + 5000 * "0"):
        with pytest.raises(UsageError, match=f"^--set {wrong}: with --module it takes NAME=INTEGER$"):
            parse_settings([wrong])


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "an hour"])
def test_a_time_that_is_none_is_refused(limit, monkeypatch):
    monkeypatch.setenv("HEADCOUNT_WITHIN", limit)
    with pytest.raises(UsageError, match=f"^HEADCOUNT_WITHIN='{limit}': a number of seconds above 0 is expected$"):
        timeout()


START = "headcount.bench.isolated.run._START"


def test_checkout_is_not_on_path():
    folders = ["/theirs", str(ROOT.parent), f"{ROOT}/tests", str(ROOT), f"{ROOT}/tests/.."]
    assert child._without_checkout(folders) == folders[:3]


def test_process_is_isolated(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(START, "import json, os, sys; print(os.getpgid(0) - os.getpid(), *sys.argv[1:]); sys.exit(7)")
    with Path("out").open("w") as out:
        assert _run({"spec": "model.py:make"}, out.fileno(), 60) == 7
    assert Path("out").read_text() == '0 {"spec": "model.py:make"}\n'
