"""Signals: a command that is asked to end ends at once, in a line, and leaves nothing."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.faults.conftest import DEAR, SAY, choose, in_session

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM", signal.SIGHUP: "ended by SIGHUP"}
MANY = ",".join(map(str, range(1, 41)))
LONG = {
    "macs": ["macs", "--counter", "closed-form", "--grid", f"K={MANY} E=41,43,47,53 D={MANY} T=7,11"],
    "budget": "budget --macs 700M --any --limit 0",
}
"""Of those that are through in a moment, forms that are not."""
THROUGH = re.compile(r"[0-9]+\.[0-9] s(, .*)?")
"""What a command says last: behind it is Python's own end, which has no line."""


def ended(place, command, number, after, group=False, tries_left=4):
    """Start, wait, send, and hold what must be true; False where it was through before. Late five times in a row is
    late: once it may be the machine that is busy."""
    process = place.start(LONG.get(command, command))
    time.sleep(after)
    if process.poll() is not None:
        process.communicate()
        return False
    sent = time.monotonic()
    (os.killpg if group else os.kill)(process.pid, number)
    try:
        _, err = process.communicate(timeout=20)
    finally:
        for left in in_session(process.pid):
            os.kill(left, signal.SIGKILL)
    took = time.monotonic() - sent
    while in_session(process.pid) and time.monotonic() < sent + 2:
        time.sleep(0.02)
    assert in_session(process.pid) == set()
    if process.returncode == 0 or THROUGH.fullmatch(err.strip()):
        return False
    # as a shell sees it: Python itself dies of SIGINT where that came while it ran a text, as dataclasses do
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    assert (code, len(err.strip().splitlines())) == (CODES[number], 1), err
    assert err.strip().endswith(SAID[number])
    assert place.left() == []
    if took >= 2 and tries_left:
        return ended(place, command, number, after, group, tries_left - 1)
    assert took < 2, f"{took:.1f} s"
    return True


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.fault(
    "SIGINT, SIGTERM or SIGHUP while a command runs",
    "back within 2 s with exit code 130, 143 or 129 and one line; no process and no temporary file is left",
)
@choose(*SAY, dear=(*DEAR, "macs --module model.py:hangs", "derive --module model.py:hangs --vars n"))
def test_a_command_that_is_asked_to_end_ends(command, number, place, tries):
    moments = (0.0, 0.3) if command in SAY else (0.0, 1.0, 3.0, 6.0)
    held = [ended(place, command, number, after) for after in moments]
    tries(sum(held))
    assert any(held)


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.dear
@pytest.mark.fault(
    "a signal to the whole group while a report is made by worker processes",
    "back within 2 s with exit code 130, 143 or 129 and one line; no worker and no temporary file is left",
)
@choose("report --check")
def test_a_report_that_is_asked_to_end_ends(command, number, place, tries):
    held = [ended(place, command, number, after, group) for after in (0.2, 3.0, 8.0) for group in (False, True)]
    tries(sum(held))
    assert any(held)


@pytest.mark.fault("SIGHUP under nohup", "the command goes on: what somebody ignores stays ignored")
@choose("macs")
def test_what_is_ignored_stays_ignored(command, place):
    process = place.start(LONG[command], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.poll() is None
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.kill()
    process.communicate()
