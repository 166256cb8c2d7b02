"""Load user code: find a function by FILE.py:NAME or package.module:NAME, call it, and report its errors."""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import headcount


class UserCodeError(Exception):
    """An error of user code: the reason in one line, and the traceback of the user's lines, if there is one."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.trace = trace


def check_spec(spec: str) -> None:
    """Raise UserCodeError where ``spec`` names no function, or a file that does not exist."""
    target, _, name = spec.rpartition(":")
    dotted = all(part.isidentifier() for part in target.split("."))
    if not name.isidentifier() or not (dotted or target.endswith(".py")):
        raise UserCodeError(f"{spec!r} is not FILE.py:FUNCTION or package.module:FUNCTION")
    if target.endswith(".py") and not os.path.isfile(target):
        raise UserCodeError(f"there is no file {target}")


def import_folders(spec: str) -> list[str]:
    """Return the folders that come first on sys.path: the top of the file's package, and the current folder."""
    file, _, _ = spec.rpartition(":")
    return [*([str(_package_top(Path(file).resolve()))] if file.endswith(".py") else []), os.getcwd()]


def _package_top(file: Path) -> Path:
    top = file.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return top


def load(spec: str) -> Callable[..., Any]:
    """Return the function that ``spec`` names; import_folders must be on sys.path. Raise UserCodeError for none."""
    check_spec(spec)
    target, _, name = spec.rpartition(":")
    module = run_user_code(f"importing {target}", lambda: _import(target))
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if inspect.isfunction(value) and not n.startswith("_")]
        raise UserCodeError(f"{target} has no function {name}; it has {', '.join(names) or 'none'}")
    return function


def _import(target: str) -> ModuleType:
    if not target.endswith(".py"):
        return importlib.import_module(target)
    file = Path(target).resolve()
    dotted = ".".join(file.relative_to(_package_top(file)).with_suffix("").parts)
    if "." in dotted:
        return importlib.import_module(dotted)
    # by its path: a module of this name may be imported already
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def build(spec: str, function: Callable[..., Any], settings: Mapping[str, int]) -> tuple[Any, tuple, dict[str, Any]]:
    """Call the function with ``settings`` and return its module, positional inputs and keyword inputs."""
    name = spec.rpartition(":")[2]
    check_settings(spec, function, settings)
    result = run_user_code(name, lambda: function(**settings))
    from torch import nn

    module, inputs = result if isinstance(result, tuple | list) and len(result) == 2 else (None, None)
    if not isinstance(module, nn.Module) or not isinstance(inputs, Mapping | tuple | list):
        parts = f": {', '.join(type(part).__name__ for part in result)}" if isinstance(result, tuple | list) else ""
        raise UserCodeError(
            f"{name} must return (module, inputs), inputs a tuple or a dict of keywords; "
            f"it returned a {type(result).__name__}{parts}"
        )
    return (module, (), dict(inputs)) if isinstance(inputs, Mapping) else (module, tuple(inputs), {})


def check_settings(spec: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise UserCodeError, with the names it takes, where the function cannot be called with ``settings``."""
    try:
        inspect.signature(function).bind(**settings)
    except TypeError as error:
        takes = ", ".join(inspect.signature(function).parameters) or "nothing"
        raise UserCodeError(f"{spec.rpartition(':')[2]} takes {takes}: {error}") from error


LONGEST = 160
"""The most characters of a user's error message that are printed."""
_OWN_FOLDERS = tuple(
    f"{Path(folder) / package}{os.sep}" for folder in headcount.__path__ for package in ("bench", "models", "formulas")
)
_HIDDEN_FRAMES = (*_OWN_FOLDERS, f"{os.sep}torch{os.sep}", "<frozen importlib", f"importlib{os.sep}__init__")
_GPU_SIGNS = ("CUDA", "NVIDIA", "cuda", "No HIP GPUs")


def run_user_code(reason: str, function: Callable[[], Any], unchanged: tuple[type[Exception], ...] = ()) -> Any:
    """Return the result of ``function``. Raise its errors, but for the ``unchanged`` types, as UserCodeError."""
    try:
        return function()
    except unchanged:
        raise
    except (Exception, SystemExit) as error:
        raise _convert_error(reason, error) from error


def _convert_error(reason: str, error: BaseException) -> UserCodeError:
    """Return the UserCodeError for ``error``, raised by ``reason``.

    Its traceback leaves out the frames of headcount, torch and importlib, but for one of torch that raised.
    """
    summary = traceback.TracebackException.from_exception(error)
    # the message of an exception whose __str__ raises is replaced here
    name, message, stack = type(error).__name__, str(summary), summary.stack
    text = ": ".join([name, *(line[:LONGEST] for line in message.strip().splitlines()[:1])])
    frames = [
        frame
        for frame in stack
        if not any(part in frame.filename for part in (_OWN_FOLDERS if frame is stack[-1] else _HIDDEN_FRAMES))
    ]
    lines = traceback.StackSummary.from_list(frames).format()
    trace = "".join(["Traceback (most recent call last):\n", *lines, f"{name}: {message}"])
    if isinstance(error, ModuleNotFoundError):
        return UserCodeError(f"{reason} needs the package {error.name!r}, which is not installed", trace)
    if any(sign in message for sign in _GPU_SIGNS):
        return UserCodeError(f"{reason} needs a GPU: {text}", trace)
    return UserCodeError(f"{reason} raised {text}", trace)
