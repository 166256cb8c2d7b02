"""Readers that leave, and streams that are closed."""

import subprocess

import pytest

from tests.faults.conftest import CHEAP, DEAR, SAY, choose


@pytest.mark.fault("a reader that leaves after a line, as head -n 1", "exit code 0, and nothing of it on stderr")
@choose(*SAY, dear=[name for name in DEAR if name != "latency gates"])
def test_a_reader_that_leaves_is_no_error(command, place):
    with place.start(command) as process:
        assert process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 0
    assert "Traceback" not in err and "roken" not in err and "BrokenPipe" not in err


@pytest.mark.fault(
    "a reader of both streams that reads nothing, as 2>&1 | head -n 0", "no traceback, no exit code of its own"
)
@choose(*CHEAP, dear=DEAR)
def test_a_reader_of_nothing_is_no_error(command, place):
    read = subprocess.Popen(["head", "-c", "0"], stdin=subprocess.PIPE)
    read.wait()
    done = place.run(command, capture_output=False, stdout=read.stdin, stderr=read.stdin)
    read.stdin.close()
    assert done.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.fault("stdin, stdout or stderr closed", "exit code 0, no traceback; no other file is printed into")
@choose("macs", dear=("budget", "report", *DEAR))
def test_closed_streams_are_no_error(command, closed, place):
    argv = place.argv(command, *(("-o", "out.json") if command in SAY else ()))
    shell = ["bash", "-c", f'exec "$@" {closed}', "bash", *argv]
    done = subprocess.run(shell, cwd=place.folder, env=place.environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    if command in SAY:
        assert (place.folder / "out.json").read_text().startswith('{\n  "schema_version"')
    assert place.left() == []
