"""Write sizes of a configuration in the letters that a plan divides: what grows with the configuration's fields."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from headcount.bench.closed_form.terms import NEW, Factor, Stored, Term
from headcount.formulas.backward import layer_path
from headcount.formulas.ledger import CountedWeights, Ledger

HEADS, KEYS = "h", "g"
FIELDS = {
    HEADS: ("num_attention_heads",),
    KEYS: ("num_key_value_heads",),
    "F": (
        "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp",
        "shared_intermediate_size", "ffn_dim", "n_inner",
    ),
    "V": ("vocab_size",),
    "d_q": ("q_lora_rank",),
    "d_c": ("kv_lora_rank",),
    "d_r": ("qk_rope_head_dim",),
}  # fmt: skip
"""Fields of configurations by the letter of their sizes."""
LATENTS = ("d_q", "d_c", "d_r")
"""Letters that a plan does not divide: widths inside an attention."""
ATTENTION, FEED_FORWARD = "self_attn", "feed_forward"


def sizes_of(config: Any) -> dict[str, dict[str, int]]:
    """Return the fields of each letter that a configuration has, with their values."""
    found: dict[str, dict[str, int]] = {}
    for letter, names in FIELDS.items():
        own = {name: getattr(config, name, None) for name in names}
        if own := {name: value for name, value in own.items() if type(value) is int and value > 0}:
            found[letter] = own
    return found


@dataclass(frozen=True)
class Parts:
    """The part of a size that is a multiple of each letter: ``of_dims`` by letter of the term's sizes."""

    of_dims: Mapping[str, Mapping[str, int]]
    of_weights: Mapping[str, int]


Piece = tuple[str, int]
"""A part of a size: the letter that it is a multiple of, or none, and the part."""


def _pieces(size: int, parts: Mapping[str, int]) -> list[Piece]:
    """Return the parts of a size: of one letter where it grows with it as a whole, else of several, and of none."""
    divided = {letter: part for letter, part in parts.items() if letter not in LATENTS}
    own = divided or parts
    whole = next((letter for letter, part in own.items() if part == size), None)
    if whole:
        return [(whole, size)]
    rest = size - sum(own.values())
    if rest < 0 or any(part < 0 for part in own.values()):
        # no sum of multiples
        return [("", size)]
    return [*own.items(), *([("", rest)] if rest else [])]


class Letters:
    """The letters of a configuration: ``numbers`` by letter, the first of several, and the ``width`` of a token."""

    def __init__(self, numbers: Mapping[str, Mapping[str, int]], width: int) -> None:
        self._numbers, self._width = numbers, width

    def split(self, term: Term, parts: Parts) -> Iterator[Term]:
        """Yield the term in letters; of a size that is a sum, as of fused projections, a term for each part."""
        if term.used is not None:
            yield from self._parameters(term, parts.of_weights)
            return
        term = with_expert_letters(term)
        numbers = {one.letter: one.number for one in term.factors if not one.of}
        pieces = [_pieces(size, parts.of_dims.get(letter, {})) for letter, size in numbers.items()]
        shares: dict[str, int] = {}
        if term.weight.keys() == {"j"} and term.weight["j"] != numbers.get("j"):
            # fewer numbers than the operation has: one vector for all heads, as an example
            shares = dict(_pieces(term.weight["j"], parts.of_weights))
        is_shared = bool(shares)
        for combination in product(*pieces):
            named, taken = {}, {factor.letter for factor in term.factors if factor.of}
            for letter, piece in zip(numbers, combination, strict=True):
                named[letter] = self._factors(letter, piece, taken)
                taken |= {factor.letter for factor in named[letter]}
            factors = [one for factor in term.factors for one in named.get(factor.letter, [factor])]
            summed = [one.letter for letter in term.summed for one in named.get(letter, [Factor(letter)])]
            weight = _in_letters(term.weight, named)
            if is_shared:
                of = next((letter for letter, _ in combination if letter in shares), "")
                weight = self._vector(of, shares.pop(of, 0))
            yield replace(term, factors=tuple(factors), weight=weight, summed=tuple(summed))
        for letter, share in shares.items():
            yield replace(term, factors=(Factor("n", 0),), weight=self._vector(letter, share), summed=())

    def _parameters(self, term: Term, parts: Mapping[str, int]) -> Iterator[Term]:
        total = prod(term.weight.values())
        if term.used not in (0, -1, total):
            yield term
            return
        for letter, share in _pieces(total, parts):
            used = share if term.used == total else term.used
            yield replace(term, weight=self._vector(letter, share), used=used)

    def _factors(self, letter: str, piece: Piece, taken: set[str]) -> list[Factor]:
        """Return the factors of a part of a size that had ``letter``."""
        name, size = piece
        number = self._number(name, size)
        if not name or name in taken or not number:
            is_width = size == self._width and letter in ("i", "j") and "d_m" not in taken
            return [Factor("d_m" if is_width else letter, size)]
        rest = size // number
        other = letter if letter != name else "b"
        return [Factor(name, number), *([Factor(other, rest)] if rest != 1 else [])]

    def _number(self, letter: str, size: int) -> int:
        """Return the value of a letter that divides ``size``; 0 where none does."""
        return next((one for one in self._numbers.get(letter, {}).values() if size % one == 0), 0)

    def _vector(self, letter: str, size: int) -> dict[str, int]:
        """Return the sizes of a weight of ``size`` elements, a multiple of a letter."""
        if not size:
            return {}
        number = self._number(letter, size)
        if not number:
            return {"d_m" if size == self._width else "j": size}
        return {letter: number, **({"j": size // number} if size != number else {})}

    def stored(self, tensor: Stored, parts: Mapping[str, Mapping[str, int]]) -> Stored:
        """Return the tensor of a cache in letters."""
        sizes: dict[str, int] = {}
        for letter, size in tensor.sizes.items():
            pieces = _pieces(size, parts.get(letter, {}))
            factors = self._factors(letter, pieces[0] if len(pieces) == 1 else ("", size), {*sizes, "d_m"})
            sizes |= {one.letter: one.number for one in factors}
        return replace(tensor, sizes=sizes)


def _in_letters(weight: Mapping[str, int], named: Mapping[str, list[Factor]]) -> dict[str, int]:
    """Return the sizes of a weight with those of the operation in letters."""
    found: dict[str, int] = {}
    for letter, size in weight.items():
        found |= {one.letter: one.number for one in named[letter]} if letter in named else {letter: size}
    return found


def with_expert_letters(term: Term) -> Term:
    """Return the term of experts with both sizes of their matrices."""
    sizes = {one.letter: one.number for one in term.factors if not one.of and one.letter in ("i", "j")}
    if "E" not in term.weight or prod(sizes.values()) * term.weight["E"] != prod(term.weight.values()):
        return term
    return replace(term, weight={"E": term.weight["E"], **sizes})


def scaled(form: Ledger, times: Mapping[str, int]) -> Ledger:
    """Return the ledger of the configuration whose fields of each letter are so many times as large."""

    def grown(sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {letter: size * times.get(letter, 1) for letter, size in sizes.items()}

    found = []
    for entry in form:
        larger = replace(entry, dims=grown(entry.dims), weight=grown(entry.weight))
        if isinstance(larger, CountedWeights) and larger.used and entry.params:
            larger = replace(larger, used=larger.used * larger.params // entry.params)
        found.append(larger)
    return Ledger(tuple(found))


class Blocks:
    """Where plans find the attention and feed-forward blocks of terms: by the paths that closed forms have."""

    def __init__(self, terms: Iterable[Term]) -> None:
        terms = list(terms)
        self._attention, self._feed_forward, self._routers = set(), set(), set()
        for term in terms:
            layer = layer_path(term.path)
            if term.kind in ("scores", "values") and layer:
                self._attention.add(_component(term.path, layer))
            elif term.role.startswith(FEED_FORWARD) and layer:
                self._feed_forward.add(_component(term.path, layer))
                self._routers |= {term.path} if term.role.endswith("router") else set()
        self._whole = _across_heads(terms)

    def place(self, term: Term) -> Term:
        """Return the term with the path and the letters that plans divide by."""
        layer = layer_path(term.path)
        own = _component(term.path, layer)
        if layer and own in self._attention:
            return self._in_attention(term, layer, own)
        letters = {factor.letter for factor in term.factors}
        if layer and (own in self._feed_forward or "F" in letters and own == layer):
            rest = term.path[len(own) :].lstrip(".") if own != layer else ""
            if own in self._feed_forward and own.rpartition(".")[0] == layer and not rest and term.kind == "linear":
                rest = own.rpartition(".")[2]
            rest = "router" if term.path in self._routers else rest
            return replace(term, path=f"{layer}.{FEED_FORWARD}" + (f".{rest}" if rest else ""))
        return term

    def _in_attention(self, term: Term, layer: str, own: str) -> Term:
        rest = term.path[len(own) :].lstrip(".")
        sizes = {factor.letter for factor in term.factors} | term.weight.keys()
        if term.weight.keys() == {"j"}:
            term = replace(term, weight={"d_h": term.weight["j"]})
        elif term.kind == "linear" and (KEYS in sizes or sizes & {"d_c", "d_r"} and "d_q" not in sizes):
            factors = [replace(one, letter="S") if one.letter == "T" and one.of == NEW else one for one in term.factors]
            term = replace(term, factors=tuple(factors))
            if KEYS in sizes:
                rest = rest if rest.endswith(("k_proj", "v_proj")) else f"{rest}.kv_proj".lstrip(".")
            elif "d_m" in sizes:
                rest = "kv_down_proj" if "d_c" in sizes else "k_rotary_proj"
        if own in self._whole:
            # nothing of it is divided
            names = {HEADS: "b", KEYS: "m"}
            factors = [replace(one, letter=names.get(one.letter, one.letter)) for one in term.factors]
            weight = {names.get(letter, letter): size for letter, size in term.weight.items()}
            term = replace(term, factors=tuple(factors), weight=weight)
        return replace(term, path=f"{layer}.{ATTENTION}" + (f".{rest}" if rest else ""))

    def place_cache(self, tensor: Stored) -> Stored:
        """Return the tensor of a cache at the block of its layer."""
        layer = layer_path(tensor.path)
        own = _component(tensor.path, layer)
        return replace(tensor, path=f"{layer}.{ATTENTION}") if layer and own in self._attention else tensor


def _component(path: str, layer: str) -> str:
    """Return the path of the module of a layer that a module belongs to: the layer's child."""
    rest = path[len(layer) :].lstrip(".")
    return f"{layer}.{rest.partition('.')[0]}" if rest else layer


def _across_heads(terms: Sequence[Term]) -> set[str]:
    """Return the attentions with a norm over all heads at once, whose ranks would need a further sum."""
    mixers = {term.path for term in terms if term.kind == "scores"}
    reduced = {term.path for term in terms if term.kind == "reduction"} - mixers
    norms = {term.path for term in terms if term.path in reduced and term.weight.keys() & {HEADS, KEYS}}
    return {_component(path, layer_path(path)) for path in norms}
