"""Run user code in a separate process. Imports no torch."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import headcount
from headcount.bench.counters.base import CounterError
from headcount.bench.errors import DISK_FULL, EnvironmentMissing, UsageError, require_package
from headcount.bench.isolated.user_code import UserCodeError, check_spec, check_target

TASKS = {
    "count": "headcount.bench.counting.module",
    "rank": "headcount.bench.counting.rank",
    "derive": "headcount.bench.derive.derivation",
    "time": "headcount.bench.latency.time_targets",
}
"""Module whose ``answer(request)`` the process calls, by task."""
_ROOTS = [str(headcount.CHECKOUT)] if headcount.CHECKOUT else []
_START = (
    "import sys; sys.path[:0] = {roots!r}; import headcount; del sys.path[:len({roots!r})]; "
    "from headcount.bench.isolated.child import main; import os; os._exit(main())"
)
"""The program of the process. Once headcount is imported its packages are found without the checkout on sys.path.
It ends with the answer: threads, pools and exit functions that user code leaves behind do not delay it."""


class InternalError(RuntimeError):
    """An error of headcount in the process of user code, which has printed the traceback."""

    exit_code = 1


class ProcessExited(UsageError):
    """User code, or what it called, ended its process with ``code``; negative for a signal, as in subprocess."""

    def __init__(self, spec: str, code: int) -> None:
        super().__init__(f"{spec} ended the process that ran it, with exit code {code}")
        self.code = code


def run_isolated(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run ``request`` in a separate process and return its answer.

    Args:
        request: ``task``, a key of TASKS; ``spec``, as in target.Target, of user code alone where the task is to
            derive; ``targets`` where it is to time, each with its ``spec``; what the task needs.

    Raises:
        UsageError: the user's code is at fault, with its traceback.
        ProcessExited: the process ended without an answer.
        EnvironmentMissing: a package, the hub or a model's own code is needed.
        CounterError: the module has contractions that cannot be counted.
        InternalError: headcount is at fault.
    """
    spec = request["spec"]
    require_package("torch")
    try:
        for one in specs_of(request):
            (check_spec if request["task"] == "derive" else check_target)(one)
    except UserCodeError as error:
        raise UsageError(f"{spec}: {error}") from None
    # files without a name: nothing is left of them, however this ends
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        code = _run(request, out.fileno(), err.fileno())
        out.seek(0)
        try:
            answer = json.load(out)
        except ValueError:
            answer = {}
        # no text: an internal error, whose traceback is on stderr
        error = answer.get("error", "")
        # warnings of libraries are no part of a run without error, and none of an error of one line
        if not answer or error is None or "\n" in error:
            err.seek(0)
            sys.stderr.write(err.read())
    if not answer:
        raise OSError(code, os.strerror(code)) if code in DISK_FULL else ProcessExited(spec, code)
    if error is None:
        raise InternalError(f"{spec}: this program failed, with the traceback above")
    if "error" not in answer:
        return answer
    if answer["code"] == CounterError.exit_code:
        raise CounterError("headcount", spec, error)
    raise (EnvironmentMissing if answer["code"] == EnvironmentMissing.exit_code else UsageError)(f"{spec}: {error}")


def specs_of(request: Mapping[str, Any]) -> list[str]:
    """Return the ``spec`` of a request, or of each of its ``targets``."""
    return [one["spec"] for one in request.get("targets", [request])]


def _run(request: Mapping[str, Any], out: int, err: int | None = None) -> int:
    """Return the exit code of the process that writes its answer to the descriptor ``out``, and kill its group.

    It writes stderr to ``err``, by default to this process' own.
    """
    # -P: Python adds no folder to sys.path by itself
    command = [sys.executable, "-P", "-c", _START.format(roots=_ROOTS), json.dumps(request)]
    # the open stdin tells it that we still run
    with process_group(command, stdin=subprocess.PIPE, stdout=out, stderr=err) as process:
        return process.wait()


@contextmanager
def process_group(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """Start a process in a group of its own, so that Ctrl-C reaches only this process; kill the group at the end."""
    with subprocess.Popen(command, process_group=0, **options) as process:
        try:
            yield process
        finally:
            if hasattr(os, "killpg"):
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
