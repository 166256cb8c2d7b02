"""The process that runs user code: its errors, its isolation, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_start_method
from pathlib import Path

import psutil
import pytest

from headcount.bench.commands.count import main
from headcount.bench.counting.count import count
from headcount.bench.errors import EnvironmentMissing, UsageError
from headcount.bench.targets.process import run_isolated
from headcount.bench.targets.target import Target

ROOT = Path(__file__).parents[3]
FACTORY = """
import os, sys, time
import torch

def breaks_headcount(T=3):
    import headcount.bench.contractions.classify as ours
    ours.Kinds = None                      # from here on headcount's own code raises
    return torch.nn.Linear(5, 7), (torch.ones(T, 5),)

def warns(T=3):
    print("a warning", file=sys.stderr, flush=True)
    return torch.nn.Linear(5, 7), (torch.ones(T, 5),)

def warns_and_fails(): return warns()[0], 1 // 0
def warns_and_ends(): return warns(), os._exit(7)
def is_no_module(): return warns()[1]
def ends_with_70(): os._exit(70)
class Holds(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.depth = depth
    def forward(self, x):
        out = [x]
        for _ in range(self.depth):
            out = [out]
        return out
def replaces_open(T=3):
    import builtins
    builtins.open = None
    return torch.nn.Linear(5, 7), (torch.ones(T, 5),)
def deep(T=3): return Holds(3000), (torch.ones(T, 5),)

def leaves_behind(T=3):
    import atexit, concurrent.futures, multiprocessing, threading
    threading.Thread(target=time.sleep, args=(600,)).start()
    threading.Timer(600, print).start()
    concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 600)
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
    atexit.register(time.sleep, 600)
    os.fork()
    return torch.nn.Linear(5, 7), (torch.ones(len(sys.stdin.read()) + T, 5),)
"""


@pytest.fixture
def factory(tmp_path):
    (tmp_path / "factory.py").write_text(FACTORY)
    return f"{tmp_path / 'factory.py'}"


@pytest.mark.parametrize("target", ["moa-8K8E128D", "factory.py:warns"])
def test_function_of_plan_imports_from_its_folder(target, factory, tmp_path, monkeypatch, capfd):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "their_plan_sizes.py").write_text("RANKS = 2")
    (folder / "plan.py").write_text("from their_plan_sizes import RANKS\ndef divide(model): return model")
    monkeypatch.chdir(tmp_path)
    assert main([target, "--ranks", "2", "--plan", "theirs/plan.py:divide"]) == 0, capfd.readouterr().err


def test_internal_error_exits_1_with_traceback(factory, capfd):
    spec = f"{factory}:breaks_headcount"
    assert main([spec, "--counter", "torch"]) == 1
    out, err = capfd.readouterr()
    assert not out and "TypeError: 'NoneType' object is not callable" in err
    assert err.splitlines()[-1].startswith(f"headcount count: error: {spec}: ")


def test_stderr_of_user_code_is_printed_on_failure_only(factory, capfd):
    for function, code in (("warns", 0), ("warns_and_fails", 2), ("warns_and_ends", 2), ("is_no_module", 2)):
        assert main([f"{factory}:{function}", "--counter", "torch"]) == code
        lines = capfd.readouterr().err.splitlines()
        assert ("a warning" in lines) == (function in ("warns_and_fails", "warns_and_ends")), function
    # is_no_module: headcount's own error, in one line
    assert len(lines) == 1


@pytest.mark.parametrize(("function", "words"), [
    ("ends_with_70", "ended the process that ran it, with exit code 70"),
    ("replaces_open", "it replaces open of Python's builtins, which a count needs"),
    ("deep", "inputs or results contain themselves, or are nested deeper than"),
])  # fmt: skip
def test_end_of_process_is_a_user_error(function, words, factory, capfd):
    assert main([f"{factory}:{function}", "--counter", "torch"]) == 2
    err = capfd.readouterr().err
    assert words in err and "Traceback" not in err


def test_answer_ends_process(factory, tmp_path):
    """Threads and processes of 600 s are left, a fork gives no second answer, and stdin is empty.

    The script has no guard, and runs once.
    """
    script = tmp_path / "script.py"
    words = ["count", f"{factory}:leaves_behind", "--counter", "torch", "--brief"]
    script.write_text(f"print('once')\nfrom headcount.__main__ import main\nraise SystemExit(main({words}))\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("once") == 1 and done.stdout.count("105 MACs") == 1


HANGS = """
import os, pathlib, subprocess, time
def make():
    helper = subprocess.Popen(["sleep", "600"])
    part = pathlib.Path(os.environ["MARKER"] + ".part")
    part.write_text(" ".join(map(str, (os.getpid(), helper.pid))))
    part.rename(os.environ["MARKER"])
    time.sleep(600)
"""


@pytest.mark.parametrize("command", ["count", "table"])
def test_interrupt_ends_all_processes(command, tmp_path):
    """Ctrl-C reaches every process of the foreground group; the rows of a table are forks."""
    temporary, marker = tmp_path / "tmp", tmp_path / "marker"
    temporary.mkdir()
    (tmp_path / "hangs.py").write_text(HANGS)
    (tmp_path / "rows.csv").write_text("target,quantity,printed\nhangs.py:make,macs,1\n")
    argument = {"count": "hangs.py:make", "table": "rows.csv"}[command]
    env = {**os.environ, "MARKER": str(marker), "TMPDIR": str(temporary)}
    argv = [sys.executable, "-m", "headcount", command, str(tmp_path / argument)]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env, start_new_session=True)
    while not marker.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, f"\nheadcount {command}: interrupted\n")
    assert not list(temporary.iterdir())
    started, deadline = {int(number) for number in marker.read_text().split()}, time.monotonic() + 5
    while any(
        one.pid in started and one.info["status"] != psutil.STATUS_ZOMBIE for one in psutil.process_iter(["status"])
    ):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def facts():
    """Return what a process of user code finds."""
    safe = os.environ.get("PYTHONSAFEPATH")
    return os.getpgid(0) - os.getpid(), sys.argv[1:], sys.stdin.read(), safe, get_start_method(allow_none=True)


def test_process_is_isolated(monkeypatch, tmp_path, cold):
    """Python's own modules are not those of the current folder, even while the process starts."""
    for name in ("json", "queue", "runpy", "signal", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    assert run_isolated(f"{__name__}:facts", code=["moa-8K8E128D"]) == (0, [], "", None, None)


def test_saved_models_have_a_loader():
    with pytest.raises(UsageError, match="'net.pt2'.* saved model; a function that loads it is a target: FILE.py:make"):
        run_isolated(f"{__name__}:facts", code=["net.pt2"])


def test_a_kernel_of_triton_needs_a_gpu(tmp_path, monkeypatch):
    """Triton says that there are 0 active drivers; the exit code is that of an environment that cannot."""
    (tmp_path / "launched.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        raise RuntimeError('0 active drivers ([]). There should only be one.')\n"
        "def make():\n    return Net(), (torch.ones(3),)\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentMissing, match="kernel of Triton, which needs a GPU") as refused:
        count(Target("launched.py:make"))
    assert "\n" not in str(refused.value) and refused.value.exit_code == 3
