"""What is said of the machine where a package or a module of the system's is missing."""

import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from headcount.bench import env
from headcount.bench.errors import EnvironmentMissing


def test_windows_says_its_peak_memory_by_psutil(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=5, peak_wset=7 * 2**28))
    monkeypatch.setattr(psutil, "Process", lambda: process)
    assert (env.peak_memory_bytes(), env.peak_memory()) == (7 * 2**28, ", peak memory 1.75 GiB")


def test_a_plot_without_matplotlib_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentMissing, match=r"^a plot needs matplotlib; pip install 'headcount\[report\]'$"):
        env.drawing()


def test_a_machine_is_named_by_these():
    found = env.machine()
    assert found.keys() == {
        "cpu", "cores", "memory_bytes", "system", "kernel", "arch", "libc", "python", "packages"
    }  # fmt: skip
    system = platform.uname()
    assert (found["system"], found["kernel"], found["arch"]) == (system.system, system.release, system.machine)
    assert found["memory_bytes"] == psutil.virtual_memory().total and found["cores"] == os.cpu_count()
    assert found["python"] == ".".join(map(str, sys.version_info[:3])) and "torch" in found["packages"]


def test_commit_and_changes_are_the_checkouts_and_files_that_git_does_not_know_are_none(tmp_path, monkeypatch):
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
