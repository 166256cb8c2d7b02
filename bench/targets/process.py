"""Run user code in separate processes. Imports no torch."""

import builtins
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import headcount
from headcount.bench.counters.base import CounterError
from headcount.bench.errors import (
    EnvironmentMissing,
    OptionError,
    UsageError,
    format_error,
    require_package,
    reset_warning_filters,
)
from headcount.bench.targets.config_fields import library_of
from headcount.bench.targets.forks import IS_SAFE, Fork, ForkServer
from headcount.bench.targets.target import is_configuration
from headcount.bench.targets.user_code import IncompleteTarget, UserCodeError, check_target, import_folders
from headcount.bench.trace.garbage_collector import importing

CONTEXT = multiprocessing.get_context("spawn")
"""How a process is started: a fork of one with threads may hang, and shares what this one has imported."""
SAFE_PATH = "PYTHONSAFEPATH"
"""The variable that lets Python import nothing from the current folder by itself, not even as it starts."""
POLL_S = 0.1
"""Seconds between two looks at whether a process ended without an answer; an answer is read at once."""
NO_DRIVER = "0 active drivers"
"""What Triton says of a launch without a GPU."""
COUNTING = "headcount.bench.counting.module"
"""The module that counts, which imports torch."""
BUILDING = "headcount.bench.targets.config_file"
"""The module that builds a model from its configuration."""
MODELS = {
    "transformers": ("transformers.modeling_utils", "transformers.generation.utils"),
    "diffusers": ("diffusers",),
    "timm": ("timm",),
}
"""Modules of a library that its models import."""


class InternalError(RuntimeError):
    """An error of headcount in the process of user code, whose traceback has been printed."""

    exit_code = 1


class ProcessExited(UsageError):
    """User code, or what it called, ended its process with ``code``; negative for a signal, as in subprocess."""

    def __init__(self, label: str, code: int | None) -> None:
        super().__init__(f"{label} ended the process that ran it, with exit code {code}")
        self.code = code


@dataclass(frozen=True)
class _Call:
    """A function of headcount, as ``module:function``, and its arguments."""

    task: str
    args: tuple
    options: Mapping[str, Any]


def run_isolated(task: str, *args: Any, code: Sequence[str], label: str = "", **options: Any) -> Any:
    """Return what a function of headcount returns in a separate process; arguments and result are pickled.

    What user code prints there is kept, and printed on standard error with an error that is not one line. Standard
    input is empty, and the folders of ``code`` come first on sys.path. What user code leaves behind, as threads and
    processes, ends with the answer.

    Args:
        task: ``module:function``; the module is imported before the folders are on sys.path.
        args, options: arguments of the function.
        code: the specs of the code that it runs, as in target.Target.
        label: what errors name (default: the first of ``code``).

    Raises:
        UsageError: the user's code is at fault, with its traceback.
        ProcessExited: the process ended without an answer.
        EnvironmentMissing: a package, the hub or a model's own code is needed.
        CounterError: the module has contractions that cannot be counted.
        InternalError: headcount is at fault.
    """
    with isolated_process(code, label) as run:
        return run(task, *args, **options)


@contextmanager
def isolated_process(code: Sequence[str], label: str = "") -> Iterator[Callable[..., Any]]:
    """Start a process and yield a function that runs tasks there, as run_isolated; end it after the block.

    Tasks find what those before have left in memory. Raises UsageError for ``code`` that is none.
    """
    label = label or code[0]
    require_package("torch")
    try:
        for spec in code:
            check_target(spec)
    except UserCodeError as error:
        raise UsageError(f"{label}: {error}") from None
    calls, its_calls = CONTEXT.Pipe()
    # a file without a name: nothing is left of it, however this ends
    with calls, tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err:
        # a descriptor reaches the process as that of a connection
        with its_calls, Connection(os.dup(err.fileno()), readable=False) as log:
            process = _start(its_calls, log, tuple(code), label)

        def run(task: str, *args: Any, **options: Any) -> Any:
            # without what calls before have printed
            err.seek(0)
            err.truncate()
            found = _ask(calls, process, _Call(task, args, options))
            answer, failed = found or (None, ProcessExited(label, process.exitcode))
            # warnings of libraries are no part of a run without error, and none of an error of one line
            if isinstance(failed, InternalError | ProcessExited) or isinstance(failed, OptionError) and failed.trace:
                err.seek(0)
                sys.stderr.write(err.read())
            if failed:
                raise failed
            return answer

        try:
            yield run
        finally:
            _end(process)


_SERVERS: dict[tuple[str, ...], ForkServer] = {}
"""The processes whose forks are those of the block that runs, by what they have imported."""
_is_shared = False


@contextmanager
def shared_imports() -> Iterator[None]:
    """Import what the processes of a block need once: where that is safe, they are forks of one that has imported it.

    User code finds what it finds in a new process, and a configuration its library too.
    """
    global _is_shared
    if _is_shared or not IS_SAFE:
        yield
        return
    _is_shared = True
    try:
        yield
    finally:
        _is_shared = False
        while _SERVERS:
            _SERVERS.popitem()[1].end()


def _start(calls: Connection, log: Connection, code: Sequence[str], label: str) -> BaseProcess | Fork:
    """Start the process that answers ``calls``."""
    if _is_shared:
        modules = _modules(code)
        # where it ended as it imported, a new process says why
        with suppress(EOFError, ConnectionError):
            if modules not in _SERVERS:
                _SERVERS[modules] = ForkServer(_spawn, _serve, modules, import_path(()))
            return _SERVERS[modules].start((calls, log), code, label)
    return _spawn(_serve, calls, log, code, label)


def _modules(code: Sequence[str]) -> tuple[str, ...]:
    """Return what a process of ``code`` imports in any case: of user code, what it does before that runs."""
    libraries = {*map(library_of, code)}
    found = libraries.pop() if len(libraries) == 1 else None
    return (COUNTING, BUILDING, *MODELS[found]) if found else (COUNTING,)


def _spawn(target: Callable[..., None], *args: Any) -> BaseProcess:
    """Start a new process."""
    with starting(), _without_main():
        process = CONTEXT.Process(target=target, args=args)
        process.start()
    return process


def _ask(calls: Connection, process: BaseProcess | Fork, call: _Call) -> tuple[Any, Exception | None] | None:
    """Return the answer of a process to a call, or its error; None, and end it, where it sends neither."""
    with suppress(EOFError, ConnectionError):
        calls.send(call)
        # a fork that user code left running keeps the pipe open
        while not calls.poll(POLL_S) and process.is_alive():
            pass
        if calls.poll():
            return calls.recv()
    _end(process)
    return None


def _end(process: BaseProcess | Fork) -> None:
    """End a process and its group."""
    if hasattr(os, "killpg") and process.pid:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def exit_with_parent() -> None:
    """End this process, and its group where it is the first of one, when its parent ends."""
    if parent := multiprocessing.parent_process():
        parent.join()
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


@contextmanager
def starting() -> Iterator[None]:
    """Start processes that import nothing from the current folder as they start, and whose SIGINT is blocked.

    After Ctrl-C their parent ends them.
    """
    has_signals, is_set = hasattr(signal, "pthread_sigmask"), SAFE_PATH in os.environ
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if has_signals else set()
    os.environ.setdefault(SAFE_PATH, "1")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[SAFE_PATH]
        if has_signals:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Let a new process not run the program of this one again, which may be a script without a guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(calls: Connection, log: Connection, code: Sequence[str], label: str) -> None:
    """Send the answer of each call, or the error that ends the command; end this process with the last call."""
    own = os.getpid()
    _isolate(log)
    # a fork that user code left running here sends nothing
    while os.getpid() == own:
        try:
            call = calls.recv()
        except EOFError:
            break
        answered = _answer(call, code, label)
        if os.getpid() == own:
            sys.stdout.flush()
            calls.send(answered)
    os._exit(0)


def _isolate(log: Connection) -> None:
    """Make this process the first of a group that ends with its parent, and write what it prints to ``log``."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=exit_with_parent, daemon=True).start()
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    log.close()
    reset_warning_filters()
    # as in a program of the user's own
    del sys.argv[1:]
    os.environ.pop(SAFE_PATH, None)
    multiprocessing.set_start_method(None, force=True)


def _restore_builtins(before: dict[str, Any]) -> list[str]:
    """Restore Python's builtins and return the names of those that user code had replaced."""
    # without any of them until they are restored
    found = builtins.__dict__.copy()
    builtins.__dict__.update(before)
    return [name for name, value in before.items() if found.get(name) is not value]


def _answer(call: _Call, code: Sequence[str], label: str) -> tuple[Any, Exception | None]:
    """Return the result of a call, or the error that ends the command."""
    before, path = dict(vars(builtins)), sys.path[:]
    try:
        try:
            return _result(call, code), None
        finally:
            sys.path[:] = path
            replaced = _restore_builtins(before)
    except Exception as raised:
        return None, _as_sent(raised, label, replaced)


def _result(call: _Call, code: Sequence[str]) -> Any:
    """Return the result of a call. Raises UsageError for an error of the user's code."""
    module, _, function = call.task.partition(":")
    with importing():
        # before the user's folders are on sys.path, where a file may be called like a package
        task = getattr(import_module(module), function)
    sys.path[:] = import_path(code)
    # cached bytecode counts as current where size and second are equal: a quick change would be missed
    sys.dont_write_bytecode = True
    try:
        return task(*call.args, **call.options)
    except UserCodeError as error:
        if NO_DRIVER in str(error):
            raise EnvironmentMissing(
                "it launches a kernel of Triton, which needs a GPU, and there is none here"
            ) from error
        # a configuration is no code: the lines that raised are not the user's
        if all(map(is_configuration, code)):
            error.trace = ""
        raise
    except RecursionError:
        reason = "inputs or results contain themselves, or are nested deeper than Python's recursion limit"
        raise UsageError(reason) from None


def import_path(code: Sequence[str]) -> list[str]:
    """Return sys.path of a process of ``code``."""
    # without the checkout's root, whose packages bench, models … may be called like the user's
    known = (headcount.CHECKOUT, Path.cwd())
    others = [folder for folder in sys.path if Path(folder).resolve() not in known]
    return [*dict.fromkeys(folder for spec in code for folder in import_folders(spec)), *others]


def _as_sent(error: Exception, label: str, replaced: Sequence[str]) -> Exception:
    """Return the error that ends the command; print the traceback of an internal one."""
    text, code = format_error(error) or (None, InternalError.exit_code)
    if text is None and replaced:
        text = f"it replaces {', '.join(replaced)} of Python's builtins, which a count needs"
        code = UsageError.exit_code
    if text is None:
        traceback.print_exception(error)
        return InternalError(f"{label}: this program failed, with the traceback above")
    kinds = {CounterError.exit_code: CounterError, EnvironmentMissing.exit_code: EnvironmentMissing}
    kind = type(error) if isinstance(error, IncompleteTarget) else kinds.get(code, UsageError)
    start = "headcount did not count " if kind is CounterError else ""
    sent = error if isinstance(error, OptionError) else UsageError(text)
    return kind(f"{start}{label}: ", *sent.args, advice=sent.advice, trace=sent.trace)
