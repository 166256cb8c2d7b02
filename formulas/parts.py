"""What is attention, feed-forward and vocabulary in a model: of a closed form by its paths, of a run by its products.

A closed form has paths that we choose, and ``conventions.toml`` says which of them are attention and feed-forward. The
modules of a user have any names; attention is there what multiplies queries, keys and values.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from headcount.formulas import conventions
from headcount.formulas.ledger import Entry, Size

ATTENTION, FEED_FORWARD, VOCABULARY, OTHER = "attention", "feed-forward", "vocabulary", "other"
RULES = {
    ATTENTION: conventions.attention,
    FEED_FORWARD: conventions.feed_forward,
    VOCABULARY: conventions.vocabulary,
}
"""The entries of each part of a closed form; the first that fits counts."""
_BLOCK = re.compile("|".join(term.path for name in (ATTENTION, FEED_FORWARD) for term in RULES[name].terms))
LINEAR = ("linear", "expert_linear")


def part_of(entry: Entry) -> str:
    """Return the part that an entry of a closed form belongs to."""
    return next((name for name, holds in RULES.items() if holds(entry)), OTHER)


@cache
def block_path(path: str) -> str:
    """Return the path of the attention or feed-forward block that a module belongs to; empty where it has none."""
    found = _BLOCK.search(path)
    return path[: found.end()].removesuffix(".") if found else ""


def outer_paths(path: str) -> Iterator[str]:
    """Yield a module path and those around it, down to the model's, which is empty."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


@dataclass(frozen=True)
class Parts:
    """The part of each module by its path, and the feed-forward products that a module of attention runs itself."""

    by_path: Mapping[str, str]
    feed_forward: frozenset[tuple]

    def part_of(self, entry: Entry) -> str:
        """Return the part that an entry belongs to."""
        return FEED_FORWARD if _product(entry) in self.feed_forward else self.by_path[entry.path]


def parts_of_run(entries: Sequence[Entry], weights: Mapping[str, Iterable[tuple[int, ...]]]) -> Parts:
    """Return the parts of a run; ``weights`` are the shapes of parameters by module.

    Attention is a module with scores and values and what is inside, the linear layer that reads the values, and all of
    a layer that attends and has no feed-forward layers. Linear
    layers that widen, and return to the width before, are feed-forward, and so is a module of such. A matrix that no
    product reads is a table, and the vocabulary is the largest one and the linear layer of as many outputs. Other
    linear layers are feed-forward, but for those inside a module with another product of two activations, as a scan's.
    """
    kinds: dict[str, set[str]] = {}
    outputs: dict[str, set[tuple]] = {}
    for entry in entries:
        kinds.setdefault(entry.path, set()).add(entry.kind)
        outputs.setdefault(entry.path, set()).add((entry.dims.get("j"), entry.dims.get("i")))
    mixers = {path for path, own in kinds.items() if own & {"scores", "values"}}
    others = {path for path, own in kinds.items() if own & {"contraction", "conv"}} - mixers
    wide, own_wide = _feed_forward(entries, mixers)
    around_mixer = {mixer: _around(mixer, kinds) for mixer in mixers}
    of_model = {mixer for mixer, outer in around_mixer.items() if not outer}
    attends = {*mixers, *around_mixer.values(), *_projections(entries, of_model, wide)}
    tables = {path: shape for path, own in weights.items() if path not in kinds for shape in own if len(shape) == 2}
    words = max(tables.values(), default=None)
    # a layer by itself is attention as a whole, a model that attends in its own forward is not
    is_layer = "" in mixers and not (wide or own_wide or words)
    found = {}
    for path in dict.fromkeys((*kinds, *weights)):
        around, is_linear = set(outer_paths(path)), bool(kinds.get(path, set()) & {*LINEAR})
        if around & wide:
            found[path] = FEED_FORWARD
        elif path in mixers or is_layer or around & attends - {""}:
            found[path] = ATTENTION
        elif words and (tables.get(path) == words or words in outputs.get(path, ())):
            found[path] = VOCABULARY
        else:
            found[path] = FEED_FORWARD if is_linear and not around & others else OTHER
    return Parts(found, frozenset(own_wide))


def _product(entry: Entry) -> tuple:
    return entry.path, entry.kind, entry.dims.get("i"), entry.dims.get("j")


def _around(mixer: str, kinds: Mapping[str, set[str]]) -> str:
    """Return the module of attention: that with scores and values, or that around it where it has no projections."""
    has_linear = any(own & {*LINEAR} for path, own in kinds.items() if mixer in outer_paths(path))
    return mixer if has_linear else mixer.rpartition(".")[0]


def _inputs(entry: Entry) -> Size:
    """Return the elements that a product reads of its first operand."""
    return entry.size // entry.dims["j"]


def _outputs(entry: Entry) -> Size:
    """Return the elements of the result of a product."""
    return entry.size // entry.dims["i"]


def _feed_forward(entries: Iterable[Entry], mixers: set[str]) -> tuple[set[str], set[tuple]]:
    """Return the paths of linear layers that widen and return, and of modules of such that run no attention.

    Of a module that runs attention and such layers itself return the products.
    """
    siblings: dict[str, list[Entry]] = {}
    of_attention: set[Size] = set()
    for entry in entries:
        if entry.kind in LINEAR:
            parent = entry.path if entry.path in mixers else entry.path.rpartition(".")[0]
            siblings.setdefault(parent, []).append(entry)
        elif entry.kind == "scores":
            of_attention.add(_inputs(entry))
        elif entry.kind == "values":
            of_attention.add(_outputs(entry))
    found: set[str] = set()
    products: set[tuple] = set()
    for parent, layers in siblings.items():
        attends = any(parent in outer_paths(mixer) for mixer in mixers)
        for first, last in combinations(layers, 2):
            width, inner = first.dims["i"], first.dims["j"]
            # gated units halve the width
            returns = last.dims["j"] == width and inner in (last.dims["i"], 2 * last.dims["i"])
            # heads may be wider than the model together
            is_of_heads = attends and {_outputs(first), _inputs(last)} & of_attention
            if not returns or inner <= width or is_of_heads:
                continue
            alike = [one for one in layers if one.dims["i"] == width and one.dims["j"] == inner]
            products |= {_product(one) for one in (*alike, last) if one.path in mixers}
            apart = {one.path for one in (*alike, last)} - mixers
            found |= apart if attends or not parent else {parent}
    return found, products


def _projections(entries: Iterable[Entry], of_model: set[str], wide: set[str]) -> set[str]:
    """Return the paths of linear layers that read the values first.

    And of those that make the heads, where modules ``of_model`` run the attention of the model as a whole.
    """
    found: set[str] = set()
    before: list[Entry] = []
    heads: list[Size] = []
    read: Size | None = None
    for entry in entries:
        if entry.kind == "scores":
            heads = [_inputs(entry), entry.size // entry.dims["m"]]
        elif entry.kind == "values":
            heads.append(entry.size // entry.dims["m"])
            read = _outputs(entry)
            sums = {*heads, sum(heads), sum(heads[1:])}
            found |= {one.path for one in before if entry.path in of_model and _outputs(one) in sums}
            before = []
        elif entry.kind in LINEAR and not wide & set(outer_paths(entry.path)):
            if read == _inputs(entry):
                found.add(entry.path)
            else:
                before.append(entry)
            read = None
    return found
