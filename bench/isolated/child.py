"""The process that runs user code: reads the request from its last argument and writes the answer to stdout as JSON."""

import builtins
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import EnvironmentMissing, UsageError, format_error, reset_warning_filters
from headcount.bench.isolated.run import TASKS, specs_of
from headcount.bench.isolated.target import is_configuration
from headcount.bench.isolated.user_code import UserCodeError, import_folders
from headcount.bench.trace.collector import importing

NO_DRIVER = "0 active drivers"
"""What Triton says of a launch without a GPU."""


def main() -> int:
    """Answer the request. Return 0, or the number of the error where the answer cannot be written."""
    request, process = json.loads(sys.argv.pop()), os.getpid()
    reset_warning_filters()
    _exit_with_parent()
    # what user code prints goes to stderr, so that it can corrupt neither the answer nor the command's output
    out = os.dup(1)
    os.dup2(2, 1)
    before = dict(vars(builtins))
    try:
        try:
            answer = _answer(request)
        finally:
            replaced = _restore_builtins(before)
    except Exception as error:
        text, code = format_error(error) or (None, None)
        if text is None and replaced:
            text = f"it replaces {', '.join(replaced)} of Python's builtins, which a count needs"
            code = UsageError.exit_code
        answer = {"error": text, "code": code}
        if text is None:
            traceback.print_exc()
    if os.getpid() != process:
        # a fork that user code left running here
        return 0
    try:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(answer, file, default=vars)
        sys.stdout.flush()
    except OSError as error:
        return error.errno
    return 0


def _restore_builtins(before: dict[str, Any]) -> list[str]:
    """Restore Python's builtins and return the names of those that user code had replaced."""
    # without any of them until they are restored
    found = builtins.__dict__.copy()
    builtins.__dict__.update(before)
    return [name for name, value in before.items() if found.get(name) is not value]


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the request's task. Raises UsageError for an error of the user's code."""
    specs = specs_of(request)
    try:
        with importing():
            # before the user's folders are on sys.path, where a file may be called like a package
            task = import_module(TASKS[request["task"]])
        # without the checkout's root, whose packages bench, models … may be called like the user's
        others = [folder for folder in sys.path if Path(folder).resolve() != headcount.CHECKOUT]
        # with ranks the plan is a function of the user's too
        code = [*specs, request["plan"]] if request.get("ranks") else specs
        sys.path[:] = [*dict.fromkeys(folder for spec in code for folder in import_folders(spec)), *others]
        # cached bytecode counts as current where size and second are equal: a quick change would be missed
        sys.dont_write_bytecode = True
        return task.answer(request)
    except UserCodeError as error:
        if NO_DRIVER in str(error):
            raise EnvironmentMissing(
                "it launches a kernel of Triton, which needs a GPU, and there is none here"
            ) from error
        # a configuration is no code: the lines that raised are not the user's
        trace = "" if all(map(is_configuration, specs)) else error.trace
        raise UsageError(f"{error}\n{trace}".rstrip()) from error
    except RecursionError:
        reason = "inputs or results contain themselves, or are nested deeper than Python's recursion limit"
        raise UsageError(reason) from None


def _exit_with_parent() -> None:
    """Give user code an empty stdin, and kill this process and all that it started once the parent closes the pipe."""
    pipe = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)

    def watch() -> None:
        os.read(pipe, 1)
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
