"""What every command shares: one-line errors, exit codes, a clean end on Ctrl-C and on a closed pipe."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from headcount.bench.errors import UsageError

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of any other wrong usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def run(prog: str, command: Callable[[], int]) -> int:
    """The exit code of ``command``: its own, or the ``exit_code`` of the error that ended it."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has what it wanted; Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        print(f"{prog}: error: {error}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
