"""Signals: Ctrl-C is one line and exit code 130; SIGTERM ends the process as the system does."""

import os
import signal
import time

import pytest

from tests.faults.conftest import choose, in_session

MANY = ",".join(map(str, range(1, 41)))
LONG = {"macs": ["macs", "--counter", "closed-form", "--grid", f"K={MANY} E=41,43,47,53 D={MANY} T=7,11"]}
"""A command that prints its first row early and takes seconds."""


def send(place, command, number):
    """Start the command, send the signal to its process group after the first line, and return how it ended."""
    with place.start(LONG[command]) as process:
        assert process.stdout.readline()
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=20)
    until = time.monotonic() + 2
    while in_session(process.pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert in_session(process.pid) == set()
    return process.returncode, err


@pytest.mark.fault("SIGINT while a command runs", "exit code 130 and one line, nothing is left")
@choose("macs")
def test_ctrl_c_is_one_line(command, place):
    code, err = send(place, command, signal.SIGINT)
    assert (code, err) == (130, f"\nheadcount {command}: interrupted\n")
    assert place.left() == []


@pytest.mark.fault("SIGTERM or SIGHUP while a command runs", "the process ends by the signal, without a traceback")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@choose("macs")
def test_sigterm_ends_command(command, number, place):
    assert send(place, command, number) == (-number, "")
