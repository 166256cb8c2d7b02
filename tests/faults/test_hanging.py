"""A child that hangs: a time limit ends it, and names what hung."""

import pytest

from tests.faults.conftest import choose, in_session

HANGING = {
    "macs --module": "macs --module model.py:hangs",
    "derive --module": "derive --module model.py:hangs --vars n",
    "lock": "lock --module model.py:hangs",
    "macs --compare": "macs --compare model.py:hangs model.py:make",
}


@pytest.mark.dear
@pytest.mark.fault(
    "somebody's code that never ends, under --module",
    "after HEADCOUNT_WITHIN seconds, an hour without it, exit code 2 and a line that names code and limit; no process",
)
@choose(*HANGING)
def test_code_that_hangs_is_ended_and_named(command, place):
    process = place.start(HANGING[command], env={"HEADCOUNT_WITHIN": "1.5"})
    out, err = process.communicate(timeout=60)
    said = "model.py:hangs still ran after 1.5 s and was ended; HEADCOUNT_WITHIN=SECONDS gives it more"
    assert (process.returncode, out, err.splitlines()) == (2, "", [f"headcount {command.split()[0]}: error: {said}"])
    assert in_session(process.pid) == set()
    assert place.left() == []


@pytest.mark.fault("a time limit that is none", "exit code 2 and one line before a process is started")
@choose("macs --module", "derive --module", "lock")
@pytest.mark.parametrize("limit", ["x", "0", "-1", "nan", "inf", "1e300"])
def test_a_limit_that_is_none_is_refused(command, limit, monkeypatch):
    from headcount.bench.errors import UsageError
    from headcount.bench.isolated import run

    monkeypatch.setenv(run.TIMEOUT, limit)
    with pytest.raises(UsageError, match=f"^HEADCOUNT_WITHIN='{limit}': a number of seconds above 0 is expected$"):
        run.timeout()
