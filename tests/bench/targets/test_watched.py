"""Watched workers: one that hangs, dies or asks for a restart is replaced, and its successor gets the reason."""

import sys

import pytest

from headcount.bench.errors import EnvironmentMissing
from headcount.bench.targets import watched

WORKER = """
import os, signal, sys, time
from headcount.bench.targets.watched import begin_step, restart, worker
state, log = worker(), open({log!r}, "a")
print(state.get("step"), state.get("reason"), file=log, flush=True)
{program}
"""


def run(tmp_path, program):
    """Return the exit code of the command, and the step and reason that each of its workers was started with."""
    log = tmp_path / "log"
    code = watched.run_watched([sys.executable, "-c", WORKER.format(log=str(log), program=program)])
    return code, log.read_text().splitlines()


def test_exit_code_of_worker_is_returned(tmp_path):
    assert run(tmp_path, "begin_step('a', 60); sys.exit(3)") == (3, ["None None"])


@pytest.mark.parametrize("ending, reason", [
    ("time.sleep(60)", "gave no answer within 1 s"),
    ("os.close(state['pipe']); os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9"),
])  # fmt: skip
def test_worker_that_hangs_or_dies_is_replaced(ending, reason, tmp_path):
    # only the first worker has little time, so that a busy machine does not end its successor
    steps = "is_first = not state.get('step'); begin_step('a', 60); begin_step('b', 0.6 if is_first else 60)"
    program = f"{steps}\nif is_first: {ending}"
    assert run(tmp_path, program) == (0, ["None None", f"b {reason}"])


def test_step_that_restarts_too_often_is_abandoned(tmp_path):
    program = "begin_step('a', 60)\nif not state.get('step'): restart()"
    code, started = run(tmp_path, program)
    assert code == 0 and started == [*["None None"] * 9, "a it was begun in 9 processes"]


def test_death_before_first_step_raises(tmp_path):
    with pytest.raises(EnvironmentMissing, match="was killed by signal 6"):
        run(tmp_path, "os.abort()")
