"""The environment of a measurement, also where packages are missing."""

import os
import subprocess
import sys
from types import SimpleNamespace

import torch

from headcount.bench import env


def test_commit_and_dirty(tmp_path, monkeypatch):
    def git(*words):
        argv = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setattr(env.headcount, "CHECKOUT", tmp_path)
    git("init")
    assert env.commit() == {"commit": None, "dirty": False}
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "one")
    (tmp_path / "another").write_text("a")
    clean = {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert env.commit() == clean
    # git status without --no-optional-locks would write the index
    os.utime(tmp_path / "file", (1, 1))
    index = (tmp_path / ".git" / "index").read_bytes()
    assert env.commit() == clean and (tmp_path / ".git" / "index").read_bytes() == index
    (tmp_path / "file").write_text("b")
    assert env.commit() == clean | {"dirty": True}
    monkeypatch.setattr(env.headcount, "CHECKOUT", None)
    assert env.commit() == {"commit": None, "dirty": None}


def test_gpu_is_recorded_on_cuda_only(monkeypatch):
    """The current GPU is device 1, and pynvml is missing."""
    second = SimpleNamespace(
        name="a GPU", total_memory=7, multi_processor_count=5, major=9, minor=1, uuid="GPU-11", L2_cache_size=3
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {1: second}.get)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    found = env.environment("cuda", ["bench.some", "three"])
    assert (found["device"], found["device_type"], found["command"]) == ("a GPU", "cuda", ["bench.some", "three"])
    expected = {"memory_bytes": 7, "multiprocessors": 5, "l2_bytes": 3, "capability": "9.1"}
    assert found["gpu"].items() >= expected.items() and found["gpu"]["driver"] is None
    # the serial number of a card is private
    assert "GPU-11" not in str(found)
    found = env.environment()
    assert (found["device_type"], found["gpu"], found["tf32"]) == ("cpu", None, None)
