"""Errors that end a command with an exit code and a one-line message."""

import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import headcount
from headcount.formulas.published.typed import parse_toml

# Windows has no EDQUOT
DISK_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
"""Error numbers of a full disk or an exhausted quota."""
_EXHAUSTED = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
"""Error numbers where the user or the system has as much memory, processes or open files as allowed."""
_NO_MEMORY = ("can't allocate memory", "failed to map segment", "can't start new thread", "cannot allocate memory")
"""Parts of the messages with which torch, the linker and the system report that memory is exhausted."""


def flag(name: str) -> str:
    """Return the option that a command stores under ``name``."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class Option:
    """An option that an error names.

    Attributes:
        name: where a command stores it; in Python the keyword of a count.
        value: its value, or an example of one; True where it takes none, and None where only the option is named.
    """

    name: str
    value: Any = None

    def __str__(self) -> str:
        """Return the option as a command takes it."""
        return flag(self.name) if self.value is None or self.value is True else f"{flag(self.name)} {self.value}"


class OptionError(Exception):
    """An error that names options, which a command, Python and a table write in different ways.

    Attributes:
        args: the words of what is wrong, texts and options.
        advice: the words of what helps.
        trace: the traceback of the user's lines, which a command prints behind the message; empty where there is none.
    """

    def __init__(self, *words: object, advice: Sequence[object] = (), trace: str = "") -> None:
        super().__init__(*words)
        self.advice, self.trace = advice, trace

    def __str__(self) -> str:
        return self.text(str)

    @property
    def reason(self) -> str:
        """What is wrong, for a command line."""
        return "".join(map(str, self.args))

    @property
    def options(self) -> list[Option]:
        """The options that the error names."""
        return [word for word in (*self.args, *self.advice) if isinstance(word, Option)]

    def text(self, write: Callable[[Option], str]) -> str:
        """Return what is wrong and what helps, with each option as ``write`` has it."""
        words = (*self.args, "; ", *self.advice) if self.advice else self.args
        return "".join(write(word) if isinstance(word, Option) else str(word) for word in words)

    def ending(self, known: Container[str]) -> str:
        """Return the end of the message, which names the command of the options that are not ``known``."""
        others = dict.fromkeys(flag(one.name) for one in self.options if flag(one.name) not in known)
        return f"; headcount count takes {', '.join(others)}" if others else ""


class UsageError(OptionError):
    """Wrong usage; the message names the valid choices."""

    exit_code = 2


class EnvironmentMissing(OptionError):
    """This machine cannot do what was requested, for instance ``--device cuda`` without a CUDA device."""

    exit_code = 3


def named_file(path: str | Path) -> Path:
    """Return the path of a file that the user named. Raise UsageError for a device or a pipe, which may never end."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot read {path}: it is no file")
    return path


def read_file(path: str | Path) -> bytes:
    """Return the content of a file that the user named. Raise UsageError where it cannot be read."""
    try:
        return named_file(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        # a file name that contains a null byte
        raise UsageError(f"cannot read {path}: {error}") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file that the user named. Raise UsageError where it cannot be read or is no TOML."""
    try:
        return parse_toml(read_file(path).decode())
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of ``pairs``, for json's object_pairs_hook. Raise ValueError for a key given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


SENTENCE_END = re.compile(r"(?<=[.!?;])\s+(?=[A-Z])|\n")
LONGEST_REASON, LONGEST_VALUE = 300, 80
"""Characters of an error, and of a value, that fit into a line."""


def excerpt(found: Any) -> str:
    """Return the first sentence of an error, or the start of a value that a file holds, on one line and printable."""
    if not isinstance(found, BaseException):
        return re.sub(r"[^ -~]", "?", repr(found))[:LONGEST_VALUE]
    return first_sentence(str(found))


def first_sentence(text: str) -> str:
    """Return the first sentence of an error's text, printable; one above LONGEST_REASON ends at a word, with "..."."""
    first = SENTENCE_END.split(text.strip(), maxsplit=1)[0].rstrip()
    sentence = "".join(character if character.isprintable() else "?" for character in first)
    if len(sentence) <= LONGEST_REASON:
        return sentence
    start, _, _ = sentence[: LONGEST_REASON - 3].rpartition(" ")
    return f"{start or sentence[: LONGEST_REASON - 3]}..."


WITHOUT_META = re.compile(r"register_meta function for torch\.(\w+)\(\)")
"""What torch says on meta of a function whose result has another size with other values."""


def describe_failure(name: str, message: str) -> str:
    """Return what an error did to a run, as text behind the name of the run: "raised NAME: the first sentence"."""
    if found := WITHOUT_META.search(message):
        return f"fails: the size of what torch.{found[1]} returns follows from values"
    return f"raised {': '.join(filter(None, [name, first_sentence(message)]))}"


def reset_warning_filters() -> None:
    """Ignore warnings under PYTHONWARNINGS=error: a warning of torch must not end a command."""
    if any(option.startswith("error") for option in sys.warnoptions):
        warnings.simplefilter("ignore")


def format_error(error: Exception) -> tuple[str, int] | None:
    """Return the message and the exit code of an error that ends a command; None for an internal error."""
    if isinstance(error, ModuleNotFoundError) and (package := _missing_package(error)):
        return missing(package), EnvironmentMissing.exit_code
    if _is_exhausted(error):
        return "this needs more memory, processes or open files than there are", EnvironmentMissing.exit_code
    if (futures := sys.modules.get("concurrent.futures")) and isinstance(error, futures.BrokenExecutor):
        return "a process that counts was ended from outside, perhaps for want of memory", EnvironmentMissing.exit_code
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # tempfile, where no folder for temporary files can be written
        return str(error.strerror), EnvironmentMissing.exit_code
    if isinstance(error, OSError) and _is_about_user_file(error):
        named = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{named}", UsageError.exit_code
    code = getattr(error, "exit_code", None)
    return None if code is None else (f"{error}\n{getattr(error, 'trace', '')}".rstrip(), code)


def _is_exhausted(error: Exception) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(part in str(error) for part in _NO_MEMORY)


def _is_about_user_file(error: OSError) -> bool:
    """Return whether ``error`` concerns a full disk or a file outside this package."""
    if error.errno in DISK_FULL:
        return True
    package = Path(headcount.__file__).parent
    return isinstance(error.filename, str) and not Path(os.path.abspath(error.filename)).is_relative_to(package)


def _missing_package(error: ModuleNotFoundError) -> str:
    """Return the third-party package that is not installed; empty for a module of headcount or of Python."""
    name = (error.name or "").partition(".")[0]
    return "" if name == "headcount" or name in sys.stdlib_module_names else name


def require_package(package: str) -> None:
    """Raise EnvironmentMissing, with the installation command, where ``package`` is not installed."""
    if find_spec(package) is None:
        raise EnvironmentMissing(missing(package))


def missing(package: str) -> str:
    """Return the message for a package that is not installed; without torch there are closed forms."""
    closed = "; without it: headcount count PRESET --counter closed-form" if package == "torch" else ""
    return f"{package} is missing: pip install {package}{closed}"
