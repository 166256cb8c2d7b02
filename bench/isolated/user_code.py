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
    """User code that cannot be used: the reason in one line, and the user's own traceback, if there is one."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.trace = trace


def check_spec(spec: str) -> None:
    """Raise UserCodeError where ``spec`` names no function, or a file that does not exist."""
    target, _, name = spec.rpartition(":")
    dotted = all(part.isidentifier() for part in target.split("."))
    if not name.isidentifier() or not (dotted or target.endswith(".py")):
        raise UserCodeError(f"{spec!r} is not FILE.py:FUNCTION or package.module:FUNCTION")
    if target.endswith(".py") and not _is_file(Path(target)):
        raise UserCodeError(f"there is no file {target}")


def _is_file(path: Path) -> bool:
    try:
        return path.resolve().is_file()
    except (OSError, ValueError, RuntimeError):
        # a name that is too long or contains a null byte, or a link to itself
        return False


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
    """Return the function that ``spec`` names. import_folders must be on sys.path. Raise UserCodeError for none."""
    check_spec(spec)
    target, _, name = spec.rpartition(":")
    module = _guarded(f"importing {target}", lambda: _import(target))
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
    """Return what the function makes for ``settings``: a module, positional inputs, keyword inputs."""
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
    """Return the UserCodeError for ``error``, raised by ``reason``, with the traceback of the user's lines."""
    words = _message(error)
    message = words.strip().splitlines()
    text = f"{type(error).__name__}: {message[0][:LONGEST]}" if message else type(error).__name__
    trace = "".join(["Traceback (most recent call last):\n", *_user_frames(error), f"{type(error).__name__}: {words}"])
    if isinstance(error, ModuleNotFoundError):
        return UserCodeError(f"{reason} needs the package {error.name!r}, which is not installed", trace)
    if any(sign in words for sign in _GPU_SIGNS):
        return UserCodeError(f"{reason} needs a GPU: {text}", trace)
    return UserCodeError(f"{reason} raised {text}", trace)


def _message(error: BaseException) -> str:
    """Return the message of a user's exception; its __str__ may raise."""
    try:
        return str(error)
    except Exception as another:
        return f"its message raises {type(another).__name__}"


LONGEST = 160
"""The most characters of a user's error message that are printed."""
_OWN_FOLDERS = tuple(
    f"{Path(folder) / room}{os.sep}" for folder in headcount.__path__ for room in ("bench", "models", "formulas")
)
_HIDDEN_FRAMES = (*_OWN_FOLDERS, f"{os.sep}torch{os.sep}", "<frozen importlib", f"importlib{os.sep}__init__")
_GPU_SIGNS = ("CUDA", "NVIDIA", "cuda", "No HIP GPUs")


def _guarded(reason: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise called(reason, error) from error


def _user_frames(error: BaseException) -> list[str]:
    """Return the frames of user code and the frame that raised, without those of headcount, torch and importlib."""
    frames = list(traceback.extract_tb(error.__traceback__))
    kept = [frame for frame in frames if not any(part in frame.filename for part in _HIDDEN_FRAMES)]
    if frames and frames[-1] not in kept and not frames[-1].filename.startswith(_OWN_FOLDERS):
        kept.append(frames[-1])
    return traceback.StackSummary.from_list(kept).format()


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}: {', '.join(type(part).__name__ for part in value)}"
    return f"a {type(value).__name__}"
