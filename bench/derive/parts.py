"""Build a preset's model, attention or feed-forward block at any sizes, with the closed form of its MACs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

import sympy
import torch
import torch.nn.functional as F

from headcount.bench.case import ledger_of
from headcount.bench.derive.result import starts
from headcount.bench.errors import UsageError
from headcount.formulas import moe_ffn
from headcount.formulas.ledger import MAC_KINDS, Ledger
from headcount.formulas.symbols import LEGEND, symbol
from headcount.models.build import example_inputs, make_module
from headcount.models.configs.base import (
    LENGTH_LETTERS,
    AttentionConfig,
    ConfigError,
    LayerConfig,
    Layered,
    ModelConfig,
    as_model,
)
from headcount.models.configs.moe_ffn import TakesMixture
from headcount.models.llama import GatedFeedForward
from headcount.models.transformer import FeedForward

_NO_SIZES = ("context_len", "max_positions")
"""Integer fields that limit inputs and change no count."""


@dataclass(frozen=True)
class Part:
    """One part of a preset as a function of its sizes.

    ``letters``: letter of the legend by the name that the user gave. ``build`` takes sizes by these names and returns
    the module, its positional and its keyword inputs; ``starts`` are the least sizes to build it with, ``own`` the
    preset's. ``closed`` is the closed form of MACs by kind, in symbols of these names.
    """

    letters: Mapping[str, str]
    starts: Mapping[str, int]
    own: Mapping[str, int]
    build: Callable[..., tuple[torch.nn.Module, tuple, dict[str, Any]]]
    closed: Mapping[str, sympy.Expr]


def part(config: AttentionConfig | ModelConfig, which: str, names: Sequence[str] = ()) -> Part:
    """Return the model, the attention or the feed-forward block (``which``) of a configuration in the sizes ``names``.

    ``names`` are letters of the legend or names of fields, by default every letter but the batch and the number of
    layers; other sizes stay the configuration's. In an attention without S the keys are the queries; without g there
    are as many key/value heads as heads where the configuration has as many. Raises UsageError, with the choices, for
    an unknown name, ConfigError for a part that has only a closed form.
    """
    model = as_model(config)
    if which == "feed-forward":
        return _feed_forward(model, names)
    model = as_model(model.attention) if which == "attention" else model
    if not model.has_module:
        variant = model.attention.variant if model.attention.module is None else model.variant
        raise ConfigError(f"{variant} has a closed form only, no module")
    return _model(model, names)


def _every_letter(known: Mapping[str, str], tied: Collection[str] = ()) -> list[str]:
    """Return the letters of the legend among ``known`` but B, those of layers, and those ``tied`` to others."""
    letters = {row.letter for row in LEGEND}
    return [x for x, field in known.items() if x in letters - {"B", *tied} and not field.endswith("layers")]


def _letters(names: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return letters by given name; ``known`` has the field of each letter."""
    found = {}
    for name in names:
        letter = next((letter for letter, word in known.items() if name in (letter, word)), None)
        if letter is None:
            choices = ", ".join(f"{x} ({word})" if word != x else x for x, word in known.items())
            raise UsageError(f"unknown variable {name!r}; choose from {choices}")
        found[name] = letter
    if len(set(found.values())) < len(names):
        raise UsageError(f"a variable is given twice in {','.join(names)}")
    return found


def _sizes(config: AttentionConfig | ModelConfig) -> dict[str, str]:
    """Return the fields of a configuration's sizes by letter, or by their own name where they have none."""
    letters = {field: letter for letter, field in config.fields_by_letter.items()}
    if isinstance(config, Layered) and config.equal_blocks and len(set(config.layers)) == 1:
        letters["num_layers"] = "N"
    integers = [f.name for f in fields(config) if type(getattr(config, f.name)) is int and f.name not in _NO_SIZES]
    if isinstance(config, TakesMixture) and config.mixture is None:
        # a dense block has no number of experts
        integers = [name for name in integers if name not in config.mixture_letters.values()]
    if isinstance(config, Layered) and "num_layers" not in letters:
        integers = [name for name in integers if not name.endswith("layers")]
    return {letters.get(name, name): name for name in integers}


def _complete(config: ModelConfig, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes with those that follow from them.

    g = h where the preset has as many key/value heads as heads. S = T in a single layer, whose keys are its queries.
    """
    tied = {"S": "T"} if isinstance(config, LayerConfig) else {}
    if "h" in sizes and getattr(config.attention, "num_kv_heads", None) == config.attention.num_heads:
        tied["g"] = "h"
    return {letter: sizes[of] for letter, of in tied.items() if of in sizes} | dict(sizes)


def _by_kind(form: Ledger) -> dict[str, sympy.Expr]:
    """Return MACs by kind; quotients are exact, because a configuration where they are not cannot be built."""
    sums = form.select(lambda entry: entry.kind in MAC_KINDS).group(lambda entry: entry.kind)
    exact = {kind: sympy.sympify(size, strict=True) for kind, size in sums.items()}
    return {kind: size.replace(sympy.floor, lambda quotient: quotient) for kind, size in exact.items()}


def _feed_forward(config: ModelConfig, names) -> Part:
    if not config.equal_blocks:
        raise UsageError(f"the feed-forward blocks of a {config.variant} model differ from layer to layer")
    mixture = config.mixture
    known = {"B": "batch_size", "T": "tgt_len", "d_m": "d_model", "F": "d_ff"}
    known |= config.mixture_letters if mixture else {}
    letters = _letters(names or _every_letter(known), known)
    fixed = {"B": 1, "T": 10} | {x: getattr(config, field) for x, field in known.items() if x not in ("B", "T")}
    gated = config.gated

    def build(**sizes):
        given = fixed | {letters[n]: size for n, size in sizes.items()}
        width, inner = given["d_m"], given["F"]
        with torch.device("meta"):
            x = torch.empty(given["B"], given["T"], width)
            if mixture:
                sizes = {"d_model": width, "d_ff": inner, "num_experts": given["E_ff"], "top_k": given["K_ff"]}
                return make_module(replace(mixture, **sizes)).eval(), (x,), {}
            block = GatedFeedForward(width, inner) if gated else FeedForward(width, inner, F.relu)
            return block.eval(), (x,), {}

    sizes = fixed | {letter: symbol(n) for n, letter in letters.items()}
    closed = moe_ffn.feed_forward("", gated=gated, **sizes)
    return Part(letters, starts(letters), {n: fixed[x] for n, x in letters.items()}, build, _by_kind(closed))


def _model(config: ModelConfig, names) -> Part:
    lengths = {LENGTH_LETTERS[word]: word for word in config.lengths}
    outer, inner = _sizes(config), _sizes(config.attention)
    if isinstance(config, Layered):
        inner = {x: field for x, field in inner.items() if len({getattr(one, field) for one in config.layers}) == 1}
    known = lengths | outer | inner
    heads, kv_heads = (getattr(config.attention, name, None) for name in ("num_heads", "num_kv_heads"))
    names = names or _every_letter(known, ("g",) if kv_heads in (1, heads) else ())
    letters = _letters(names, known)

    def by_letter(sizes: Mapping[str, Any]) -> dict[str, Any]:
        return _complete(config, {letters[name]: size for name, size in sizes.items()})

    def fields_of(letters: Mapping[str, str], sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {letters[letter]: size for letter, size in sizes.items() if letter in letters}

    def resize(sizes: Mapping[str, Any]) -> ModelConfig:
        own, within = fields_of(outer, by_letter(sizes)), fields_of(inner, by_letter(sizes))
        # Layers are built one by one. As an integer their number is pinned, and checked before any layer is built.
        own = {field: int(size) if field.endswith("layers") else size for field, size in own.items()}
        if not isinstance(config, Layered):
            return replace(config, attention=replace(config.attention, **within), **own)
        layers = config.layers[:1] * own["num_layers"] if "num_layers" in own else config.layers
        return replace(config, layers=tuple(replace(layer, **within) for layer in layers), **own)

    def build(**sizes):
        sized = resize(sizes)
        with torch.device("meta"):
            model = make_module(sized).eval()
        return model, (), example_inputs(sized, config.lengths | fields_of(lengths, by_letter(sizes)), device="meta")

    symbols = by_letter({name: symbol(name) for name in names})
    sizes = _symbolic_letters(config, fields_of(outer, symbols))
    sizes |= _symbolic_letters(config.attention, fields_of(inner, symbols))
    sizes |= {letter: size for letter, size in symbols.items() if letter in lengths}
    form = ledger_of(config, config.lengths, sizes)
    if isinstance(config, Layered) and "N" in symbols:
        form = Ledger(tuple(replace(e, times=symbols["N"]) if "*" in e.path else e for e in form))
    first, all_sizes = starts(letters), vars(config.attention) | vars(config) | config.lengths
    own = first | {name: all_sizes[known[x]] for name, x in letters.items() if x[0] != "N" and all_sizes.get(known[x])}
    try:
        resize(first)
    except ConfigError:
        # small primes do not suit every model; the preset's own sizes do
        first = {name: size if letters[name] in lengths else own[name] for name, size in first.items()}
    return Part(letters, first, own, build, _by_kind(form))


def _symbolic_letters(config: AttentionConfig | ModelConfig, sizes: Mapping[str, sympy.Expr]) -> dict[str, sympy.Expr]:
    """Return the letters of ``config`` that depend on symbols for some of its fields, in these symbols."""
    symbolic = copy(config)
    # without the checks of values
    vars(symbolic).update(sizes)
    return {letter: value for letter, value in symbolic.letters().items() if isinstance(value, sympy.Expr)}
