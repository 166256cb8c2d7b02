"""``hc.count``: count a module, a function or a named model from Python.

The number is the same for torch.matmul, @, einsum, fused attention or grouped products, on cpu, cuda or meta. Attention
is the whole square of scores, whatever a mask or its blocks leave out; FlexAttention's functions of one score count for
each. A product of complex numbers is one, and sparse and nested operands count the elements that they store.

A copy of the module runs: the module is not changed, and random numbers advance as by one call. What Python cannot copy
(a lock, a file, FSDP), globals, attributes of classes, caches of functions and the objects in closures that are no
module, tensor or optimiser are the caller's: what ``forward`` changes there stays changed, as does what a kernel writes
through an address on a GPU. Other threads may run modules and compile meanwhile; one thread counts at a time, and the
others wait. Work that ``forward`` gives to other threads or processes is an unsupported operation; it is not seen where
they run before the count, run no module of the model and keep what they return.
"""

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from headcount.bench.case import Case, resolve_lengths
from headcount.bench.contractions.linalg import Formula
from headcount.bench.counting.agreement import with_active_params, with_stated
from headcount.bench.counting.count import count
from headcount.bench.counting.keywords import UnknownKeywords, ignored_keywords, parameters_of, unknown_keywords
from headcount.bench.counting.other_tools import ARGUMENTS, NONE_IS_MEANT, argument_error
from headcount.bench.counting.result import Count
from headcount.bench.counting.run import REPORT, SIZES_READ, count_contractions, inputs_of, reads_inputs
from headcount.bench.counting.sizes import (
    EXAMPLE,
    IDS,
    is_numbers,
    keyword_sizes,
    make_inputs,
    positional_sizes,
    takes_ids,
)
from headcount.bench.counting.tools import ModuleCall
from headcount.bench.errors import Option, OptionError, excerpt, flag
from headcount.bench.targets.target import parse_target
from headcount.bench.targets.user_code import accepts
from headcount.bench.trace.garbage_collector import no_full_gc
from headcount.bench.trace.record import record
from headcount.models.configs.base import AttentionConfig, ConfigError, ModelConfig
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.suggest import did_you_mean, join_or
from headcount.models.configs.targets import LENGTHS, has_closed_form, is_configuration, read, split, split_lengths


class FunctionModule(nn.Module):
    """A function as a module; of a module's method, that module is inside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, nn.Module):
            self.owner = owner
            self.training = owner.training
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        # rows of modules have the names of classes
        self.__class__ = type(self.name, (FunctionModule,), {})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


def resolve_call(
    model: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    input_size: Sequence[Any] | Mapping[str, Any] | None = None,
    dtypes: Sequence[torch.dtype | str] | torch.dtype | str | None = None,
) -> ModuleCall:
    """Return the module and the inputs that count_macs' arguments name.

    Raises TypeError where ``model`` is None, a class or anything else that cannot run, and for missing inputs,
    ValueError for inputs beside ``input_size`` and for sizes that are no integers, and what models.build raises.
    """
    if isinstance(model, Case):
        # what a count of the caller's own module does without
        from headcount.models.build import build_call

        model, inputs, kwargs = build_call(model.config, model.lengths, device="meta", dtype=torch.bfloat16)
    _check_callable(model)
    if len(inputs) == 1 and isinstance(inputs[0], Mapping) and (sizes := keyword_sizes(model, (), inputs[0])):
        inputs, kwargs = (), {**inputs[0], **kwargs, **sizes}
    size, named_sizes = positional_sizes(model, inputs), keyword_sizes(model, inputs, kwargs)
    module, inputs, kwargs = _as_module(model, () if size is not None else inputs, dict(kwargs))
    if input_size is not None and (inputs or size is not None):
        raise ValueError("give inputs or input_size, not both")
    size = input_size if size is None else size
    if size is not None:
        inputs, made = make_inputs(module, size, dtypes)
        kwargs, dtypes = {**kwargs, **made}, None
    if named_sizes:
        kwargs = {**kwargs, **make_inputs(module, named_sizes, dtypes)[1]}
    args, kwargs = unpack(module, inputs, kwargs)
    _check_inputs(module, args, kwargs)
    return module, args, kwargs


def _check_callable(model: Any) -> None:
    """Raise TypeError, with what to give instead, for a class and for an object that does not run."""
    if isinstance(model, type):
        raise TypeError(f"cannot count the class {model.__name__}: call it, {model.__name__}(…), and give the result")
    if not callable(model) and not isinstance(model, torch.export.ExportedProgram):
        raise TypeError(f"cannot count an object of type {type(model).__name__}: {_what_to_give(model)}")


def _as_module(model: Any, inputs: Sequence[Any], kwargs: dict[str, Any]) -> ModuleCall:
    """Return an exported program, what a function of settings makes, or any other function as a module with inputs."""
    if isinstance(model, nn.Module):
        return model, inputs, kwargs
    if isinstance(model, torch.export.ExportedProgram):
        return model.module(), *((inputs, kwargs) if inputs or kwargs else model.example_inputs)
    # a factory such as make() has settings as arguments, never tensors, and is no function in C, as torch.matmul
    has_inputs = inputs or inspect.isbuiltin(model) or any(isinstance(value, Tensor) for value in kwargs.values())
    made = None if has_inputs or not accepts(model, (), kwargs) else model(**kwargs)
    if isinstance(made, nn.Module):
        return made, inputs, {}
    if isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[0], nn.Module):
        return made[0], (made[1],), {}
    return FunctionModule(model), inputs, kwargs


def _check_inputs(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UnknownKeywords for keywords that a module does not take, and InputsMissing where it needs inputs."""
    called = _called(module)
    if unknown := unknown_keywords(called, kwargs):
        inputs = parameters_of(called)
        # a tensor is an input, and no misspelt option
        known = inputs if all(isinstance(kwargs[name], Tensor) for name in unknown) else (*inputs, *OPTIONS)
        takes = f"; its forward takes {', '.join(inputs)}" if isinstance(module, nn.Module) and inputs else ""
        raise UnknownKeywords(_name_of(module), unknown, known, takes)
    if not args and not kwargs and not isinstance(module, FunctionModule) and not accepts(module.forward, (), {}):
        raise InputsMissing(module)


def _called(module: nn.Module) -> Callable[..., Any]:
    """Return the function that takes the inputs of a module."""
    return module.function if isinstance(module, FunctionModule) else module.forward


def _name_of(module: nn.Module) -> str:
    return module.name if isinstance(module, FunctionModule) else type(module).__name__


def _without_absent(model: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords without the options of other tools that are None, which is their default."""
    absent = {name for name, value in kwargs.items() if value is None and name in {*ARGUMENTS} - {*NONE_IS_MEANT}}
    unknown = ignored_keywords(model, dict.fromkeys(absent), OPTIONS) if absent and callable(model) else absent
    return {name: value for name, value in kwargs.items() if name not in unknown}


def _check_ignored(module: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Raise UnknownKeywords for those that only the ``**kwargs`` of a module or a function takes."""
    if ignored := ignored_keywords(module.function if isinstance(module, FunctionModule) else module, kwargs, OPTIONS):
        known = (*parameters_of(_called(module)), *OPTIONS)
        given = ", ".join(f"{name!r}: …" for name in ignored)
        reason = f"; only its **kwargs would take {join_or(ignored)}, as kwargs={{{given}}} does"
        raise UnknownKeywords(_name_of(module), ignored, known, reason)


class InputsMissing(TypeError):
    """A module that was given no inputs, and does not run without."""

    def __init__(self, module: nn.Module) -> None:
        names = ", ".join(inspect.signature(module.forward).parameters)
        super().__init__(
            f"{type(module).__name__} takes {names}: give tensors, or sizes, as "
            f"hc.count(model, {IDS if takes_ids(module) else EXAMPLE})"
        )


def _what_to_give(model: Any) -> str:
    """Return what to give in place of an object that does not run."""
    if isinstance(model, list | tuple):
        return "count each model by itself, [hc.count(one, x) for one in models]"
    if isinstance(model, Mapping):
        return "give the module that holds these weights"
    if hasattr(model, "save_pretrained"):
        return "config.save_pretrained('folder') writes it, and hc.count('folder/config.json', T=128) counts its model"
    return (
        "give an nn.Module, a function, as hc.count(lambda: model(x)), an ExportedProgram, or a function that returns "
        "(module, inputs)"
    )


NAMED = (str, PathLike, AttentionConfig, ModelConfig)
"""Types of what names a model, or is the configuration of a preset or a layer."""


def named_model(model: Any, keywords: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return ``model`` with its sizes among ``keywords``, and the other keywords.

    The name or configuration of a preset or a layer is a Case, a configuration's file or name in the hub a text with
    words; anything else is as it was. Raises what named_case does.
    """
    if isinstance(model, PathLike):
        model = fspath(model)
    if not isinstance(model, NAMED):
        return model, dict(keywords)
    sizes = {name: value for name, value in keywords.items() if isinstance(value, Integral | str)}
    words = [f"{name}={value}" for name, value in sizes.items() if name not in OPTIONS]
    rest = {name: value for name, value in keywords.items() if name in OPTIONS or name not in sizes}
    if not isinstance(model, str):
        others, lengths = split_lengths(words)
        if others:
            raise argument_error(type(model).__name__, [one.partition("=")[0] for one in others], LENGTHS)
        return Case(model.variant, model, resolve_lengths(model, lengths)), rest
    text = ",".join([model, *words])
    if is_configuration(split(text)[0]):
        return text, rest
    try:
        return named_case(text), rest
    except ConfigError:
        _check_arguments(model, keywords)
        raise


def _check_arguments(taker: str, names: Iterable[str]) -> None:
    """Raise TypeError for names of arguments of other tools."""
    if others := [name for name in names if name in ARGUMENTS]:
        raise argument_error(taker, others, ()) from None


def named_case(text: str) -> Case:
    """Return a preset or a layer by letters: ``llama3-8b,T=1024``.

    Raises ValueError for any other text, and ConfigError for a field, a value or a length that does not exist.
    """
    spec, _ = split(text)
    if not has_closed_form(spec):
        near = did_you_mean(spec, PRESETS)
        if ":" in spec or spec.endswith(".py"):
            other = f"the command counts code of yours: headcount count {text}, with --input SIZES of a model alone"
        else:
            other = (
                f"a model of the Hugging Face hub is 'hf:{spec}', a configuration 'config.json', your own a module, as "
                "torchvision.models.NAME() and timm.create_model(NAME) return"
            )
        raise ValueError(f"{text!r} is no preset and no layer{near}; {other}")
    name, fields, lengths = read(text)
    return Case.of(name, fields, lengths, called=text)


KEYWORDS = (*LENGTHS, "formula_set", "elementwise", "allow_unsupported")
"""Options of the command that a count of a name has as keywords; --set is any other keyword."""


def _write_keywords(error: OptionError) -> None:
    """Write the options of an error as keywords of a count, and name the command of those that are none."""

    def keyword(option: Option) -> str:
        if option.name == "set":
            return str(option.value)
        if option.name not in KEYWORDS:
            return str(option)
        return option.name if option.value is None else f"{option.name}={option.value!r}"

    ending = error.ending([flag(name) for name in (*KEYWORDS, "set")])
    error.args, error.advice = (f"{error.text(keyword)}{ending}",), ()


def unpack(module: nn.Module, inputs: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the inputs, a single mapping as keywords and a single tuple as positions where ``forward`` takes them.

    A single list is one input where ``forward`` takes one, but for a list of a mapping of its keywords.
    """
    args = tuple(inputs)
    only = args[0] if len(args) == 1 else None
    if isinstance(only, list) and len(only) == 1 and isinstance(only[0], Mapping):
        only = only[0]
    if not isinstance(only, Mapping | tuple | list):
        return args, kwargs
    if isinstance(only, list) and accepts(module.forward, args, kwargs):
        return args, kwargs
    unpacked = ((), {**only, **kwargs}) if isinstance(only, Mapping) else (tuple(only), kwargs)
    return unpacked if accepts(module.forward, *unpacked) else (args, kwargs)


def _made_from_sizes(args: Sequence[Any], kwargs: Mapping[str, Any], given: Any) -> list[Tensor]:
    """Return the tensors among the inputs where none that was ``given`` is one."""
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves(given)):
        return []
    return [leaf for leaf in tree_leaves((list(args), dict(kwargs))) if isinstance(leaf, Tensor)]


def _runs(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], change: Callable) -> bool:
    """Return whether a module runs with each tensor of its inputs changed."""
    try:
        record(module, *tree_map_only(Tensor, change, (tuple(args), dict(kwargs))))
    except Exception:
        return False
    return True


def _with_other_type(tensor: Tensor) -> Tensor:
    """Return ids in place of numbers, and numbers in place of ids."""
    return torch.zeros_like(tensor, dtype=torch.long if tensor.is_floating_point() else torch.float32)


def _hint(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Tensor]) -> str:
    """Return what may be wrong with the inputs of a module that does not run on them; empty where nothing is seen.

    ``made``: the tensors that were made from sizes.
    """
    leaves = tree_leaves((list(args), dict(kwargs)))
    if made:
        sizes = [tuple(tensor.shape) for tensor in made]
        listed = ", ".join(f"{size} of {one.dtype}" for size, one in zip(sizes, made, strict=True))
        advice = ""
        if _runs(module, args, kwargs, lambda tensor: tensor[None]):
            advice = f": the first number is the batch, without one {(1, *sizes[0])} is meant"
        elif _runs(module, args, kwargs, _with_other_type):
            types = [str(_with_other_type(tensor).dtype).removeprefix("torch.") for tensor in made]
            advice = f": other types are meant, dtypes={types}"
        return f"the inputs were made from sizes, {listed}{advice}"
    if isinstance(module, FunctionModule):
        # it may take anything
        return ""
    if all(isinstance(leaf, Real | str | None) for leaf in leaves):
        return f"no input is a tensor: give tensors, or sizes, as hc.count(model, {EXAMPLE})"
    if any(map(is_numbers, (*args, *kwargs.values()))):
        return "a size stands for an input where no other is a tensor: give tensors alone, or sizes alone"
    if len(args) == 1 and isinstance(args[0], list):
        return "the input is a list: inputs stand behind each other, hc.count(model, x, y)"
    return ""


@no_full_gc
def count_macs(
    model: Any = None,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    input_size: Sequence[Any] | Mapping[str, Any] | None = None,
    dtypes: Sequence[torch.dtype | str] | torch.dtype | str | None = None,
    backward: bool = False,
    training: bool = False,
    allow_unsupported: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    formula_set: str | None = None,
    elementwise: str = REPORT,
    **forward: Any,
) -> Count:
    """Run ``model(*inputs, **kwargs)`` once and count every contraction: ``.macs``, ``.ledger``, ``.audit``.

    Args:
        model: a module, a function, a ``torch.export.ExportedProgram`` (with its example inputs), a function of
            settings that returns (module, inputs), the name of a preset or a layer, ``"llama3-8b,T=1024"``, what
            hc.preset returns, or a configuration, ``"config.json,T=1024"``, which is counted in a separate process.
        inputs: tensors, or sizes in their places where no input is a tensor. A single mapping, as a tokenizer's result,
            or tuple is unpacked, a list where ``forward`` takes several inputs.
        kwargs: keyword inputs whose names are options here, and what is no tensor and only ``**kwargs`` takes.
        input_size: makes the inputs: ``(1, 3, 224, 224)``, a list of sizes or sizes by name.
        dtypes: the types of sizes, ``[torch.long]`` or ``["long"]``.
        backward: add the gradients of all trainable parameters and floating-point inputs.
        training: run in training mode, with ``backward`` too with activation checkpointing as in training.
        allow_unsupported: leave operations that may hold products and have no rule in ``.unsupported``.
        formulas: MACs of such operations by name,
            ``{"mylib.my_op": lambda event: event.args[0].numel * event.out.shape[-1]}``.
        formula_set: "linalg" counts decompositions, solvers and FFTs by the formulas of bench.contractions.linalg.
        elementwise: a product written elementwise and summed, ``(a * b).sum(-1)`` (bench.contractions.elementwise), is
            listed in ``.elementwise`` and counted in ``.with_elementwise`` ("report"), is a part of ``.macs``
            ("include"), or raises ElementwiseError ("refuse").
        forward: other keyword inputs, ``input_ids=ids``; of a name its sizes and fields, ``T=1024``.

    Raises:
        UnsupportedError: operations without a rule, with shapes and module path, unless ``allow_unsupported``.
        TypeError, ValueError: as resolve_call, and for inputs with which the module does not run.
        Exception: whatever the module raises.
    """
    rules = {"allow_unsupported": allow_unsupported, "formula_set": formula_set, "elementwise": elementwise}
    passes = {"backward": backward, "training": training}
    model, forward = named_model(model, _without_absent(model, forward))
    if isinstance(model, Case | str) and (inputs or kwargs or forward or input_size is not None):
        name = model.name if isinstance(model, Case) else model
        _check_arguments(name, forward)
        raise ValueError(
            f"{name} is counted on the inputs that it takes; its lengths are words, T=128,B=2, or keywords"
        )
    if isinstance(model, str):
        if formulas:
            raise ValueError(f"{model} is counted in another process, which takes no formulas")
        return _count_configuration(model, **rules, **passes)
    if isinstance(model, Case) and not model.config.has_module:
        return count(model)
    given = {**(kwargs or {}), **forward}
    module, args, keywords = resolve_call(model, inputs, given, input_size, dtypes)
    _check_ignored(module, {name: value for name, value in forward.items() if name in keywords})
    # what a factory or a program made itself is not from sizes
    is_given = module is model or isinstance(module, FunctionModule)
    made = _made_from_sizes(args, keywords, [*inputs, given]) if is_given else []
    try:
        trace = record(module, args, keywords, **passes)
    except Exception as error:
        _check_arrays(error, args, keywords)
        if not args and not keywords and not isinstance(module, FunctionModule):
            raise InputsMissing(module) from error
        if is_given and (hint := _hint(module, args, keywords, made)):
            raise ValueError(f"{type(error).__name__}: {excerpt(error)}; {hint}") from error
        raise
    found = count_contractions(trace, formulas=formulas, inputs=inputs_of(args, keywords), **rules)
    if isinstance(model, Case):
        return with_active_params(found, model.ledger)
    if made and reads_inputs(trace):
        note = SIZES_READ.format("ones, and zeros of integers")
        found = found.with_values(notes=(*(found.notes or ()), note))
    return with_stated(found, module)


def _count_configuration(text: str, **options: Any) -> Count:
    """Return the count of a configuration with words, ``config.json,T=128``; its errors name keywords of Python."""
    try:
        return count(parse_target(text, Namespace(set=[], input=[], **options)))
    except OptionError as error:
        _check_arguments(text, [one.value for one in error.options if one.name == "set"])
        _write_keywords(error)
        raise


def _check_arrays(error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError where a module that raised ``error`` has an array among its inputs."""
    leaves = (leaf for leaf in tree_leaves((args, kwargs)) if not isinstance(leaf, Tensor))
    if arrays := [leaf for leaf in leaves if hasattr(leaf, "__array_interface__")]:
        reason = f"{type(arrays[0]).__name__}: {excerpt(error)}"
        raise TypeError(f"an input is an array, {reason}; torch.from_numpy(x) makes a tensor") from None


OPTIONS = [name for name, one in inspect.signature(count_macs).parameters.items() if one.kind is one.KEYWORD_ONLY]
"""Keywords of a count that are no inputs."""
