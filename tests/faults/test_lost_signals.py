"""Signals that come where Python lets no exception out."""

import signal
import subprocess
import sys

import pytest

from tests.faults.conftest import ignoring_nothing

COMMAND = """
import os, sys, time, weakref
from headcount.bench.cli import run

class Thing:
    def __del__(self):
        if "finalizer" in sys.argv:
            asked(None)

def asked(_):
    os.kill(os.getpid(), int(sys.argv[1]))
    for _ in range(100):
        pass

def command():
    for _ in range(int(sys.argv[3])):
        thing = Thing()
        watched = weakref.ref(thing, asked) if "callback" in sys.argv else None
        del thing
    try:
        time.sleep(5)
    finally:
        print("cleared up")
    return 0

sys.exit(run("headcount", command))
"""
SIGNALS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "ended by SIGTERM"),
    signal.SIGHUP: (129, "ended by SIGHUP"),
}


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("moment", ["callback", "finalizer"])
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.fault(
    "SIGINT, SIGTERM or SIGHUP in a finalizer, or in the callback of a weak reference",
    "exit code 130, 143 or 129 and one line once that has run; what is cleared up at any other moment is",
)
@pytest.mark.parametrize("command", ["headcount.bench.cli.run"])
def test_a_signal_where_no_exception_gets_out_is_not_lost(command, number, moment, times):
    argv = [sys.executable, "-c", COMMAND, str(int(number)), moment, str(times)]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=20, preexec_fn=ignoring_nothing)
    code, said = SIGNALS[number]
    assert (run.returncode, run.stdout, run.stderr.strip().splitlines()[1:]) == (code, "cleared up\n", [])
    assert run.stderr.strip().endswith(said)


def test_what_else_a_finalizer_raises_is_said_as_ever():
    text = COMMAND.replace("os.kill(os.getpid(), int(sys.argv[1]))", "raise ValueError(7)").replace(
        "sleep(5)", "sleep(0)"
    )
    argv = [sys.executable, "-c", text, "15", "finalizer", "1"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert (run.returncode, run.stdout) == (0, "cleared up\n")
    assert run.stderr.startswith("Exception ignored in") and "ValueError: 7" in run.stderr
