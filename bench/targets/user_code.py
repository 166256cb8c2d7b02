"""Load user code: find a function by FILE.py:NAME or package.module:NAME, call it, and report its errors."""

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import headcount
from headcount.bench.case import resolve_lengths
from headcount.bench.errors import Option, OptionError, UsageError, describe_failure
from headcount.bench.targets.target import Target, Values, is_configuration, parse_input
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.suggest import did_you_mean
from headcount.models.configs.targets import LENGTH_OF_LETTER, has_closed_form, make

if TYPE_CHECKING:
    from torch import nn


T = TypeVar("T")


class UserCodeError(OptionError):
    """An error of user code: the message in one line, and the traceback of the user's lines, if there is one."""

    exit_code = UsageError.exit_code


class InstalledModel(UserCodeError):
    """A name of a model that is none, and that an installed package has in its models."""


class IncompleteTarget(UserCodeError, UsageError):
    """A target that needs more to run, of which subclasses say what; the process that counts raises it as it is."""


class InputsMissing(IncompleteTarget):
    """A function that returns a module without inputs."""


class LengthMissing(IncompleteTarget):
    """A configuration without the length of its text."""


@dataclass(frozen=True)
class Built:
    """A module with its inputs, ready to run.

    Attributes:
        module, args, kwargs: it and its positional and keyword inputs.
        notes: printed under its count.
        versions: those of what it was built from; they are locked.
        window: the keys that a query of some or all layers sees, of a configuration that states it.
        absent: options that add inputs which the model takes and does not have here.
        alternatives: iterates over targets that may run instead, with the options that say so.
        failure: returns the error of a target that does not run, with what helps.
    """

    module: "nn.Module"
    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    window: int | None = None
    absent: tuple[str, ...] = ()
    alternatives: Callable[[Target], Iterator[tuple[Target, str]]] = lambda _: iter(())
    failure: Callable[[UserCodeError], UserCodeError] = lambda error: error

    @property
    def call(self) -> "tuple[nn.Module, tuple, dict[str, Any]]":
        """The module, its positional inputs and its keyword inputs."""
        return self.module, self.args, self.kwargs


LIBRARIES = ("timm", "torchvision")
"""Packages in whose models a name without a package is looked for."""
IMAGE_SIDE = re.compile(r"(?:patch|window)\d+(?:_\w+)?_(224|240|256|288|320|336|378|384|448|512)$")
"""The side of images at the end of a model's name, as vit_base_patch16_384; other numbers there are no pixels."""
INPUT_ADVICE = (Option("input", "1,3,224,224"), " gives it inputs")
"""The advice where a function returns a module alone."""
LOADERS = {
    ".onnx": "onnx2torch.convert({!r})",
    ".pt2": "torch.export.load({!r}).module()",
    ".pt": "torch.jit.load({!r})",
    ".pth": "torch.load({!r}, weights_only=False)",
    ".ts": "torch.jit.load({!r})",
}
"""How a file of a model is loaded, by its ending."""


def check_spec(spec: str) -> None:
    """Raise UserCodeError where ``spec`` names no function, or a file that does not exist."""
    target, _, name = spec.rpartition(":")
    dotted = all(part.isidentifier() for part in target.split("."))
    if not name.isidentifier() or not (dotted or target.endswith(".py")):
        raise UserCodeError(f"{spec!r} is not FILE.py:FUNCTION or package.module:FUNCTION")
    if target.endswith(".py") and not os.path.isfile(target):
        raise UserCodeError(f"there is no file {target}")


def check_target(spec: str) -> None:
    """Raise UserCodeError where ``spec`` names no user module, preset or configuration, or a file that is missing."""
    if has_closed_form(spec) or spec.startswith("hf:"):
        return
    if not is_configuration(spec) and (":" in spec or spec.endswith(".py")):
        check_spec(spec)
        package, _, name = spec.rpartition(":")
        if example := find_model(name, [package]):
            raise InstalledModel(f"{package} has no function {name}", advice=example)
    elif not is_configuration(spec):
        if loader := LOADERS.get(os.path.splitext(spec)[1]):
            hint = f"a function that loads it is a target: FILE.py:make returns ({loader.format(spec)}, inputs)"
            raise UserCodeError(f"{spec!r} is a saved model; {hint}")
        if example := find_model(spec, LIBRARIES):
            raise InstalledModel(f"unknown target {spec!r}", advice=example)
        near = did_you_mean(spec, PRESETS).removeprefix("; ")
        closed = f"a preset ({near or 'headcount table --list'}), a layer (moa:K=8,E=32,…)"
        raise UserCodeError(f"unknown target {spec!r}; {closed}, FILE.py:FUNCTION, config.json or hf:NAME")
    elif not os.path.isfile(spec):
        raise UserCodeError(f"there is no file {spec}")


def find_model(name: str, packages: Sequence[str]) -> tuple[object, ...]:
    """Return the advice how to name a function that an installed package has in its ``models`` and not itself, with an
    input; empty where there is none. The name is the function's or as papers write it: ResNet-50.

    The text of its files is read, and none of them is imported.
    """
    for package in packages:
        init = _find_module(package, sys.path) if package.isidentifier() else None
        if not init or init.name != "__init__.py" or re.search(rf"\b{re.escape(name)}\b|import \*", _text(init)):
            continue
        if found := _functions(init.parent / "models").get(_letters(name)):
            named = IMAGE_SIDE.search(found)
            other = "" if named else " unless the paper says another size"
            side = named[1] if named else "224"
            return f"write {package}.models:{found}; its input is ", Option("input", f"1,3,{side},{side}"), other
    return ()


@cache
def _functions(folder: Path) -> dict[str, str]:
    """Return the functions that the files below a folder define, by their letters and digits."""
    texts = map(_text, sorted(folder.rglob("*.py")))
    return {_letters(name): name for text in texts for name in re.findall(r"^def (\w+)\(", text, re.MULTILINE)}


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace")


def check_function(spec: str) -> None:
    """Raise UserCodeError where the text of a file shows that it has no function of the name in ``spec``.

    The file is not run; one that makes names as it runs is not judged.
    """
    file, _, name = spec.rpartition(":")
    if not file.endswith(".py"):
        return
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        # running the file reports the error
        return
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) | ast.ClassDef(name=found):
                names.append(found)
            case ast.Name(id="globals" | "vars" | "locals" | "setattr" | "exec") | ast.alias(name="*"):
                return
            case ast.Name(id=found, ctx=ast.Store()):
                names.append(found)
            case ast.alias():
                names.append(node.asname or node.name)
    if name not in names and "__getattr__" not in names:
        found = ", ".join(dict.fromkeys(node.name for node in tree.body if isinstance(node, ast.FunctionDef)))
        raise UserCodeError(f"{file} has no function {name}; it has {found or 'none'}")


def import_folders(spec: str) -> list[str]:
    """Return the folders that come first on sys.path: the top of the file's package, and the current folder.

    A preset and a configuration name no code, so nothing is imported from the current folder for them.
    """
    file, _, _ = spec.rpartition(":")
    if has_closed_form(spec) or is_configuration(spec):
        return []
    return [*([str(_package_top(Path(file).resolve()))] if file.endswith(".py") else []), os.getcwd()]


def check_module_names(specs: Sequence[str]) -> None:
    """Raise UserCodeError where one of several targets would run a file of another, as both are one module by name.

    A process has one module of a name. Files that are targets themselves are loaded by their paths, each apart.
    """
    folders = {spec: import_folders(spec) for spec in specs}
    of_users = {folder for those in folders.values() for folder in those}
    others = [folder for folder in sys.path if folder not in of_users]
    by_path = {Path(spec.rpartition(":")[0]).resolve() for spec in specs}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not any(is_below(Path(file), folder) for folder in of_users):
            continue
        for spec, own in folders.items():
            found = _find_module(name, [*own, *others])
            if found and found != Path(file).resolve() and not by_path >= {found, Path(file).resolve()}:
                raise UserCodeError(
                    f"{spec} would run {file} in place of {found}: both are the module {name}; time them one by one"
                )


def _find_module(name: str, path: Sequence[str] | None) -> Path | None:
    """Return the file that ``import name`` would load from ``path``; None for none."""
    found, parts = None, name.split(".")
    for number in range(len(parts)):
        found = PathFinder.find_spec(".".join(parts[: number + 1]), path)
        path = found and found.submodule_search_locations
        if path is None and number + 1 < len(parts):
            return None
    return Path(found.origin).resolve() if found and found.origin else None


def _package_top(file: Path) -> Path:
    return next(folder for folder in file.parents if not (folder / "__init__.py").is_file())


def load(spec: str, root: str | None = None) -> Callable[..., Any]:
    """Return the function that ``spec`` names; import_folders must be on sys.path.

    Raise UserCodeError for none, and for one that is not defined in a file below ``root``, if any.
    """
    check_spec(spec)
    target, _, name = spec.rpartition(":")
    module = run_user_code(f"importing {target}", lambda: _import(target))
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if inspect.isfunction(value) and not n.startswith("_")]
        raise UserCodeError(f"{target} has no function {name}; it has {', '.join(names) or 'none'}")
    if root and not is_below(_source(function), root):
        raise UserCodeError(f"{name} is not defined in a file below {root}", advice=[Option("trust"), " allows it"])
    return function


def is_below(file: Path | None, root: str) -> bool:
    """Return whether ``file`` is below ``root`` and belongs to neither Python nor an installed package."""
    place = file and file.resolve()
    return bool(place) and place.is_relative_to(root) and not any(map(place.is_relative_to, _installed()))


@cache
def _installed() -> tuple[Path, ...]:
    """Return the folders of installed packages; a repository may hold its virtual environment."""
    return tuple(Path(folder).resolve() for name, folder in sysconfig.get_paths().items() if name.endswith("lib"))


def _source(function: Callable[..., Any]) -> Path | None:
    """Return the file in which a function or class is defined, without its decorators; None for a compiled one."""
    try:
        function = inspect.unwrap(function)
        return _source(function.func) if isinstance(function, partial) else Path(inspect.getfile(function))
    except (TypeError, ValueError, OSError):
        return None


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


def build_target(target: Target, *, random: bool = False, roots: Mapping[str, str] | None = None) -> Built:
    """Build what ``target`` names: a user module, a preset, or a model from its configuration.

    Random numbers begin from seed 0.

    Args:
        target: its spec, settings, inputs, dtype, lengths and device are used.
        random: draw the weights of a preset, which are zeros otherwise.
        roots: by spec the folder below which the file of its function must be.

    Raises:
        UserCodeError: nothing can be built from it; one line.
    """
    from headcount.bench.counters.run_context import seed_generators

    seed_generators()
    spec, settings, dtype, lengths = target.spec, target.settings, target.dtype, target.lengths
    device = target.device or "meta"
    inputs = run_user_code("an input", lambda: parse_inputs(target.inputs, dtype or "float32"))
    if is_configuration(spec):
        from headcount.bench.targets.config_file import build_from_config

        return build_from_config(spec, settings, lengths, inputs, dtype, device)
    if has_closed_form(spec):
        if inputs:
            raise UserCodeError(f"{spec} is no code of yours: its lengths set its inputs")
        return _build_config(spec, settings, lengths, dtype or "bfloat16", device, random)
    function = load(spec, (roots or {}).get(spec))
    settings = {**settings, **length_keywords(spec, function, lengths)}
    module, args, kwargs = build(spec, function, settings, bool(inputs))
    if dtype:
        module, args, kwargs = run_user_code(f"--dtype {dtype}", lambda: _cast(module, args, kwargs, dtype))
    if inputs:
        args = tuple(tensor for name, tensor in inputs.items() if name.isdecimal())
        kwargs = {name: tensor for name, tensor in inputs.items() if not name.isdecimal()}
    return Built(module, args, kwargs)


def build_that_runs(target: Target, run: Callable[[Target, Built], T], **options: Any) -> tuple[Target, Built, T]:
    """Return a target with which ``run`` raises no UserCodeError, as it is built, and what ``run`` returns of both.

    It is ``target``, or the first of its alternatives, with a note on it. ``options`` are those of build_target.
    Raises UserCodeError for a target that does not run, with what helps.
    """
    built = build_target(target, **options)
    try:
        return target, built, run(target, built)
    except UserCodeError as error:
        failed = error
    for other, words in built.alternatives(target):
        with suppress(UserCodeError):
            second = build_target(other, **options)
            found = run(other, second)
            note = f"Counted with {words}, as it does not run without: {failed.reason}"
            return other, replace(second, notes=(*second.notes, note)), found
    raise built.failure(failed) from None


def parse_inputs(texts: Sequence[str], dtype: str = "float32") -> dict[str, Any]:
    """Return inputs by the name of forward's parameter; "0", "1" … by position where a text has no name.

    Sizes are a tensor of ones, a list of values is a tensor of them, and other values are as they are in JSON.
    ``dtype`` is the type of numbers whose text names none; whole numbers of a list are int64 then. Raises UsageError
    for a text that parse_input refuses.
    """
    import torch

    found: dict[str, Any] = {}
    for text in texts:
        name, content, own_dtype = parse_input(text)
        # ones: a token that every vocabulary has, and a mask that hides nothing
        key = name or str(sum(known.isdecimal() for known in found))
        if isinstance(content, Values):
            found[key] = _tensors(content.content, own_dtype, dtype)
        else:
            found[key] = torch.ones(content, dtype=getattr(torch, own_dtype or dtype))
    return found


def _tensors(values: Any, dtype: str | None, default: str) -> Any:
    """Return values with a tensor in place of each list, of type ``dtype``, else of ``default`` where it has floats."""
    import torch

    if isinstance(values, dict):
        return {name: _tensors(value, dtype, default) for name, value in values.items()}
    if not isinstance(values, list):
        return values
    tensor = torch.tensor(values)
    if dtype or tensor.is_floating_point():
        return tensor.to(getattr(torch, dtype or default))
    return tensor


def _build_config(
    spec: str, settings: Mapping[str, Any], lengths: Mapping[str, int], dtype: str, device: str, initialise: bool
) -> Built:
    """Build a preset or a layer with weights of zeros unless ``initialise``, or none on meta, and its inputs."""
    import torch

    from headcount.models.build import build_call
    from headcount.models.configs.base import ConfigError

    options = {"device": device, "dtype": getattr(torch, dtype), "initialise": initialise}
    try:
        # the settings of a lock are JSON, which has no tuples
        config = make(spec, {name: tuple(one) if isinstance(one, list) else one for name, one in settings.items()})
        return Built(*build_call(config, resolve_lengths(config, lengths), **options))
    except ConfigError as error:
        raise UserCodeError(str(error)) from None


def _cast(module: "nn.Module", args: tuple, kwargs: dict[str, Any], dtype: str) -> tuple[Any, tuple, dict[str, Any]]:
    """Return a module and its inputs with every floating-point tensor in the type ``dtype``."""
    import torch
    from torch.utils._pytree import tree_map_only

    kind = getattr(torch, dtype)
    cast = tree_map_only(torch.Tensor, lambda x: x.to(kind) if x.is_floating_point() else x, (args, kwargs))
    return module.to(kind), *cast


def build(
    spec: str, function: Callable[..., Any], settings: Mapping[str, Any], has_inputs: bool = False
) -> tuple[Any, tuple, dict[str, Any]]:
    """Call the function or class with ``settings`` and return its module, positional inputs and keyword inputs.

    ``has_inputs``: the inputs come from elsewhere, so that the module alone may be returned, as a class does.
    """
    from torch import Tensor, nn

    name = spec.rpartition(":")[2]
    check_settings(spec, function, settings)
    result = run_user_code(name, lambda: function(**settings))
    if has_inputs and isinstance(result, nn.Module):
        return result, (), {}
    module, inputs = result if isinstance(result, tuple | list) and len(result) == 2 else (None, None)
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    if not isinstance(module, nn.Module) or not isinstance(inputs, Mapping | tuple | list):
        parts = f": {', '.join(type(part).__name__ for part in result)}" if isinstance(result, tuple | list) else ""
        what = f"{name} must return (module, inputs), inputs a tensor, a tuple or a dict of keywords"
        reason = f"{what}; it returned a {type(result).__name__}{parts}"
        if isinstance(result, nn.Module):
            raise InputsMissing(reason, advice=INPUT_ADVICE)
        raise UserCodeError(reason)
    return (module, (), dict(inputs)) if isinstance(inputs, Mapping) else (module, tuple(inputs), {})


def check_settings(spec: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise UserCodeError, with the names it takes, where the function cannot be called with ``settings``."""
    try:
        inspect.signature(function).bind(**settings)
    except ValueError:
        # a function in C++ has no signature, and refuses settings itself
        return
    except TypeError as error:
        takes = ", ".join(_parameters(function)) or "nothing"
        raise UserCodeError(f"{spec.rpartition(':')[2]} takes {takes}: {error}") from error


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters; none of one in C++."""
    try:
        return [*inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return []


def length_keywords(spec: str, function: Callable[..., Any], lengths: Mapping[str, int]) -> dict[str, int]:
    """Return input lengths by the keyword of the function that takes each, its name or its letter.

    Raises UserCodeError for a length that has none.
    """
    letters = {name: letter for letter, name in LENGTH_OF_LETTER.items()}
    parameters = _parameters(function)
    out = {}
    for name, size in lengths.items():
        names = [name, letters[name]] if name in letters else [name]
        taken = [one for one in names if one in parameters]
        if not taken:
            reason = f": {spec.rpartition(':')[2]} has no parameter {' or '.join(names)}"
            raise UserCodeError(Option(name), reason, advice=[Option("input", "SIZES"), " sets its inputs"])
        out[taken[0]] = size
    return out


def accepts(function: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]) -> bool:
    """Return whether ``function`` takes the arguments; True for one in C++, which has no signature."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


LONGEST = 3200
"""The most characters of a user's error message below a traceback."""
_HIDDEN_FRAMES = (
    *(f"{Path(folder) / name}{os.sep}" for folder in headcount.__path__ for name in ("bench", "models", "formulas")),
    f"{os.sep}torch{os.sep}", "<frozen importlib", f"importlib{os.sep}__init__",
)  # fmt: skip
"""Parts of the file names of frames that a traceback leaves out: those of headcount, torch and importlib."""


def run_user_code(
    reason: str, function: Callable[[], Any], unchanged: tuple[type[Exception], ...] = (), traces_torch: bool = True
) -> Any:
    """Return the result of ``function``. Raise its errors, but for the ``unchanged`` types, as UserCodeError.

    Its interrupts too: the process of user code receives none. The error has the traceback of the user's frames, if
    any; without ``traces_torch`` not for an error that torch raises.
    """
    try:
        return function()
    except unchanged:
        raise
    except BaseException as error:
        summary = traceback.TracebackException.from_exception(error)
        # the message of an exception whose __str__ raises is replaced here
        name, message = type(error).__name__, str(summary)
        frames = [frame for frame in summary.stack if not any(part in frame.filename for part in _HIDDEN_FRAMES)]
        if not traces_torch and frames and frames[-1] is not summary.stack[-1]:
            frames = []
        lines = ["Traceback (most recent call last):\n", *traceback.StackSummary.from_list(frames).format()]
        trace = "".join([*lines, f"{name}: {message[:LONGEST]}"]) if frames else ""
        raise UserCodeError(f"{reason} {describe_failure(name, message)}", trace=trace) from error
