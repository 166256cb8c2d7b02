"""What is said of the machine where a package or a module of the system's is missing."""

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
