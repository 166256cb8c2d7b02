"""The process of somebody's code: who is at fault where it ends, and that nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from headcount.bench.isolated.run import _run

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
def listens(T=3): return torch.nn.Linear(5, 7), (torch.ones(len(sys.stdin.read()) + T, 5),)

def hangs(T=3):
    helper = subprocess.Popen(["sleep", "600"])
    with open(os.environ["MARKER"] + ".part", "w") as marker:
        marker.write(f"{os.getpid()} {helper.pid}")
    os.rename(os.environ["MARKER"] + ".part", os.environ["MARKER"])
    time.sleep(600)
"""
COMMANDS = {
    "bench.macs": ["-m", "bench.macs", "--counter", "torch", "--module"],
    "bench.derive": ["-m", "bench.derive", "--vars", "T", "--module"],
}


@pytest.fixture
def factory(tmp_path):
    (tmp_path / "factory.py").write_text(FACTORY)
    return f"{tmp_path / 'factory.py'}"


def run_warm(command, spec, capfd):
    """Return code and output where the process of user code is a fork of one that has torch already."""
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


def test_their_code_has_no_input(factory):
    done = subprocess.run(
        [sys.executable, *COMMANDS["bench.macs"], f"{factory}:listens"], capture_output=True, cwd=ROOT
    )
    assert done.returncode == 0 and b" 105 " in done.stdout


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
    """Return whether a process has ended, or is a zombie, within 2 s."""
    for _ in range(100):
        if not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_is_one_line_and_leaves_nothing(hanging, command):
    process, started = hanging(command)
    # as a terminal does: to every process of the group in the foreground
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, f"\npython -m {command}: interrupted\n")
    assert all(gone(number) for number in started)


def test_killed_command_leaves_no_process(hanging):
    process, started = hanging("bench.macs")
    process.kill()
    process.communicate(timeout=20)
    assert all(gone(number) for number in started)


START = "headcount.bench.isolated.run._START"


def test_process_is_isolated(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(START, "import json, os, sys; print(os.getpgid(0) - os.getpid(), *sys.argv[1:]); sys.exit(7)")
    with Path("out").open("w") as out:
        assert _run({"spec": "model.py:make"}, out.fileno(), 60) == 7
    assert Path("out").read_text() == '0 {"spec": "model.py:make"}\n'
