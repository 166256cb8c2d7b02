"""Processes that share their imports: what user code does in one of them stays there, however it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.__main__ import main
from headcount.bench.targets import process
from headcount.bench.targets.config_fields import LIBRARIES
from headcount.bench.targets.process import isolated_process, run_isolated, shared_imports
from tests.bench.targets.conftest import LLAMA, write

ROOT = Path(__file__).parents[3]
MODEL = """
import os, sys, torch
def make(): return torch.nn.Linear(7, 5), (torch.ones(3, 7),)
def prints():
    print("printed")
    os.write(1, b"written")
    os.system("echo echoed")
    return make()
def replaces_torch():
    torch.nn.Linear.forward = torch.ones = None
    return torch.nn.Linear(7, 5), (torch.zeros(3, 7),)
def raises(): raise ValueError("no sizes")
def exits(): sys.exit(3)
def ends(): os._exit(7)
def is_killed(): os.kill(os.getpid(), 9)
def runs_out():
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))
    bytearray(2**35)
def makes_without_transformers():
    assert "transformers" not in sys.modules
    return make()
"""
ROWS = {
    "prints": "reproduced",
    "replaces_torch": "'NoneType' object is not callable",
    "raises": "raises raised ValueError: no sizes",
    "exits": "exits raised SystemExit: 3",
    "ends": "ended the process that ran it, with exit code 7",
    "is_killed": "ended the process that ran it, with exit code -9",
    "runs_out": "runs_out raised MemoryError",
    "make": "reproduced",
}
"""The verdict of a row by its function, or the end of its error."""


def process_ids():
    """Return the number of this process and that of the one that started it."""
    return os.getpid(), os.getppid()


def has_part():
    """Return whether a part of a library is imported whose import failed."""
    return "timm.part" in sys.modules


IDS = f"{__name__}:process_ids"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems start new processes")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_rows_of_a_table_end_apart(folder, capfd):
    rows = [f"model.py:{name},macs,105" for name in ROWS]
    (folder / "rows.csv").write_text("\n".join(["target,quantity,printed", *rows]))
    assert main(["table", "rows.csv", "--format", "json"]) == 2
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if "model.py" in line]
    assert len(lines) == sum(text != "reproduced" for text in ROWS.values())
    for row, text in zip(json.loads(out)["tables"][0]["rows"], ROWS.values(), strict=True):
        assert row["verdict"] == text or row["because"].endswith(text)
    assert "Traceback" not in err


def test_processes_of_a_block_are_forks_of_one(folder):
    def ids(spec):
        return run_isolated(IDS, code=[spec])

    with shared_imports():
        with isolated_process(["model.py:make"]) as first, isolated_process(["model.py:make"]) as second:
            pairs = [first(IDS), second(IDS), first(IDS), ids("model.py:prints")]
        with shared_imports():
            pairs.append(ids("moa-8K8E128D"))
        pairs.append(ids("model.py:make"))
    (parent,) = {parent for _, parent in pairs}
    assert len({pid for pid, _ in pairs}) == len(pairs) - 1 and pairs[0] == pairs[2]
    with pytest.raises(ProcessLookupError):
        os.kill(parent, 0)
    # outside of a block each is new
    assert ids("model.py:make")[1] != parent and not process._SERVERS


def test_process_that_cannot_fork_is_replaced_by_new_ones(folder):
    with shared_imports():
        (_, parent) = run_isolated(IDS, code=["model.py:make"])
        with isolated_process(["model.py:make"]) as run:
            os.kill(parent, signal.SIGKILL)
            with pytest.raises(process.ProcessExited):
                # it ends a moment after the process that forked it
                for _ in range(1000):
                    run(IDS)
        assert run_isolated(IDS, code=["model.py:make"])[1] != parent


def test_library_that_fails_halfway_is_imported_anew(tmp_path, monkeypatch):
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("import timm.part\nraise ValueError('halfway')")
    (tmp_path / "timm" / "part.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with shared_imports():
        assert not run_isolated(f"{__name__}:has_part", code=[write(tmp_path, {"architecture": "any"})])


def test_user_code_finds_no_library_imported(folder, tmp_path):
    code = (process.COUNTING,)
    assert process._modules(["model.py:make"]) == process._modules(["moa-8K8E128D"]) == code
    for key, library in LIBRARIES.items():
        config = write(tmp_path, {key: "any"})
        assert {name.partition(".")[0] for name in process._modules([config])} == {"headcount", library}
        assert process._modules([config, "model.py:divide"]) == code
    assert process._modules([write(tmp_path, {}), "config.json"]) == code
    assert process._modules(["hf:gpt2"]) == process._modules([write(tmp_path, LLAMA)])


def test_library_is_none_of_the_current_folder(folder):
    """User code of a row between finds no library imported."""
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    write(folder, LLAMA)
    (folder / "transformers.py").touch()
    weights = 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 32) + 53 * 24
    macs = {T: T * weights + 2 * 2 * T * T * 24 for T in (3, 5)}
    first, last = (f'"config.json,T={T}",macs,{size}' for T, size in macs.items())
    rows = ["target,quantity,printed", first, "model.py:makes_without_transformers,macs,105", last]
    (folder / "rows.csv").write_text("\n".join(rows))
    command = [sys.executable, "-m", "headcount", "table", "rows.csv"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert "3 printed figures: 3 reproduced." in done.stdout, done.stderr
