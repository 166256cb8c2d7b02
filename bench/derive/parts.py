"""Build the model, the attention or the feed-forward block of a preset at any sizes, with its closed form."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sympy
import torch
import torch.nn.functional as F

from headcount.bench.case import attention_form, ledger_of
from headcount.bench.derive.result import starts
from headcount.bench.errors import UsageError
from headcount.formulas import llama, transformer
from headcount.formulas.ledger import MAC_KINDS, Ledger
from headcount.formulas.symbols import symbol
from headcount.models.build import example_inputs, make_module
from headcount.models.configs.base import AttentionConfig, ConfigError, Layered, ModelConfig
from headcount.models.configs.moe_ffn import TakesMixture
from headcount.models.configs.presets import preset
from headcount.models.llama import GatedFeedForward
from headcount.models.transformer import FeedForward

_LENGTHS = {"batch_size": "B", "src_len": "S", "tgt_len": "T", "seq_len": "T"}
_NO_SIZES = ("context_len", "max_positions")
"""Integer fields that limit inputs and are in no count."""


@dataclass(frozen=True)
class Part:
    """One part of a preset as a function of its sizes.

    ``letters`` by the user's names; ``build`` takes sizes by these names, from ``starts`` on; ``closed`` is the closed
    form by kind, in symbols of these names.
    """

    letters: Mapping[str, str]
    starts: Mapping[str, int]
    build: Callable[..., tuple[torch.nn.Module, tuple, dict[str, Any]]]
    closed: Mapping[str, sympy.Expr]


def part(name: str, which: str, overrides: Mapping[str, Any], names: Sequence[str]) -> Part:
    """Return the model, the attention or the feed-forward block (``which``) of preset ``name`` in the sizes ``names``.

    ``names`` are letters of the legend or names of fields; other sizes stay the preset's. In an attention without S the
    keys are the queries; without g there are as many key/value heads as heads where the preset has as many. Raises
    UsageError, with the choices, for an unknown name, ConfigError for a part that has only a closed form.
    """
    config = preset(name, overrides)
    subject = config.attention if which == "attention" else config
    if which != "feed-forward" and not subject.has_module:
        variant = config.attention.variant if config.attention.module is None else config.variant
        raise ConfigError(f"{variant} has a closed form only, no module")
    return {"attention": _attention, "feed-forward": _feed_forward, "model": _model}[which](config, names)


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


def _first_point(letters: Mapping[str, str], known: Mapping[str, str], config: Any, resize: Callable) -> dict[str, int]:
    """Return the first point of the grid: small primes, or the preset's sizes where these cannot be built."""
    found = starts(letters)
    inner = getattr(config, "attention", config)
    own = {n: getattr(config, known[x], getattr(inner, known[x], None)) for n, x in letters.items() if x[0] != "N"}
    own = {name: size for name, size in own.items() if size is not None}
    for candidate in (found, found | own):
        try:
            resize({letters[name]: size for name, size in candidate.items()})
        except ConfigError:
            continue
        return candidate
    return found


def _tie_kv_heads(attention: AttentionConfig, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes with g = h where the preset has as many key/value heads as heads, and only h is given."""
    if "h" in sizes and "g" not in sizes and getattr(attention, "num_kv_heads", None) == attention.num_heads:
        return {**sizes, "g": sizes["h"]}
    return dict(sizes)


def _by_kind(form: Ledger) -> dict[str, sympy.Expr]:
    """Return MACs by kind; quotients are exact, because a configuration where they are not cannot be built."""
    sums = form.select(lambda entry: entry.kind in MAC_KINDS).group(lambda entry: entry.kind)
    exact = {kind: sympy.sympify(size, strict=True) for kind, size in sums.items()}
    return {kind: size.replace(sympy.floor, lambda quotient: quotient) for kind, size in exact.items()}


def _attention(config: ModelConfig, names) -> Part:
    attention = config.attention
    if "T" in attention.fields_by_letter:
        raise UsageError(f"{attention.variant} attention is of a grid of tokens, whose number is no length to change")
    lengths = {"B": "batch_size", "T": "tgt_len", "S": "src_len"}
    fields_of = _sizes(attention)
    letters = _letters(names, lengths | fields_of)

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        out = {"B": 1, "T": 10, **_tie_kv_heads(attention, given)}
        return {"S": out["T"], **out}

    def resize(sizes: Mapping[str, Any]) -> AttentionConfig:
        given = _tie_kv_heads(attention, sizes)
        return replace(attention, **{fields_of[letter]: size for letter, size in given.items() if letter in fields_of})

    def build(**sizes):
        sized = {letters[n]: size for n, size in sizes.items()}
        given, layer = complete(sized), resize(sized)
        with torch.device("meta"):
            tokens = [given["T"]] + ([given["S"]] if "S" in letters.values() else [])
            inputs = tuple(torch.empty(given["B"], length, layer.d_model) for length in tokens)
            return make_module(layer).eval(), inputs, {}

    sizes = complete({letter: symbol(n) for n, letter in letters.items()})
    form = attention_form(attention, sizes)("", **{letter: sizes[letter] for letter in lengths})
    first = _first_point(letters, lengths | fields_of, attention, resize)
    return Part(letters, first, build, _by_kind(form))


def _feed_forward(config: ModelConfig, names) -> Part:
    if not config.equal_blocks:
        raise UsageError(f"the feed-forward blocks of a {config.variant} model differ from layer to layer")
    mixture = config.mixture
    known = {"B": "batch_size", "T": "tgt_len", "d_m": "d_model", "F": "d_ff"}
    known |= config.mixture_letters if mixture else {}
    letters = _letters(names, known)
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

    form = llama.gated_feed_forward if gated else transformer.feed_forward
    closed = form("", **(fixed | {letter: symbol(n) for n, letter in letters.items()}))
    return Part(letters, starts(letters), build, _by_kind(closed))


def _model(config: ModelConfig, names) -> Part:
    lengths = {_LENGTHS[word]: word for word in config.lengths}
    outer, inner = _sizes(config), _sizes(config.attention)
    if isinstance(config, Layered):
        inner = {
            letter: field
            for letter, field in inner.items()
            if len({getattr(layer, field) for layer in config.layers}) == 1
        }
    known = lengths | outer | inner
    letters = _letters(names, known)

    def fields_of(sizes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of the model and of its attention that ``sizes`` change."""
        given = _tie_kv_heads(config.attention, sizes)
        of_model = {outer[letter]: size for letter, size in given.items() if letter in outer}
        return of_model, {inner[letter]: size for letter, size in given.items() if letter in inner}

    def resize(sizes: Mapping[str, Any]) -> ModelConfig:
        own, within = fields_of(sizes)
        # Layers are built one by one. As an integer their number is pinned, and checked before any layer is built.
        own = {field: int(size) if field.endswith("layers") else size for field, size in own.items()}
        if not isinstance(config, Layered):
            return replace(config, attention=replace(config.attention, **within), **own)
        layers = config.layers[:1] * own["num_layers"] if "num_layers" in own else config.layers
        return replace(config, layers=tuple(replace(layer, **within) for layer in layers), **own)

    def build(**sizes):
        given = {letters[n]: size for n, size in sizes.items()}
        sized, tokens = resize(given), {lengths[x]: n for x, n in given.items() if x in lengths}
        with torch.device("meta"):
            model = make_module(sized).eval()
        return model, (), example_inputs(sized, config.lengths | tokens, device="meta")

    symbols = {letter: symbol(n) for n, letter in letters.items()}
    own, within = fields_of(symbols)
    sizes = _symbolic_letters(config, own) | _symbolic_letters(config.attention, within)
    form = ledger_of(config, config.lengths, sizes | {x: s for x, s in symbols.items() if x in lengths})
    if isinstance(config, Layered) and "N" in symbols:
        form = Ledger(tuple(replace(e, times=symbols["N"]) if "*" in e.path else e for e in form))
    return Part(letters, _first_point(letters, known, config, resize), build, _by_kind(form))


def _symbolic_letters(config: AttentionConfig | ModelConfig, sizes: Mapping[str, sympy.Expr]) -> dict[str, sympy.Expr]:
    """Return the letters of ``config`` that depend on symbols for some of its fields, in these symbols."""
    read = _SymbolicFields(config, sizes)
    found = {letter: getattr(read, name) for letter, name in config.fields_by_letter.items()}
    return {letter: value for letter, value in found.items() if isinstance(value, sympy.Expr)}


class _SymbolicFields:
    """A configuration's fields and properties with symbols for some fields, without the checks of its values."""

    def __init__(self, config: AttentionConfig | ModelConfig, sizes: Mapping[str, sympy.Expr]) -> None:
        self._config, self._sizes = config, sizes

    def __getattr__(self, name: str) -> Any:
        if name in self._sizes:
            return self._sizes[name]
        derived = getattr(type(self._config), name, None)
        return derived.fget(self) if isinstance(derived, property) else getattr(self._config, name)
