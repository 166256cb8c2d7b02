"""Code that is not ours: finding a function by FILE.py:NAME or package.module:NAME, and what it may return."""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import headcount


class UserCodeError(Exception):
    """A factory that cannot be used: one line that says why, and the user's own traceback, "" where there is none."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.trace = trace


def leave_path(ours: Sequence[str]) -> None:
    """Take our checkout off sys.path, whose folders may be called as the user's; headcount stays importable."""
    sys.path[:] = [entry for entry in sys.path if not entry or str(Path(entry).resolve()) not in ours]


def load(spec: str, here: Path) -> Callable[..., Any]:
    """The function that ``spec`` names; UserCodeError where there is none.

    A file's directory comes first on the path of imports (the top of its package, where it is in one), then
    ``here``, the directory of the command.
    """
    check_spec(spec, here)
    target, _, name = spec.rpartition(":")
    sys.path.insert(0, str(here))
    importing = f"importing {target}"
    if target.endswith(".py"):
        module = _guarded(importing, lambda: _from_file((here / target).resolve()))
    else:
        module = _guarded(importing, lambda: importlib.import_module(target))
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if inspect.isfunction(value) and not n.startswith("_")]
        raise UserCodeError(f"{target} has no function {name}; it has {', '.join(names) or 'none'}")
    return function


def check_spec(spec: str, here: Path) -> None:
    """UserCodeError where ``spec`` names no function, or a file that is not there: what needs no process to be seen."""
    target, _, name = spec.rpartition(":")
    dotted = all(part.isidentifier() for part in target.split("."))
    if not name.isidentifier() or not (dotted or target.endswith(".py")):
        raise UserCodeError(f"{spec!r} is not FILE.py:FUNCTION or package.module:FUNCTION")
    if target.endswith(".py") and not _is_file(here / target):
        raise UserCodeError(f"there is no file {target}")


def _is_file(path: Path) -> bool:
    try:
        return path.resolve().is_file()
    except (OSError, ValueError, RuntimeError):
        # a name that is too long, holds a zero, or links to itself
        return False


def _from_file(file: Path) -> ModuleType:
    top, parts = file.parent, [file.stem]
    while (top / "__init__.py").is_file():
        parts.insert(0, top.name)
        top = top.parent
    sys.path.insert(0, str(top))
    if len(parts) > 1:
        return importlib.import_module(".".join(parts))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def build(spec: str, function: Callable[..., Any], settings: Mapping[str, int]) -> tuple[Any, tuple, dict[str, Any]]:
    """What the function returns for ``settings``: a module, positional inputs, inputs by keyword."""
    name = spec.rpartition(":")[2]
    check_settings(spec, function, settings)
    made = _guarded(name, lambda: function(**settings))
    from torch import nn

    wanted = f"{name} must return (module, inputs), inputs a tuple or a dict of keywords"
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise UserCodeError(f"{wanted}; it returned {_described(made)}")
    module, inputs = made
    if not isinstance(module, nn.Module):
        raise UserCodeError(f"{wanted}; its module is {_described(module)}")
    if isinstance(inputs, Mapping):
        return module, (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return module, tuple(inputs), {}
    raise UserCodeError(f"{wanted}; its inputs are {_described(inputs)}")


def check_settings(spec: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise UserCodeError, with the names it takes, where the function cannot be called with ``settings``."""
    try:
        inspect.signature(function).bind(**settings)
    except TypeError as error:
        takes = ", ".join(inspect.signature(function).parameters) or "nothing"
        raise UserCodeError(f"{spec.rpartition(':')[2]} takes {takes}: {error}") from error


def called(reason: str, error: BaseException) -> UserCodeError:
    """The error for ``error``, raised while doing ``reason``: which kind it is, and its traceback from their code."""
    said = _said(error)
    message = said.strip().splitlines()
    text = f"{type(error).__name__}: {message[0][:LONGEST]}" if message else type(error).__name__
    trace = "".join(["Traceback (most recent call last):\n", *_theirs(error), f"{type(error).__name__}: {said}"])
    if isinstance(error, ModuleNotFoundError):
        return UserCodeError(f"{reason} needs the package {error.name!r}, which is not installed", trace)
    if any(sign in said for sign in _GPU_SIGNS):
        return UserCodeError(f"{reason} needs a GPU: {text}", trace)
    return UserCodeError(f"{reason} raised {text}", trace)


def _said(error: BaseException) -> str:
    """The message of somebody's exception, which may raise when it is asked for."""
    try:
        return str(error)
    except Exception as another:
        return f"its message raises {type(another).__name__}"


LONGEST = 160
"""Characters of somebody's error message that go into one line."""
_OURS = tuple(
    f"{Path(folder) / room}{os.sep}" for folder in headcount.__path__ for room in ("bench", "models", "formulas")
)
_NOT_THEIRS = (*_OURS, f"{os.sep}torch{os.sep}", "<frozen importlib", f"importlib{os.sep}__init__")
_GPU_SIGNS = ("CUDA", "NVIDIA", "cuda", "No HIP GPUs")


def _guarded(reason: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise called(reason, error) from error


def _theirs(error: BaseException) -> list[str]:
    """The frames of the user's code, and the one that raised: ours, torch's and the import system's stay out."""
    frames = list(traceback.extract_tb(error.__traceback__))
    kept = [frame for frame in frames if not any(part in frame.filename for part in _NOT_THEIRS)]
    if frames and frames[-1] not in kept and not frames[-1].filename.startswith(_OURS):
        kept.append(frames[-1])
    return traceback.StackSummary.from_list(kept).format()


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}: {', '.join(type(part).__name__ for part in value)}"
    return f"a {type(value).__name__}"
