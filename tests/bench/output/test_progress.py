"""What is being done is said on a terminal, wiped away when it is over, and left to commands that say it themselves."""

import io
import time
from types import SimpleNamespace

import pytest

from headcount.bench.output import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal for stderr, on which nobody has any patience."""
    found = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    return found


def until(said, terminal):
    """Wait for the terminal to show it."""
    deadline = time.monotonic() + 20
    while said not in terminal.getvalue():
        assert time.monotonic() < deadline, terminal.getvalue()
        time.sleep(0.005)


def test_progress_is_shown_and_erased(terminal):
    with progress.said("counting"):
        until("\r\033[Kcounting, 0 s\r\033[Kcounting, 0 s", terminal)
    assert terminal.getvalue().endswith(" s\r\033[K")
    with progress.left_alone(), progress.said("nothing"):
        time.sleep(0.05)
    assert "nothing" not in terminal.getvalue()
