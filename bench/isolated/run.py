"""Asking something of code that is not ours: a process of its own runs it and answers. Imports no torch.

The one place that starts a process for somebody's code; what runs there is bench.isolated.answer.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import EnvironmentMissing, UsageError
from headcount.bench.isolated.user_code import UserCodeError, check_spec
from headcount.models.configs.numbers import whole

TASKS = {
    "count": "headcount.bench.isolated.module_answer",
    "derive": "headcount.bench.derive.derivation",
}
"""Where a task's ``answer(request)`` stands, which the process imports."""
WITHIN, WITHIN_S = "HEADCOUNT_WITHIN", 3600
"""The variable that says how many seconds somebody's code may take, and how many it has without one."""
BROKEN = 70
"""The process' exit code for an error of ours."""
_OURS = [str(headcount.CHECKOUT)] if headcount.CHECKOUT else []
"""What must be on the path of imports for ours to be found."""
_GROUP = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if sys.platform == "win32" else {"process_group": 0}
"""How a process gets a group of its own."""
_START = "import sys; sys.path[:0] = {ours!r}; from headcount.bench.isolated.answer import main; sys.exit(main())"


class Broken(RuntimeError):
    """An error of ours in the process of somebody's code, which has printed its traceback."""

    exit_code = 1


class Ended(UsageError):
    """Somebody's code, or what it called, ended the process that ran it with exit code ``code``."""

    def __init__(self, spec: str, code: int) -> None:
        super().__init__(f"{spec} ended the process that ran it, with exit code {code}")
        self.code = code


def ask(task: str, spec: str, **details: Any) -> dict[str, Any]:
    """The answer to ``task`` (a name of TASKS) about what ``spec`` builds, FILE.py:FUNCTION or package.module:FUNCTION.

    ``details`` are the task's own. Raises UsageError where that code is at fault, with its traceback where it has
    one, EnvironmentMissing where there is no torch, Ended where nothing is left to ask, Broken for an error of ours.
    """
    if find_spec("torch") is None:
        raise EnvironmentMissing(f"{spec} has to run, which needs torch; pip install torch")
    here = Path.cwd().resolve()
    try:
        check_spec(spec, here)
    except UserCodeError as error:
        raise UsageError(f"{spec}: {error}") from None
    request = {"task": TASKS[task], "spec": spec, "ours": _OURS, "here": str(here), **details}
    # A file without a name: nothing is left of it, however this ends.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        code = _run(request, out.fileno(), within())
        out.seek(0)
        text = out.read()
    if not text:
        if code == BROKEN:
            raise Broken(f"{spec}: this program failed, with the traceback above")
        raise Ended(spec, code)
    answer = json.loads(text)
    if "error" in answer:
        raise UsageError(f"{spec}: {answer['error']}\n{answer['traceback']}".rstrip())
    return answer


def settings(words: Sequence[str]) -> dict[str, int]:
    """Integers by name from NAME=VALUE words; UsageError for anything else."""
    out = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            value = whole(text)
        except ValueError:
            value = None
        if value is None or not name.isidentifier():
            raise UsageError(f"--set {word}: with --module it takes NAME=INTEGER")
        out[name] = value
    return out


def within() -> float:
    """The seconds that one process may take; UsageError where WITHIN says none."""
    text = os.environ.get(WITHIN) or str(WITHIN_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    # written so that a NaN fails too
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise UsageError(f"{WITHIN}={text!r}: a number of seconds above 0 is expected")
    return seconds


def _run(request: dict[str, Any], out: int, seconds: float) -> int:
    """The exit code of the process that writes its answer to ``out``; afterwards nothing that it started runs."""
    # -P: nothing but what the process itself puts there comes first on the path of imports.
    command = [sys.executable, "-P", "-c", _START.format(ours=_OURS), json.dumps(request)]
    # A group of its own, so that Ctrl-C in a terminal is ours alone. It ends when its stdin does: when we do.
    options = {"stdin": subprocess.PIPE, "stdout": out, **_GROUP}
    with subprocess.Popen(command, env=_environment(), **options) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            said = f"{request['spec']} still ran after {seconds:g} s and was ended; {WITHIN}=SECONDS gives it more"
            raise UsageError(said) from None
        finally:
            _end(process)


def _end(process: subprocess.Popen) -> None:
    """End it and all that it started, or what is found of that where processes have no groups to be killed by."""
    if hasattr(os, "killpg"):
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        return
    import psutil

    with suppress(psutil.Error):
        started = psutil.Process(process.pid)
        for one in (*started.children(recursive=True), started):
            with suppress(psutil.Error):
                one.kill()


def _environment() -> dict[str, str]:
    """The same without our own checkout on PYTHONPATH, where a user's packages would be ours."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kept = [path for path in paths if str(Path(path).resolve()) not in _OURS]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(kept)}
