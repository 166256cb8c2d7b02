"""The process that runs somebody's code: the request is its argument, the answer goes to its stdout as JSON.

Everything of ours has one name, headcount, and the checkout leaves the path of imports before the user's code is
imported: a project with packages called models, bench, tests or reports finds its own.
"""

import json
import os
import signal
import sys
import threading
import traceback
from importlib import import_module

from headcount.bench.errors import reset_warning_filters
from headcount.bench.isolated.ask import BROKEN
from headcount.bench.isolated.user_code import UserCodeError, leave_path


def main() -> int:
    """Answer the request; 0, or BROKEN with our traceback for an error of ours."""
    request = json.loads(sys.argv.pop())
    reset_warning_filters()
    _end_with_parent()
    # What user code prints must not get among the answer or the command's output.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        task = import_module(request["task"])
        leave_path(request["ours"])
        try:
            answer = task.answer(request)
        except UserCodeError as error:
            answer = {"error": error.reason, "traceback": error.trace}
        with open(out, "w", encoding="utf-8") as file:
            json.dump(answer, file)
    except Exception:
        traceback.print_exc()
        return BROKEN
    return 0


def _end_with_parent() -> None:
    """Take stdin away, and end this process and all that it started once the other end of it is closed."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        os.read(lifeline, 1)
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(BROKEN)

    threading.Thread(target=watch, daemon=True).start()
