"""Numbers on a command line, and progress on a terminal."""

import argparse
import io
import time
from fractions import Fraction

import pytest

from headcount.bench.cli import Value
from headcount.bench.output import progress
from headcount.models.configs.numbers import LONGEST


@pytest.mark.parametrize(
    "text, value", [("7" * LONGEST, int("7" * LONGEST)), ("1e999", 10**999), ("1E-2", Fraction(1, 100))]
)
def test_long_numbers_are_parsed(text, value):
    assert Value("number", Fraction)(text) == value


@pytest.mark.parametrize("text", ["7" * (LONGEST + 1), "1e1000", "1E+0_999", "1e-9999", "1/0", "seven", ""])
def test_invalid_number_raises(text):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        Value("number of rows", Fraction)(text)
    assert str(error.value) == f"invalid number of rows value: {text!r}"


def test_progress_is_shown_and_erased(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    deadline = time.monotonic() + 20
    with progress.stage("counting"):
        while "\r\033[Kcounting, 0 s\r\033[Kcounting, 0 s" not in terminal.getvalue():
            assert time.monotonic() < deadline, terminal.getvalue()
            time.sleep(0.005)
    assert terminal.getvalue().endswith(" s\r\033[K")
    with progress.stage("counting"), progress.stage("model.py:make"):
        while "\033[Kcounting: model.py:make, 0 s" not in terminal.getvalue():
            assert time.monotonic() < deadline, terminal.getvalue()
            time.sleep(0.005)
