"""A target: what a command counts, as the user names it. Imports no torch."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headcount.bench.contractions import linalg
from headcount.bench.errors import Option, UsageError, flag, read_file
from headcount.bench.hardware import TORCH_DTYPES
from headcount.formulas.published.expressions import evaluate
from headcount.models.configs import targets
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import PRESETS
from headcount.models.configs.targets import LENGTHS, has_closed_form, is_configuration, is_layer

DTYPES = (
    "float float16 float32 float64 bfloat16 half double int int8 int16 int32 int64 long short uint8 bool complex64"
).split()
"""Types of tensors by torch's names."""
SHORT_DTYPES = {short: name for name, short in TORCH_DTYPES.items()}
"""Names of torch's types by those of data sheets."""


SHIPPED = "transformers"
"""The plan that transformers ships with a model, in place of a user's function."""


@dataclass(frozen=True)
class Target:
    """A user module, a preset, a configuration file or a hub name, what is changed of it, and how it is counted.

    Args:
        spec: FILE.py:NAME, package.module:NAME, a preset, the variant of a layer, ``config.json`` or ``hf:NAME``.
        settings: keywords of the function or class, or fields of the configuration.
        inputs: texts of --input, as parse_input reads them.
        dtype: type of the weights, one of targets.target.DTYPES; None for the module's own.
        lengths: input lengths by their names in targets.target.LENGTHS.
        device, allow_unsupported, elementwise, formulas, formula_set, backward, training: options of the count.
        plan: divides the target over ranks, of which ``rank`` is counted: a function FILE.py:FUNCTION or SHIPPED, with
            ``ranks``, or of a preset a plan as formulas.plan reads it.
    """

    spec: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    dtype: str | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    device: str | None = None
    allow_unsupported: bool = False
    elementwise: str = "report"
    formulas: Mapping[str, str] = field(default_factory=dict)
    formula_set: str | None = None
    backward: bool = False
    training: bool = False
    plan: str | None = None
    ranks: int | None = None
    rank: int = 0

    @property
    def name(self) -> str:
        """TARGET or TARGET,NAME=VALUE,… of a command; that of a layer has its lengths."""
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.settings.items()}
        words = [f"{name}={value}" for name, value in values.items()]
        if not is_layer(self.spec):
            return ",".join((self.spec, *words))
        return f"{self.spec}:{','.join((*words, *(f'{name}={size}' for name, size in self.lengths.items())))}"

    @property
    def code(self) -> tuple[str, ...]:
        """The specs of the code that the count runs: the target's, and that of a function that divides it."""
        return (self.spec, self.plan) if self.plan not in (None, SHIPPED) and self.ranks else (self.spec,)

    def options(self) -> dict[str, Any]:
        """Return all but the spec and its settings by name."""
        return {name: value for name, value in vars(self).items() if name not in ("spec", "settings")}

    def described(self) -> dict[str, str]:
        """Return the spec, its settings and the options that differ from their defaults, as text."""
        defaults = Target("").options()
        found = {f"--set {name}": value for name, value in self.settings.items()}
        for name, value in self.options().items():
            if name == "lengths":
                found |= {f"--{length.replace('_', '-')}": size for length, size in value.items()}
            elif value != defaults[name]:
                found[name] = " ".join(value) if name == "inputs" else value
        return {"module": self.spec, **{name: str(value) for name, value in found.items()}}


def has_plans(spec: str) -> bool:
    """Return whether a plan as ``tp=8`` divides ``spec``, a preset or a configuration."""
    return is_configuration(spec) or spec in PRESETS


@dataclass(frozen=True)
class Values:
    """The content of an --input that has values: a number, a text, or lists and objects of them."""

    content: Any


def parse_input(text: str) -> tuple[str, list[int] | Values, str | None]:
    """Return name, sizes or values, and type of an --input text; the name is empty and the type None where not given.

    Raises UsageError for a text that is no ``[NAME=]SIZES[:DTYPE]``, ``NAME=[VALUES][:DTYPE]`` or ``NAME=@FILE.json``,
    for a size below 1, an unknown type and a file that cannot be read.
    """
    has_values = re.fullmatch(r"(?:(\w+)=)?(\[.*\]|@.+?\.json)(?::(\w*))?", text, re.DOTALL)
    name, equals, rest = text.rpartition("=")
    sizes, colon, dtype = rest.partition(":")
    try:
        if has_values:
            name, content, colon, dtype = has_values[1] or "", has_values[2], has_values[3] is not None, has_values[3]
            content = read_file(content[1:]) if content[0] == "@" else content
            found: list[int] | Values = Values(json.loads(content))
        elif equals and not name.isidentifier():
            raise ValueError
        else:
            # tables print sizes as 1x3x224x224
            found = [parse_int(size) for size in re.split("[,x×]", sizes)] if sizes else []
            if min(found, default=1) < 1:
                raise ValueError
    except (ValueError, RecursionError):
        raise UsageError(
            Option("input", text),
            ": it takes [NAME=]SIZES[:DTYPE], as 1,3,224,224 or ids=1,128:long, NAME=[VALUES] or NAME=@FILE.json",
        ) from None
    dtype = full_dtype(dtype or "")
    if colon and dtype not in DTYPES:
        raise UsageError(Option("input", text), f": unknown type {dtype!r}; choose from {', '.join(DTYPES)}")
    return name, found, dtype or None


def full_dtype(name: str) -> str:
    """Return the name that torch has for a type, ``bfloat16`` for ``bf16``; one that is not short is unchanged."""
    return SHORT_DTYPES.get(name, name)


def parse_settings(words: Sequence[str], spec: str = "") -> dict[str, Any]:
    """Return values by name from NAME=VALUE words; the fields of a preset or a layer where ``spec`` names one.

    A value is JSON, an integer, a float, true, false or null, or any other text itself.
    Raises UsageError for any other word, and ConfigError for a field that the preset or layer does not have.
    """
    if has_closed_form(spec):
        return targets.parse(spec, words)
    out = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (equals and name.replace(".", "_").isidentifier()):
            target, colon, field_name = name.rpartition(":")
            alone = [f"give {target} alone with ", Option("set", f"{field_name}={text}")] if colon and equals else []
            where = " for every TARGET" if alone else ""
            raise UsageError(Option("set", word), f": it takes NAME=VALUE{where}", advice=alone)
        try:
            out[name] = json.loads(text)
        except (ValueError, RecursionError):
            out[name] = text
    return out


TARGET = ("set", "input", "dtype", *LENGTHS)
"""Destinations of add_target_options."""
POLICIES = ("report", "include", "refuse")
"""What is done with contractions written elementwise."""
OPERATORS = ("allow_unsupported", "formula", "formula_set", "elementwise")
"""Destinations of add_operator_options."""


def add_target_options(group: argparse._ActionsContainer) -> None:
    """Add the options that change a target: fields and keywords, inputs, the type of the weights, lengths."""
    add = group.add_argument
    text = "field, or keyword of a function, as TARGET,NAME=VALUE"
    add("--set", action="append", metavar="NAME=VALUE", default=[], help=text)
    text = "[NAME=]1,128[:long], NAME=[VALUES], NAME=@FILE.json"
    add("--input", action="append", type=_checked_input, metavar="SIZES", default=[], help=text)
    add(
        "--dtype",
        type=full_dtype,
        choices=DTYPES,
        metavar="TYPE",
        help="type of the weights (default: the model's own)",
    )
    for name, what in LENGTHS.items():
        add(flag(name), type=int, metavar="N", help=what)


def add_operator_options(group: argparse._ActionsContainer) -> None:
    """Add the options of operations that have no rule."""
    add = group.add_argument
    # None where it is not given: that of a lock holds then
    add("--allow-unsupported", action="store_true", default=None, help="list unsupported operations, go on")
    add("--formula", action="append", metavar="OP=EXPR", default=[], help="MACs of an operator by its sizes: fft=a0*b1")
    add("--formula-set", choices=linalg.SETS, help=linalg.HELP)
    add("--elementwise", choices=POLICIES, help="products (a * b).sum(-1)")


def add_modes(group: argparse._ActionsContainer) -> None:
    """Add the options of the passes that run, and of the mode that modules are in."""
    add = group.add_argument
    # None where it is not given, as above
    add("--backward", action="store_true", default=None, help="count the gradients too")
    add("--training", action="store_true", default=None, help="modules run in training mode, not in eval mode")


def add_ranks(group: argparse._ActionsContainer) -> None:
    """Add the options of a module that the user's own function divides."""
    add = group.add_argument
    add("--ranks", type=int, metavar="N", help="ranks over which the function of --plan divides")
    add("--rank", type=int, metavar="R", help="the rank that is counted (default: 0)")


def _checked_input(text: str) -> str:
    parse_input(text)
    return text


def check_text(text: str) -> None:
    """Raise UsageError for a word that is no target: NAME=VALUE without an option."""
    if re.fullmatch(r"[A-Za-z_]\w*=[^:]*", text):
        raise UsageError(
            f"{text} is a size or a field and no TARGET",
            advice=[Option("set", text), ", or ", Option("vary", text), ", names it as one"],
        )


def parse_target(text: str, args: argparse.Namespace, base: Target | None = None) -> Target:
    """Return the target that ``text``, TARGET or TARGET,NAME=VALUE,…, and the options of a command name.

    Words of lengths, T, S and B among them, are lengths of a preset, a layer and a configuration; of a user's function
    they are keywords. What is not given is that of ``base``: settings, lengths and formulas one by one, but a ``text``
    with words has all settings of its target. Raises UsageError for what cannot be parsed, where plan and ranks do not
    go together or with the target, and for a rank that does not exist, and ConfigError for a field or a layer that does
    not exist.
    """
    check_text(text or "")
    spec, own = targets.split(text) if text or base is None else (base.spec, [])
    base = base or Target(spec)
    words, lengths = split_lengths(spec, [*own, *(args.set or ())])
    settings = parse_settings(words, spec)
    sizes = {name: size for name in LENGTHS if (size := getattr(args, name, None)) is not None}
    for name, size in sizes.items():
        if lengths.get(name, size) != size:
            raise UsageError(
                f"{text}: {name} is {lengths[name]} in the target, and the command has ", Option(name, size)
            )
    lengths |= sizes
    for name, size in lengths.items():
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    given = {
        "spec": spec,
        "settings": settings if own else {**base.settings, **settings},
        "inputs": tuple(args.input or base.inputs),
        "lengths": {**base.lengths, **lengths},
        "formulas": {**base.formulas, **parse_formulas(getattr(args, "formula", None) or ())},
    }
    options = {name: value for name in base.options() if (value := getattr(args, name, None)) is not None}
    target = replace(base, **options, **given)
    if is_layer(spec) and not {"seq_len", "tgt_len"} & {*target.lengths}:
        needed = targets.lacking(spec, target.settings)
        more = f" and {', '.join(needed)}" if needed else ""
        raise UsageError(f"{text} needs its length{more}; write {text},T=128")
    ranks, rank, has_rank = target.ranks, target.rank, getattr(args, "rank", None) is not None
    if not target.plan and ranks is None and not has_rank:
        return target
    if not target.plan or ranks is None and (has_rank or not has_plans(spec)):
        raise UsageError(
            "a module is divided by --ranks N --plan FILE.py:FUNCTION, a preset or config.json also by --plan tp=8,sp"
        )
    if ranks is not None and ranks < 1:
        raise UsageError(f"--ranks must be at least 1, not {ranks}")
    if ranks is not None and not 0 <= rank < ranks:
        raise UsageError(f"--rank {rank}: the ranks of --ranks {ranks} are 0 to {ranks - 1}")
    return target


def split_lengths(spec: str, words: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Return settings and lengths among the words of a target; a user's function has keywords alone."""
    if has_closed_form(spec) or is_configuration(spec):
        return targets.split_lengths(words)
    return list(words), {}


def parse_formulas(words: Sequence[str]) -> dict[str, str]:
    """Return expressions by operator from OPERATOR=EXPRESSION words. Raise UsageError for anything else."""
    out = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            if not (equals and name):
                raise ValueError("is no OPERATOR=EXPRESSION")
            evaluate(text, dict.fromkeys(re.findall(r"[a-z]\d*", text), 1))
        except (ValueError, ZeroDivisionError) as error:
            raise UsageError(f"--formula {word}: {error}") from error
        out[name] = text
    return out
