"""The environment of a measurement, also where packages are missing."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
import torch

from headcount.bench import env
from headcount.bench.errors import EnvironmentMissing


def test_peak_memory_on_windows(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=5, peak_wset=7 * 2**28))
    monkeypatch.setattr(psutil, "Process", lambda: process)
    assert (env.peak_memory_bytes(), env.peak_memory()) == (7 * 2**28, ", peak memory 1.75 GiB")


def test_cpu_name_on_linux(monkeypatch):
    lines = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9\nprocessor\t: 1\nmodel name\t: other\n"
    monkeypatch.setattr(Path, "read_text", lambda path: lines if str(path) == "/proc/cpuinfo" else "")
    assert env._cpu() == "AMD EPYC 9"
    monkeypatch.setattr(Path, "read_text", lambda path: "processor: 0")
    assert env._cpu() is None


def test_missing_matplotlib_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentMissing, match=r"^a plot needs matplotlib; pip install 'headcount\[report\]'$"):
        env.drawing()


def test_machine():
    found = env.machine()
    assert (found["memory_bytes"], found["cores"]) == (psutil.virtual_memory().total, os.cpu_count())
    assert found["python"] == ".".join(map(str, sys.version_info[:3])) and "torch" in found["packages"]


def test_commit_and_dirty(tmp_path, monkeypatch):
    def git(*words):
        argv = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setattr(env.headcount, "CHECKOUT", tmp_path)
    git("init")
    assert (env.commit(), env.dirty()) == (None, False)
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "one")
    (tmp_path / "another").write_text("a")
    assert (env.commit(), env.dirty()) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("b")
    assert env.dirty() is True
    monkeypatch.setattr(env.headcount, "CHECKOUT", None)
    assert (env.commit(), env.dirty()) == (None, None)


@pytest.fixture
def second_gpu(monkeypatch):
    """A machine whose current GPU is the second; return its properties."""
    known = SimpleNamespace(name="a GPU", total_memory=7, multi_processor_count=5, major=9, minor=1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {1: known}.get)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91_900)
    return known


def nvml(driver):
    """Return a pynvml with this driver version; an exception is raised."""
    version = Mock(side_effect=driver) if isinstance(driver, Exception) else lambda: driver
    return SimpleNamespace(NVMLError=RuntimeError, nvmlInit=lambda: None, nvmlSystemGetDriverVersion=version)


@pytest.mark.parametrize(
    "module, driver",
    [(None, None), (nvml("580.1"), "580.1"), (nvml(b"580.1"), "580.1"), (nvml(RuntimeError("not loaded")), None)],
    ids=["no pynvml", "text", "bytes", "no driver"],
)
def test_gpu(module, driver, second_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    second_gpu.uuid, second_gpu.L2_cache_size = "GPU-11", 3
    assert env.gpu() == {
        "name": "a GPU", "uuid": "GPU-11", "memory_bytes": 7, "multiprocessors": 5, "l2_bytes": 3,
        "capability": "9.1", "cuda": "13.2", "cudnn": 91_900, "driver": driver,
    }  # fmt: skip


def test_command(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/tool.py", "one", "two"])
    assert env.environment("cpu")["command"] == ["tool.py", "one", "two"]
    assert env.environment("cpu", ["bench.some", "three"])["command"] == ["bench.some", "three"]


def test_gpu_is_recorded_on_cuda_only(second_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    for tf32 in (True, False):
        monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=tf32))
        found = env.environment("cuda")
        assert (found["device"], found["device_type"], found["gpu"]["uuid"]) == ("a GPU", "cuda", None)
        assert found["tf32"] is tf32
        found = env.environment()
        assert (found["device_type"], found["gpu"], found["tf32"]) == ("cpu", None, None)
