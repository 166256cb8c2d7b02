"""What a command prints on a terminal of 80 columns, for documents."""

import io
import os
import shlex
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module

COLUMNS = "80"


class Failed(Exception):
    """A command of a document does not end as it is to; the message is what it says."""

    exit_code = 1


def printed(command: str, code: int = 0, folder: str = ".") -> list[str]:
    """The lines on stdout of ``python -m bench.NAME …`` or ``headcount NAME …``, run in this process and a folder.
    Failed where it ends otherwise than with ``code``."""
    package, arguments = parts(command)
    out, said = io.StringIO(), io.StringIO()
    with _narrow(), chdir(folder), redirect_stdout(out), redirect_stderr(said):
        ended = import_module(f"headcount.{package}.__main__").main(arguments)
    if ended != code:
        raise Failed(f"{command}: {said.getvalue()}")
    return out.getvalue().splitlines()


def parts(command: str) -> tuple[str, list[str]]:
    """The package whose command line it is, and the arguments."""
    words = shlex.split(command)
    if words[0] == "headcount":
        from headcount.__main__ import COMMANDS

        return COMMANDS[words[1]][0], words[2:]
    return words[2], words[3:]


@contextmanager
def _narrow() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def block(lines: list[str]) -> str:
    """Commands and what they print, as a block of code."""
    return "\n".join(["```console", *lines, "```"])


def table(lines: list[str], number: int = 0) -> list[str]:
    """The heads and rows of one of the tables in a command's output, without its rules and notes."""
    rules = [i for i, line in enumerate(lines) if line and set(line) <= {"-", " "}]
    # two rules each
    first, last = list(zip(rules[::2], rules[1::2], strict=True))[number]
    head = next(i for i in range(first, -1, -1) if not lines[i])
    return [*lines[head + 1 : first], *lines[first + 1 : last]]


def ending(lines: list[str]) -> list[str]:
    """The result in one sentence, which is the last paragraph."""
    last = max(i for i, line in enumerate(lines) if not line)
    return lines[last + 1 :]
