"""Count MACs from Python, for tests of your own models.

from headcount.bench.api import assert_macs, count_macs

def test_my_attention_costs_what_the_paper_says():
    equation = "T*d*E + 2*K*T*d*D + 2*T*d*D + 2*K*T*T*D"
    assert_macs(MyMoA(...), x, expected=equation, T=128, d=512, E=32, K=8, D=64)
"""

import inspect
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike, fspath
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headcount.bench.case import Case, resolve_lengths
from headcount.bench.contractions import module_tree
from headcount.bench.contractions.elementwise import CONTRACTION
from headcount.bench.contractions.linalg import Formula
from headcount.bench.contractions.module_tree import merged
from headcount.bench.contractions.modules import ModuleRecord, parameter_records
from headcount.bench.counting.agreement import with_active_params
from headcount.bench.counting.count import count
from headcount.bench.counting.other_tools import argument_error, attribute_error
from headcount.bench.counting.result import Count
from headcount.bench.counting.run import REPORT, count_contractions, inputs_of
from headcount.bench.counting.tools import ModuleCall
from headcount.bench.errors import excerpt
from headcount.bench.targets.target import flag, parse_target
from headcount.bench.targets.user_code import accepts
from headcount.bench.trace.garbage_collector import no_full_gc
from headcount.bench.trace.record import record
from headcount.formulas.published.expressions import evaluate
from headcount.models.configs.base import AttentionConfig, ModelConfig
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.suggest import did_you_mean
from headcount.models.configs.targets import (
    LENGTH_OF_LETTER,
    LENGTHS,
    has_closed_form,
    is_configuration,
    read,
    split,
    split_lengths,
)


class FunctionModule(nn.Module):
    """A function as a module; of a module's method, that module is inside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, nn.Module):
            self.owner = owner
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


def resolve_call(
    model: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    input_size: Sequence[Any] | None = None,
    dtypes: Sequence[torch.dtype] | torch.dtype | None = None,
) -> ModuleCall:
    """Return the module and the inputs that count_macs' arguments name.

    Raises TypeError where ``model`` is None, a class or anything else that cannot run, and for missing inputs,
    ValueError for inputs beside ``input_size`` and for sizes that are no integers, and what models.build raises.
    """
    if isinstance(model, Case):
        # what a count of the caller's own module does without
        from headcount.models.build import build_call

        model, inputs, kwargs = build_call(model.config, model.lengths, device="meta", dtype=torch.bfloat16)
    if isinstance(model, type):
        raise TypeError(f"cannot count the class {model.__name__}: call it, {model.__name__}(…), and give the result")
    if not callable(model) and not isinstance(model, torch.export.ExportedProgram):
        raise TypeError(f"cannot count an object of type {type(model).__name__}: {_what_to_give(model)}")
    kwargs = dict(kwargs)
    # of one input, or of several behind each other
    given = inputs[0] if len(inputs) == 1 else list(inputs)
    if _are_sizes(given):
        if input_size is not None:
            raise ValueError("give inputs or input_size, not both")
        inputs, input_size = (), given
    if isinstance(model, torch.export.ExportedProgram):
        inputs, kwargs = (inputs, kwargs) if inputs or kwargs else model.example_inputs
        model = model.module()
    elif not isinstance(model, nn.Module):
        # a factory such as make() has settings as arguments, never tensors
        has_inputs = inputs or any(isinstance(value, Tensor) for value in kwargs.values())
        made = None if has_inputs or not accepts(model, (), kwargs) else model(**kwargs)
        if isinstance(made, nn.Module):
            model, kwargs = made, {}
        elif isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[0], nn.Module):
            model, inputs, kwargs = made[0], (made[1],), {}
        else:
            model = FunctionModule(model)
    if input_size is not None and inputs:
        raise ValueError("give inputs or input_size, not both")
    if input_size is not None:
        inputs = make_inputs(model, input_size, dtypes)
    args, kwargs = unpack(model, inputs, kwargs)
    called = model.function if isinstance(model, FunctionModule) else model.forward
    if unknown := _unknown_keywords(called, kwargs):
        named = model.name if isinstance(model, FunctionModule) else type(model).__name__
        raise argument_error(named, unknown, (*inspect.signature(called).parameters, *OPTIONS))
    if not args and not kwargs and not isinstance(model, FunctionModule) and not accepts(model.forward, (), {}):
        names = ", ".join(inspect.signature(model.forward).parameters)
        raise TypeError(
            f"{type(model).__name__} takes {names}: give tensors, or sizes, as hc.count(model, (1, 3, 224, 224))"
        )
    return model, args, kwargs


def _what_to_give(model: Any) -> str:
    """Return what to give in place of an object that does not run."""
    if isinstance(model, list | tuple):
        return "count each model by itself, [hc.count(one, x) for one in models]"
    if isinstance(model, Mapping):
        return "give the module that holds these weights"
    if hasattr(model, "save_pretrained"):
        return "config.save_pretrained('folder') writes it, and hc.count('folder/config.json', T=128) counts its model"
    return "give an nn.Module, a function, an ExportedProgram, or a function that returns (module, inputs)"


def _are_sizes(value: Any) -> bool:
    """Return whether ``value`` is a size, a tuple of integers, or a list of sizes: no module takes that as data."""
    several = isinstance(value, list) and all(isinstance(one, tuple) for one in value)
    sizes = value if several else [value]
    return bool(sizes) and all(isinstance(one, tuple) and one and _is_size(one) for one in sizes)


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
    return text if is_configuration(split(text)[0]) else named_case(text), rest


def named_case(text: str) -> Case:
    """Return a preset or a layer by letters: ``llama3-8b,T=1024``.

    Raises ValueError for any other text, and ConfigError for a field, a value or a length that does not exist.
    """
    spec, _ = split(text)
    if not has_closed_form(spec):
        near = did_you_mean(spec, PRESETS)
        if ":" in spec or spec.endswith(".py"):
            other = f"the command counts code of yours: headcount count {text}"
        else:
            other = f"a model of the Hugging Face hub is 'hf:{spec}', a configuration 'config.json', your own a module"
        raise ValueError(f"{text!r} is no preset and no layer{near}; {other}")
    name, fields, lengths = read(text)
    return Case.of(name, fields, lengths, called=text)


def _in_python(text: str) -> str:
    """Return an error of a command with its options as keywords of a count, and the command of those that are none."""
    keywords = {flag(name): name for name in (*LENGTHS, "formula_set", "elementwise", "allow_unsupported")}

    def keyword(found: re.Match[str]) -> str:
        option, value = found.groups()
        if option not in keywords:
            return found[0]
        if option == "--allow-unsupported":
            value = "True"
        elif value and value[0].islower():
            value = repr(value)
        return f"{keywords[option]}={value}" if value else keywords[option]

    text = re.sub(r"(--[a-z][a-z-]*)(?: (\d+|N\b|linalg\b|report\b|include\b))?", keyword, text.replace("--set ", ""))
    others = dict.fromkeys(re.findall(r"--[a-z][a-z-]*", text))
    return f"{text}; headcount count takes {', '.join(others)}" if others else text


def unpack(module: nn.Module, inputs: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the inputs, a single mapping as keywords and a single tuple as positions where ``forward`` takes them."""
    args = tuple(inputs)
    only = args[0] if len(args) == 1 else None
    if not isinstance(only, Mapping | tuple):
        return args, kwargs
    unpacked = ((), {**only, **kwargs}) if isinstance(only, Mapping) else (only, kwargs)
    return unpacked if accepts(module.forward, *unpacked) else (args, kwargs)


def _unknown_keywords(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the keywords that ``function`` does not take; none of one in C++, which has no signature."""
    try:
        known = inspect.signature(function).parameters
    except ValueError:
        return []
    takes_all = any(one.kind is one.VAR_KEYWORD for one in known.values())
    return [] if takes_all else [name for name in kwargs if name not in known]


def make_inputs(
    module: nn.Module, input_size: Sequence[Any], dtypes: Sequence[torch.dtype] | torch.dtype | None = None
) -> tuple[Tensor, ...]:
    """Return a tensor for each size: ones, or zeros of a type for integers, on the device of the module.

    ``input_size`` is one size or a list of sizes, ``dtypes`` a type or one for each size (default: the weights', or
    long where the first layer is an embedding). Raises ValueError for anything else.
    """
    sizes = list(input_size) if isinstance(input_size, Sequence) else [None]
    sizes = [sizes] if all(isinstance(size, int) for size in sizes) else sizes
    weight = next((one for one in module.parameters() if one.is_floating_point()), torch.empty(0))
    first = next((one for one in module.modules() if not [*one.children()] and [*one.parameters()]), None)
    usual = torch.long if isinstance(first, nn.Embedding | nn.EmbeddingBag) else weight.dtype
    types = [dtypes or usual] * len(sizes) if not isinstance(dtypes, Sequence) else list(dtypes)
    if len(types) != len(sizes) or not all(map(_is_size, sizes)):
        raise ValueError(
            f"input_size={input_size!r} with dtypes={dtypes!r}: give (1, 3, 224, 224) or a list of such sizes, and a "
            "type for each"
        )
    return tuple(
        torch.full(tuple(size), int(dtype.is_floating_point), dtype=dtype, device=weight.device)
        for size, dtype in zip(sizes, types, strict=True)
    )


def _is_array(value: Any) -> bool:
    """Return whether ``value`` is an array of numpy or of a library with its interface, and no tensor."""
    return hasattr(value, "__array_interface__") and not isinstance(value, Tensor)


def _is_size(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(part, int) and part >= 0 for part in value)


@no_full_gc
def count_macs(
    model: Any,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    input_size: Sequence[Any] | None = None,
    dtypes: Sequence[torch.dtype] | torch.dtype | None = None,
    backward: bool = False,
    training: bool = False,
    allow_unsupported: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    formula_set: str | None = None,
    elementwise: str = REPORT,
    **forward: Any,
) -> Count:
    """Run ``model(*inputs, **kwargs)`` once and count every contraction: ``.macs``, ``.ledger``, ``.audit``.

    Other keywords go to ``forward`` (``input_ids=ids``); ``kwargs`` holds those whose names are options here. A single
    mapping, as a tokenizer's result, or tuple is unpacked. ``input_size`` makes the inputs: ``(1, 3, 224, 224)``, or a
    list of sizes, with their ``dtypes``; it may be the only input. ``model`` may also be a function, a
    ``torch.export.ExportedProgram`` (with its example inputs), a function of settings that returns (module, inputs),
    the name of a preset or a layer, ``"llama3-8b,T=1024"``, what hc.preset returns, or the path of a configuration,
    ``"config.json,T=1024"``, which is counted in a separate process; sizes may be keywords too: ``count("llama3-8b",
    T=1024)``.

    The number is the same for torch.matmul, @, einsum, fused attention or grouped products, on cpu, cuda or meta,
    ``backward`` too. Attention is the whole square of scores, whatever a mask or its blocks leave out; FlexAttention's
    functions of one score count for each; a product of complex numbers is one; sparse and nested operands count the
    elements that they store.
    A product written elementwise and summed afterwards, ``(a * b).sum(-1)``, is a contraction too
    (bench.contractions.elementwise). By ``elementwise`` it is listed in ``.elementwise`` and counted in
    ``.with_elementwise`` ("report"), is a part of ``.macs`` ("include"), or raises ElementwiseError ("refuse").
    ``backward`` adds the gradients of all trainable parameters and floating-point inputs. ``formulas`` give the MACs of
    unsupported operations by name: ``{"mylib.my_op": lambda event: event.args[0].numel * event.out.shape[-1]}``.
    ``formula_set="linalg"`` counts matrix decompositions, solvers and FFTs by the stated formulas of
    bench.contractions.linalg.
    A copy of the module runs, in eval mode unless ``training``: the module is not changed, and random numbers advance
    as by one call. What Python cannot copy (a lock, a file, FSDP), globals, attributes of classes, caches of functions
    and the objects in closures that are no module, tensor or optimiser are the caller's: what ``forward`` changes there
    stays changed, as does what a kernel writes through an address on a GPU.
    Other threads may run modules and compile meanwhile; one thread counts at a time, and the others wait. Work that
    ``forward`` gives to other threads or processes is an unsupported operation; it is not seen where they run before
    the count, run no module of the model and keep what they return.

    Raises UnsupportedError (operation, shapes, module path) for operations that may hold products and have no rule;
    ``allow_unsupported`` leaves them in ``.unsupported`` instead. Raises what resolve_call does; whatever the module
    raises passes through.
    """
    options = {"allow_unsupported": allow_unsupported, "formulas": formulas, "formula_set": formula_set}
    model, forward = named_model(model, forward)
    case = model if isinstance(model, Case) else None
    if (case or isinstance(model, str)) and (inputs or kwargs or forward or input_size is not None):
        name = case.name if case else model
        raise ValueError(
            f"{name} is counted on the inputs that it takes; its lengths are words, T=128,B=2, or keywords"
        )
    if isinstance(model, str):
        if training or formulas:
            raise ValueError(f"{model} is counted in another process, which takes neither training nor formulas")
        chosen = {"allow_unsupported": allow_unsupported, "formula_set": formula_set, "elementwise": elementwise}
        try:
            return count(parse_target(model, Namespace(set=[], input=[], backward=backward, **chosen)))
        except Exception as error:
            error.args = tuple(_in_python(part) if isinstance(part, str) else part for part in error.args)
            raise
    if case and not case.config.has_module:
        return count(case)
    module, args, kwargs = resolve_call(model, inputs, {**(kwargs or {}), **forward}, input_size, dtypes)
    try:
        trace = record(module, args, kwargs, backward=backward, training=training)
    except Exception as error:
        if arrays := [leaf for leaf in tree_leaves((args, kwargs)) if _is_array(leaf)]:
            reason = f"{type(arrays[0]).__name__}: {excerpt(error)}"
            raise TypeError(f"an input is an array, {reason}; torch.from_numpy(x) makes a tensor") from None
        if input_size is not None or (inputs and _are_sizes(inputs[0] if len(inputs) == 1 else list(inputs))):
            sizes = [tuple(tensor.shape) for tensor in args]
            made = ", ".join(f"{size} of {str(one.dtype)}" for size, one in zip(sizes, args, strict=True))
            error.add_note(
                f"The inputs were made from sizes, {made}: the first number is the batch, without one {(1, *sizes[0])} "
                "is meant; dtypes are the types."
            )
        raise
    found = count_contractions(trace, elementwise=elementwise, inputs=inputs_of(args, kwargs), **options)
    return with_active_params(found, case.ledger) if case else found


OPTIONS = [name for name, one in inspect.signature(count_macs).parameters.items() if one.kind is one.KEYWORD_ONLY]
"""Keywords of a count that are no inputs."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a module that did not run, by module; it prints as a tree of ``depth`` levels."""

    name: str
    modules: tuple[ModuleRecord, ...]
    depth: int | None = 3

    @property
    def params(self) -> int:
        """All parameters, each tensor once."""
        return sum(one.params for one in self.modules)

    @property
    def trainable_params(self) -> int:
        """Parameters that require gradients."""
        return sum(one.trainable_params for one in self.modules)

    def __getattr__(self, name: str) -> Any:
        raise attribute_error(type(self), name)

    def __str__(self) -> str:
        return module_tree.text(module_tree.parameters_table(self.name, self.modules, self.depth))

    __repr__ = __str__


def summary(
    model: Any,
    *inputs: Any,
    depth: int | None = 3,
    input_data: Any = None,
    verbose: int = 1,
    col_names: Any = None,
    col_width: int | None = None,
    row_settings: Any = None,
    **options: Any,
) -> Count | Parameters:
    """Count as ``count_macs`` does; the result prints as a tree of ``depth`` levels, all of them for None.

    A module without inputs does not run: its parameters are printed. Of torchinfo's options, ``input_data`` are the
    inputs, ``device`` must be that of the weights, and ``verbose``, ``col_names``, ``col_width`` and ``row_settings``
    change nothing, as only the result prints, with every column. Raises TypeError for its other options.
    """
    if _is_on(model, options.get("device")):
        del options["device"]
    if input_data is not None:
        inputs = (*inputs, *(input_data if isinstance(input_data, list | tuple) else [input_data]))
    if isinstance(model, nn.Module) and not inputs and not options and not accepts(model.forward, (), {}):
        return Parameters(type(model).__name__, tuple(parameter_records(model)), depth)
    return count_macs(model, *inputs, **options).with_values(depth=depth)


def _is_on(model: Any, device: Any) -> bool:
    """Return whether ``device`` names the one of the module's weights, and is no input of the module itself."""
    if device is None or not isinstance(model, nn.Module) or not _unknown_keywords(model.forward, {"device": device}):
        return False
    weight, named = next(model.parameters(), torch.empty(0)), torch.device(device)
    return named.type == weight.device.type and named.index in (None, weight.device.index)


def assert_macs(model: Any, *inputs: Any, expected: str | int, **keywords: Any) -> None:
    """Fail with an AssertionError that lists every product unless the model's MACs are exactly ``expected``.

    ``inputs`` and keywords are count_macs'; ``expected`` is an integer, one with a unit, "1.8G", or an expression
    in the names of the other keywords that are integers: ``T=128``. Of a name they are its input lengths too. Raises
    ValueError for an expression that cannot be evaluated, TypeError for anything else, and what count_macs raises.
    """
    __tracebackhide__ = True
    sizes = {name: value for name, value in keywords.items() if type(value) is int}
    wanted = _expected(expected, sizes) if isinstance(expected, str) else expected
    if not isinstance(wanted, Integral) or isinstance(wanted, bool):
        raise TypeError(f"expected={expected!r}: give an integer or an expression")
    if isinstance(model, NAMED):
        sizes = {name: size for name, size in sizes.items() if LENGTH_OF_LETTER.get(name, name) not in LENGTHS}
    counted = count_macs(model, *inputs, **{name: keywords[name] for name in keywords.keys() - sizes.keys()})
    if counted.macs != wanted:
        less = f"{counted.macs - wanted:+,}"
        which = f" ({counted.headline})" if counted.with_elementwise != counted.dispatched else ""
        lines = [f"{counted.macs:,} multiply-accumulates{which}, expected {wanted:,} = {expected} ({less})"]
        for entry in merged(counted.ledger):
            sizes_text = " ".join(f"{letter}={size}" for letter, size in entry.dims.items())
            lines.append(f"  {entry.size:>15,}  {entry.path or '(model)'}  {entry.kind}  {entry.times} x {sizes_text}")
        if not counted.included:
            products = counted.run.elementwise_products
            lines += [f"  not in it: {part.text()}" for part in products if part.kind == CONTRACTION]
        raise AssertionError("\n".join(lines))


def _expected(text: str, sizes: Mapping[str, int]) -> Any:
    try:
        return parse_int(text)
    except ValueError:
        return evaluate(text, sizes)
