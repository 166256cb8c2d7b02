"""Figures that tests measure and that a reader wants to see: printed below the results."""

import pytest

_FIGURES: list[str] = []


@pytest.fixture
def figure():
    """A function that takes one line to print after the test run."""
    return _FIGURES.append


def pytest_terminal_summary(terminalreporter):
    for line in _FIGURES:
        terminalreporter.write_line(line)
