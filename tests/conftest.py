"""One thread, kernels in the interpreter, and the figures that tests measure: printed below the results."""

import os
from pathlib import Path

# Triton asks when it is imported, and torch may import it; without a GPU there is no other way to run a kernel.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch

# Tests run many small products: a second thread mostly waits, and on a busy machine very long.
torch.set_num_threads(1)


def pytest_ignore_collect(collection_path, config):
    """Benchmarks are for runs with pytest-benchmark: beside tests that run at once they time nothing."""
    without = not config.pluginmanager.hasplugin("benchmark")
    return True if without and collection_path.name == "benchmarks" else None


@pytest.fixture
def figure(record_property):
    """A function that takes one line to print after the test run."""
    return lambda line: record_property("figure", line)


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties if report.when == "call" else ():
            if name == "figure":
                terminalreporter.write_line(line)
