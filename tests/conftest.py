"""One thread, and the figures that tests measure: printed below the results."""

import pytest
import torch

# Tests run many small products: a second thread mostly waits, and on a busy machine very long.
torch.set_num_threads(1)

_FIGURES: list[str] = []


@pytest.fixture
def figure():
    """A function that takes one line to print after the test run."""
    return _FIGURES.append


def pytest_terminal_summary(terminalreporter):
    for line in _FIGURES:
        terminalreporter.write_line(line)
