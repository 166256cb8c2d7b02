"""One thread, kernels in the interpreter, and the figures that tests measure: printed below the results."""

import gc
import os
import signal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

# Triton asks when it is imported, and torch may import it; only kernel tests ask again (kernels_in_interpreter).
if find_spec("triton") and not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
    import_module("triton")
    del os.environ["TRITON_INTERPRET"]

from headcount.bench.isolated import run as isolated
from headcount.bench.trace.collector import keep_freed_memory
from tests.warm import process

MODELS = Path(__file__).parent / "models"
UNTYPED = ("test_build.py", "test_decoding.py", "test_devices.py")
"""Files of MODELS that run again, by hundreds, the layers whose shapes the others check."""
SLOW_S = 0.005
"""Setting up or tearing down that takes longer is told too, for --durations."""

# what is printed to nobody's terminal has no width, whoever runs the tests
os.environ.pop("COLUMNS", None)


def pytest_configure(config):
    """Tests run many small products: a second thread mostly waits, and on a busy machine very long."""
    if config.getoption("numprocesses", None):
        # the process that hands tests out runs none
        return
    # what a script runs in the background ignores Ctrl-C, and so would the commands that tests send one
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()


def pytest_ignore_collect(collection_path, config):
    """Benchmarks are for runs with pytest-benchmark: beside tests that run at once they time nothing."""
    without = not config.pluginmanager.hasplugin("benchmark")
    return True if without and collection_path.name == "benchmarks" else None


def pytest_runtest_setup(item):
    """Shapes of models' tensors are checked where models are tested: elsewhere that would be most of the time."""
    from jaxtyping import config

    config.update("jaxtyping_disable", MODELS not in item.path.parents or item.path.name in UNTYPED)


def pytest_collection_finish():
    """What every test would pay for what is imported by now is done once."""
    _keep()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Where tests are handed out, one report of each that passes goes back: six messages cost more than many a test."""
    if not hasattr(item.config, "workerinput"):
        return None
    run = item.config.pluginmanager.get_plugin("runner").runtestprotocol
    for report in run(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > SLOW_S:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """What a file's tests imported and keep is kept."""
    if nextitem is None or nextitem.path != item.path:
        _keep()


def _keep():
    """Whatever is alive stays: a collection of garbage need not walk through all of torch each time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    # triton prints what is not freed
    gc.unfreeze()


@pytest.fixture(scope="session")
def warm_process():
    with process() as run:
        yield run


@pytest.fixture
def warm(monkeypatch, warm_process):
    """Somebody's code runs in a fork of a process that has torch already."""
    monkeypatch.setattr(isolated, "_run", warm_process)


@pytest.fixture
def figure(record_property):
    """A function that takes one line to print after the test run."""
    return lambda line: record_property("figure", line)


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties if report.when == "call" else ():
            if name == "figure":
                terminalreporter.write_line(line)
