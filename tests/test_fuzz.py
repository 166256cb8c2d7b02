"""python -m tests.fuzz: what makes a line hold or not, and some lines of each cheap command."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests import fuzz, fuzz_outcome
from tests.fuzz_outcome import outcome, outcomes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")


def held(command):
    return outcome(command)


def said(text, code, stream="stderr"):
    """A command that prints and ends."""

    def command():
        print(text, file=getattr(sys, stream))
        return code

    return command


def raising():
    raise ValueError("x")


def writing():
    Path("left.txt").write_text("half")
    return 2


def test_a_line_that_ends_as_documented_holds():
    assert held(said("x: error: y", 2)) == (2, "")
    assert held(said("a table", 0, "stdout")) == (0, "")


@pytest.mark.parametrize(
    "command, why",
    [
        (raising, "a traceback: ValueError: x"),
        (said("a\nb\nc", 2), "3 lines on stderr: a"),
        (said("a table", 2, "stdout"), "printed though it failed"),
        (said("x", 4), "exit code 4"),
        (writing, "left left.txt"),
        (lambda: os.kill(os.getpid(), 9), "exit code -9"),
    ],
)
def test_a_line_that_does_not_says_why(command, why):
    assert why in held(command)[1]


def test_lines_that_run_together_end_as_they_do_alone():
    """One that takes their process with it is found out, and the others have their own."""
    some = [said("x: error: y", 2), raising, writing, said("a table", 0, "stdout")]
    assert outcomes(some) == [held(command) for command in some]
    some.insert(1, lambda: os.kill(os.getpid(), 9))
    assert [code for code, _ in outcomes(some)] == [2, -9, 70, 2, 0]


def test_a_line_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(fuzz_outcome, "SECONDS", 0.3)
    monkeypatch.setattr(fuzz_outcome, "PATIENCE", 1)
    assert held(lambda: time.sleep(60)) == (-1, "still ran after 0 s")


def test_a_line_that_works_without_an_end_is_ended(monkeypatch):
    monkeypatch.setattr(fuzz_outcome, "SECONDS", 1.0)

    def works():
        while True:
            pass

    assert held(works) == (-signal.SIGXCPU, "still ran after 1 s")


def test_lines_are_those_of_their_seed_and_hold_something_hostile():
    from headcount.bench.budget.__main__ import parser

    first, again = ([*fuzz.lines(parser(), fuzz.random.Random(3), 50, fuzz.FAMILIES["budget"])] for _ in range(2))
    assert first == again
    assert all(set(line[:-2]) & set(fuzz.HOSTILE) and line[-2:] == ["--limit", "3"] for line in first)


@pytest.mark.parametrize("family", ["macs", "budget", "compare"])
def test_wrong_lines_end_in_a_line_and_leave_nothing(family):
    found = list(fuzz.fuzz(family, 24, seed=7))
    assert [one.text() for one in found if isinstance(one, fuzz.Broken)] == []
    assert found.count(2) > 12


def test_what_a_terminal_would_obey_is_no_message():
    assert held(said("\x1b[31mred", 2)) == (2, "stderr holds what a terminal obeys")


def test_the_figures_of_a_whole_run_are_stored(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fuzz, "RECORD", tmp_path / "fuzz.json")
    monkeypatch.setattr(fuzz, "LINES", 4)
    broken = fuzz.Broken("macs", ["x"], f"{fuzz.HANG} 5 s")
    monkeypatch.setattr(fuzz, "fuzz", lambda family, count, seed: [2, 0, broken, 2])
    assert fuzz.main(["macs", "--lines", "3"]) == 1
    assert not fuzz.RECORD.exists()
    assert fuzz.main(["macs", "--lines", "4", "--seed", "5"]) == 1
    stored = fuzz.json.loads(fuzz.RECORD.read_text())["macs"]
    figures = {name: stored[name] for name in ("lines", "seed", "ended", "tracebacks", "hangs", "failures")}
    ended = {"0": 1, "1": 0, "2": 2, "3": 0}
    assert figures == {"lines": 4, "seed": 5, "ended": ended, "tracebacks": 0, "hangs": 1, "failures": 1}
    assert "macs 'x': still ran after 5 s" in capsys.readouterr().err
