"""What ends a command with an exit code of its own and a message of one line: errors, and signals as exceptions."""

import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import headcount

# Windows has no EDQUOT
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
"""What the system says of a disk, or a share of it, that holds no more."""
_NO_MEMORY = ("can't allocate memory", "failed to map segment", "can't start new thread", "cannot allocate memory")
"""What torch, the linker and the system say where memory ends, in errors of many types."""


class UsageError(Exception):
    """Wrong usage; the message names the valid choices."""

    exit_code = 2


class EnvironmentMissing(Exception):
    """This machine cannot do what was asked, for instance no CUDA device with ``--device cuda``."""

    exit_code = 3


def named_file(path: str | Path) -> Path:
    """The path that somebody gave for a file; UsageError where something else is there: a device or a pipe may never
    end."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot read {path}: it is no file")
    return path


def read_file(path: str | Path) -> bytes:
    """What a file that somebody names holds; UsageError where it cannot be read."""
    try:
        return named_file(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        # a name with a zero in it
        raise UsageError(f"cannot read {path}: {error}") from None


class Stopped(KeyboardInterrupt):
    """The process was asked to end by signal ``number``; whatever lets Ctrl-C pass lets this pass."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def asked_to_end() -> Iterator[None]:
    """In the block, being asked to end (SIGTERM, and SIGHUP of a terminal that is closed) is an exception as Ctrl-C is,
    so that nothing is left behind; the first one only, so that nothing breaks into clearing up.

    A signal that somebody ignores, as nohup does, or has a handler for stays as it is, and so do all of them in a
    thread that is not the main one. One that comes where Python lets no exception out, in a finalizer or in the
    callback of a weak reference, is raised again as soon as that has run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
    taken = [number for number in found if number and signal.getsignal(number) is signal.SIG_DFL]

    def stop(number: int, frame: object) -> NoReturn:
        for one in taken:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    for number in taken:
        signal.signal(number, stop)
    try:
        with _raised_again():
            yield
    except RuntimeError as error:
        # Python before 3.12 makes this of whatever comes while a class names its attributes
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _raised_again() -> Iterator[None]:
    """In the block, Ctrl-C or ``Stopped`` where Python lets no exception out is raised again 10 ms later; not where
    somebody has a use for SIGALRM, or there is none."""
    alarm = getattr(signal, "SIGALRM", None)
    if alarm is None or signal.getsignal(alarm) is not signal.SIG_DFL:
        yield
        return
    lost = []
    hook = sys.unraisablehook

    def later(unraisable: object) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            return hook(unraisable)
        lost.append(unraisable.exc_value)
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    def again(number: int, frame: object) -> NoReturn:
        raise lost.pop().with_traceback(None) if lost else Stopped(number)

    sys.unraisablehook = later
    signal.signal(alarm, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(alarm, signal.SIG_DFL)
        sys.unraisablehook = hook


def no_warning_is_an_error() -> None:
    """Let warnings be what they are without PYTHONWARNINGS=error: that is about somebody's own code, and a warning of
    torch's must not end a command."""
    actions = (option.partition(":")[0] for option in sys.warnoptions)
    if any(action and "error".startswith(action) for action in actions):
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)


def said_of(error: Exception) -> tuple[str, int] | None:
    """What a command says of an error that ends it, and its exit code; None for an error of ours."""
    if isinstance(error, ModuleNotFoundError) and (package := _package(error)):
        return missing(package), EnvironmentMissing.exit_code
    if _out_of_memory(error):
        return "this needs more memory than there is", EnvironmentMissing.exit_code
    if isinstance(error, OSError) and _of_user(error):
        named = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{named}", UsageError.exit_code
    code = getattr(error, "exit_code", None)
    return None if code is None else (str(error), code)


def _out_of_memory(error: Exception) -> bool:
    by_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    said = isinstance(error, RuntimeError | ImportError | OSError) and any(words in str(error) for words in _NO_MEMORY)
    return isinstance(error, MemoryError) or by_system or said


def _of_user(error: OSError) -> bool:
    """Whether this is about a file that somebody named, and no file of ours, or about a disk that is full."""
    if error.errno in FULL:
        return True
    ours = Path(headcount.__file__).parent
    return isinstance(error.filename, str) and not Path(os.path.abspath(error.filename)).is_relative_to(ours)


def _package(error: ModuleNotFoundError) -> str:
    """The package of somebody else's that is missing; empty where it is a module of ours."""
    name = (error.name or "").partition(".")[0]
    return "" if name == "headcount" or name in sys.stdlib_module_names else name


def needs(package: str) -> None:
    """EnvironmentMissing, with how to install it, where ``package`` is not installed."""
    if find_spec(package) is None:
        raise EnvironmentMissing(missing(package))


def missing(package: str) -> str:
    """What is said of a package that is not installed."""
    wanted = INSTALLED_BY.get(package, "headcount")
    return (
        f"this needs {package}, which is not installed: pip install '{wanted}'; closed forms need nothing "
        "(headcount macs --counter closed-form)"
    )


INSTALLED_BY = {"triton": "headcount[gpu]", "transformers": "headcount[hf]", "torchvision": "headcount[torchvision]"}
"""What brings a package that headcount does not bring by itself."""
