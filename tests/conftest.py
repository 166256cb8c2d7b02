"""Settings of every test process: one thread, Triton's interpreter, and figures printed below the results."""

import gc
import multiprocessing
import os
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from headcount.bench.targets import process
from headcount.bench.trace.garbage_collector import keep_freed_memory
from tests.warm import Context

MODELS = Path(__file__).parent / "models"
UNTYPED = ("test_build.py", "test_decoding.py", "test_devices.py")
"""Files of MODELS without shape checks: other files run their layers with them."""

# output that is no terminal has no width
os.environ.pop("COLUMNS", None)


def pytest_configure(config):
    """Use one thread: tests run many small products, for which a second thread mostly waits."""
    # hundreds of processes import the packages: write bytecode even where a shell turns it off
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if config.getoption("numprocesses", None):
        # the controller of pytest-xdist runs no tests
        return
    # a shell's background job ignores Ctrl-C, and its children inherit that
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _import_kernels()
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()


def _import_kernels():
    """Import Triton's kernels for its interpreter where there is no GPU.

    Triton reads the variable when it and when a kernel is imported, which tests of other subjects may do first; kernel
    tests set it again.
    """
    if find_spec("triton") and not Path("/dev/nvidiactl").exists():
        os.environ["TRITON_INTERPRET"] = "1"
        for kernels in ("triton_rows", "triton_attention"):
            import_module(f"headcount.models.kernels.{kernels}")
        del os.environ["TRITON_INTERPRET"]


def pytest_ignore_collect(collection_path, config):
    """Ignore benchmarks without pytest-benchmark: parallel tests would disturb their times."""
    without = not config.pluginmanager.hasplugin("benchmark")
    return True if without and collection_path.name == "benchmarks" else None


def pytest_runtest_setup(item):
    """Check shapes of tensors in tests of models only: elsewhere that would take most of the time."""
    from jaxtyping import config

    config.update("jaxtyping_disable", MODELS not in item.path.parents or item.path.name in UNTYPED)


def pytest_collection_finish():
    """Exclude the imported modules from garbage collection."""
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Exclude what a file's tests imported from garbage collection."""
    if nextitem is None or nextitem.path != item.path:
        _freeze()


def _freeze():
    """Let later collections skip the objects that are alive, such as all of torch."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    # Triton prints objects that are not freed
    gc.unfreeze()


@pytest.fixture(scope="session")
def forks():
    """Starts processes that have imported torch."""
    return Context()


@pytest.fixture(autouse=True)
def warm(monkeypatch, forks):
    """Run user code and workers in forks of a process that has imported torch."""
    monkeypatch.setattr(process, "CONTEXT", forks)


@pytest.fixture
def cold(monkeypatch, warm):
    """Run user code and workers in new processes, as programs do."""
    monkeypatch.setattr(process, "CONTEXT", multiprocessing.get_context("spawn"))


@pytest.fixture(autouse=True)
def stored(monkeypatch, tmp_path_factory):
    """Store closed forms and counts of configurations in a folder of this test run."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path_factory.getbasetemp() / "stored"))


@pytest.fixture
def figure(record_property):
    """Return a function that takes one line to print after the test run."""
    return lambda line: record_property("figure", line)


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties if report.when == "call" else ():
            if name == "figure":
                terminalreporter.write_line(line)
