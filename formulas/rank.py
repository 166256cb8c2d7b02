"""Closed forms of the MACs, memory and communication of one rank under a parallel plan. Imports no torch.

A rank's ledger has the entries of the whole model with smaller sizes (formulas/plan.py). Collectives are where
neighbouring entries are divided differently. Their elements are those that leave a rank in a ring or in direct sends,
the least that any algorithm sends; NCCL may choose a tree, which sends other numbers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil, gcd, prod

from headcount.formulas.backward import layer_path, repeated_layers, training_macs
from headcount.formulas.ledger import RESULT, STORED_KINDS, Entry, Ledger, Size, at, divide, ledger
from headcount.formulas.parts import block_path
from headcount.formulas.plan import Plan, PlanError, divisors

TENSOR = ("h", "g", "F", "V", "k")
"""Letters that tensor parallelism divides; k, the heads that a token uses, by where these heads are."""
_KEYS = ("S", "w", "M")
"""Letters of the tokens that a query attends to: all, or those of a window and pooled ones."""
PARAMETER, REDUCTION, INDEX = "parameter", "reduction", "index"
"""Kind of a collective's elements, which determines their bytes."""
BYTES = {PARAMETER: 2, REDUCTION: 2, INDEX: 8}
"""Bytes of an element by default: bfloat16 parameters, activations and reductions, and indices of 64 bits."""
STATE_BYTES = {"weights": 2, "gradients": 2, "optimizer": 12}
"""Bytes of a parameter: AdamW in mixed precision keeps a copy of the weights and two moments in float32."""


@dataclass(frozen=True)
class Transfer:
    """``times`` collectives of one kind over ``group`` ranks of the axis ``axis``, at the module ``path``.

    ``own``: elements of the rank's own part, which it gives to an all-gather and gets of a reduce-scatter; all that it
    holds for an all-reduce or a broadcast; all that it sends for an all-to-all or a send. ``phase``: ``forward``,
    ``backward``, or ``sync`` for the sum of gradients, once a step whatever the number of microbatches.
    """

    path: str
    kind: str
    axis: str
    group: Size
    own: Size
    phase: str
    element: str = PARAMETER
    times: Size = 1

    @cached_property
    def sent(self) -> Size:
        """Elements that leave the rank: of each collective a whole number, rounded up; of symbols the quotient."""
        n = self.group
        parts = {"all_gather": n - 1, "reduce_scatter": n - 1, "all_reduce": divide(2 * (n - 1), n)}
        return self.times * _whole(self.own * parts.get(self.kind, 1))


@dataclass(frozen=True)
class RankCost:
    """MACs, memory and communication of each of ``ranks`` equal ranks for one microbatch.

    ``ledger``: its entries, with the gathered parameters that it computes with. ``again``: those whose forward pass the
    backward pass runs again. ``held``: elements of its weights by part of the recipe, as ZeRO divides them. ``place``:
    the stages before the first one of the class; ``layers``: its first layer and the one after its last, None without a
    pipeline.
    """

    stage: str
    ranks: Size
    plan: Plan
    ledger: Ledger
    again: Ledger
    transfers: tuple[Transfer, ...]
    held: Mapping[str, Size]
    place: int = 0
    layers: tuple[int, int] | None = None

    @property
    def under_way(self) -> Size:
        """Microbatches whose activations the first stage of the class keeps at once.

        A stage alternates forward and backward passes (1F1B, arXiv 2104.04473, section 2.2): it has started as many
        microbatches as there are stages from it to the last.
        """
        return min(self.plan.pp - self.place, self.plan.mb)

    @property
    def step_macs(self) -> Size:
        """Multiply-accumulates of forward and backward, recomputation included."""
        return training_macs(self.ledger) + self.again.macs

    def sent_bytes(self, *phases: str, element_bytes: Mapping[str, int] = BYTES) -> Size:
        """Return the bytes that leave the rank in some phases of one microbatch; ``sync`` is once a step."""
        return sum(element_bytes[one.element] * one.sent for one in self.transfers if one.phase in phases)

    def state_bytes(self) -> Size:
        """Return the bytes of weights, gradients and optimizer states that the rank keeps."""
        return sum(bytes_each * self.held[part] for part, bytes_each in STATE_BYTES.items())

    @property
    def has_stated_results(self) -> bool:
        """Whether the ledger states what a run keeps for its backward pass."""
        return any(entry.kind == RESULT for entry in self.ledger)

    def activation_elements(self) -> Size:
        """Return a bound of the elements that a microbatch keeps for its backward pass, of PARAMETER's bytes.

        What a run keeps where the ledger states it; else the result of each operation once, but for attention's T x S
        numbers, which fused kernels do not keep. With full recomputation the input of each layer, and the results
        inside the largest one.
        """
        kept_of = _kept if self.has_stated_results else _results
        everything = _whole(sum(map(kept_of, self.ledger)))
        if self.plan.recompute != "full":
            return everything
        runs: dict[str, list[Entry]] = {}
        for entry in self.again:
            runs.setdefault(layer_path(entry.path), []).append(entry)
        inputs, inside = 0, [0]
        for layers in runs.values():
            number = gcd(*(entry.times for entry in layers))
            inside.append(divide(sum(map(kept_of, layers)), number))
            inputs += number * _input(layers)
        return _whole(everything - sum(map(kept_of, self.again)) + inputs + max(inside))

    def gathered_params(self) -> Size:
        """Return the parameters that ZeRO's stage 3 gathers at once: those of the largest layer, and those outside."""
        sizes: dict[str, Size] = {}
        for entry in self.ledger:
            path = layer_path(entry.path)
            sizes[path] = sizes.get(path, 0) + (divide(entry.params, entry.times) if path else entry.params)
        return sizes.pop("", 0) + max(sizes.values(), default=0)

    def forward_elements(self) -> Size:
        """Return a bound of the elements that are alive at once in a forward pass without gradients.

        Those inside the largest layer and its input, and those outside of layers.
        """
        runs: dict[str, list[Entry]] = {}
        for entry in self.ledger:
            runs.setdefault(layer_path(entry.path), []).append(entry)
        outside, inside = sum(map(_results, runs.pop("", ()))), [0]
        for layers in runs.values():
            number = gcd(*(entry.times for entry in layers))
            inside.append(divide(sum(map(_results, layers)), number) + _input(layers))
        return outside + max(inside)


def _is_sent(one: Transfer) -> bool:
    """Return whether anything leaves the rank."""
    return one.group != 1 and one.own != 0


def _input(layer: Iterable[Entry]) -> Size:
    """Return the elements of a layer's input: what an operation on all of a token outside of blocks reads."""
    tokens = ("B", "T", "d_m")
    outside = (entry for entry in layer if entry.dims.keys() >= {*tokens} and not block_path(entry.path))
    return next((prod(map(entry.dims.__getitem__, tokens)) for entry in outside), 0)


def _whole(size: Size | Fraction) -> Size:
    """Return a number rounded up; of symbols the quotient."""
    return ceil(size) if isinstance(size, Fraction) else size


def _results(entry: Entry) -> Size:
    """Return the elements of the result of an operation; 0 for attention's T x S numbers and for caches."""
    is_square = "T" in entry.dims and entry.dims.keys() & set(_KEYS) and entry.kind not in ("values", "conv", "linear")
    if entry.kind in (*STORED_KINDS, RESULT) or is_square:
        return 0
    return divide(entry.size, prod(entry.dims.get(letter, 1) for letter in entry.summed))


def _kept(entry: Entry) -> Size:
    """Return the elements of PARAMETER's bytes that a run keeps of its results."""
    return divide(entry.size, BYTES[PARAMETER]) if entry.kind == RESULT else 0


def rank_costs(form: Ledger, plan: Plan) -> tuple[RankCost, ...]:
    """Return the cost of each class of equal ranks, pipeline stages in order.

    Args:
        form: the exact ledger of a layer or of a causal language model, for the sequences of one rank and microbatch.
        plan: the degrees; they may be symbols where ``pp`` is 1.

    Raises:
        PlanError: a degree does not divide a size, or the model has nothing that it could divide.
    """
    return Ranks(form).costs(plan)


@dataclass(frozen=True)
class _Part:
    """A class of ``number`` equal pipeline stages, and what one of its ranks computes and sends of activations.

    ``whole``: the entries of the stage; ``own``: those of the rank; ``again``: those of its layers; ``moved``:
    collectives of activations; ``moved_again``: those that full recomputation runs again; ``weights``: what is sent and
    held of weights, by how ZeRO divides them.
    """

    stage: str
    number: int
    place: int
    layers: tuple[int, int] | None
    whole: Ledger
    own: Ledger
    again: Ledger
    blocks: Mapping[str, "_Block"]
    moved: tuple[Transfer, ...]
    moved_again: tuple[Transfer, ...]
    weights: dict[tuple, tuple[tuple[Transfer, ...], dict[str, Size]]] = field(default_factory=dict)

    def weights_of(self, plan: Plan) -> tuple[tuple[Transfer, ...], dict[str, Size]]:
        """Return the collectives of weights, and the elements that a rank keeps of them and their states."""
        divided = plan.zero, plan.keep, plan.hsdp
        if divided not in self.weights:
            sent = tuple(filter(_is_sent, _weights(self.whole, self.own, plan, self.blocks)))
            self.weights[divided] = sent, _held(self.own, plan, self.blocks)
        return self.weights[divided]


class Ranks:
    """The ranks of a model, whose costs are those of :func:`rank_costs`. What plans have in common is made once."""

    def __init__(self, form: Ledger) -> None:
        self._form, self._is_layer = form, repeated_layers(form)
        self._stages: dict[tuple, list[tuple[str, int, int, Ledger, tuple[int, int] | None]]] = {}
        self._parts: dict[Plan, list[_Part]] = {}

    def costs(self, plan: Plan) -> tuple[RankCost, ...]:
        """Return the cost of each class of equal ranks, as :func:`rank_costs` does."""
        _check_fits(self._form, plan)
        return tuple(self._cost(part, plan) for part in self._divided(plan))

    def _divided(self, plan: Plan) -> list[_Part]:
        """Return the classes of stages, which only the degrees decide."""
        degrees = replace(plan, zero=0, keep=False, hsdp=1, mb=1, recompute="none")
        if degrees not in self._parts:
            stages = plan.pp, plan.stages
            if stages not in self._stages:
                self._stages[stages] = _stage_ledgers(self._form, plan)
            found = []
            for stage, number, place, whole, layers in self._stages[stages]:
                blocks = _blocks(whole, plan)
                own = Ledger(tuple(_on_rank(entry, plan, blocks) for entry in whole))
                again = own.select(lambda entry: self._is_layer(entry.path))
                moved = tuple(filter(_is_sent, _activations(own, plan, blocks)))
                # gathered weights are used by both passes, and activations between blocks are stored
                run = (one for one in moved if one.phase == "forward" and one.axis in ("tp", "cp", "ep"))
                moved_again = tuple(replace(one, phase="backward") for one in run if self._is_layer(one.path))
                found.append(_Part(stage, number, place, layers, whole, own, again, blocks, moved, moved_again))
            self._parts[degrees] = found
        return self._parts[degrees]

    def _cost(self, part: _Part, plan: Plan) -> RankCost:
        weights, held = part.weights_of(plan)
        sent = (*part.moved, *weights, *filter(_is_sent, _stage_borders(part.stage, self._form, plan)))
        again = Ledger(())
        if plan.recompute == "selective":
            # attention's two products of T x S
            again = part.own.select(lambda entry: entry.kind in ("scores", "values"))
        if plan.recompute == "full":
            again, sent = part.again, (*sent, *part.moved_again)
        ranks = part.number * divide(plan.ranks, plan.pp)
        return RankCost(part.stage, ranks, plan, part.own, again, sent, held, part.place, part.layers)


WHOLE, DIVIDED, DISPATCHED, SHARED = "whole", "divided", "dispatched", "shared"
"""Modes of a block: undivided, with letters divided by tp, on rows sent to their experts' ranks, or all tokens by each
rank's own experts."""
OUTSIDE = "outside"
"""The mode of embeddings, norms and residual additions, which are in no block."""
_LAYERS = re.compile(r"\*|(?:^|(?<=\.))(\d+)(?:-\d+)?(?=\.|$)")


@dataclass(frozen=True)
class _Block:
    """An attention or feed-forward block: its mode, experts E and K of a token, and heads k of a token on the rank that
    has most.

    ``keys``: key/value heads that a rank's dealt heads read; 0 where heads are neighbours.
    """

    mode: str
    experts: Size = 0
    top_k: Size = 0
    heads: Size = 0
    keys: Size = 0


def _blocks(form: Ledger, plan: Plan) -> dict[str, _Block]:
    """Return the blocks of a model by path; a layer alone is one block, the empty path."""
    paths = list(dict.fromkeys(path for entry in form if (path := block_path(entry.path))))
    if not paths and any(entry.kind == "scores" for entry in form):
        paths = [""]
    return {path: _block(path, _entries_of(path, form), plan) for path in paths}


def _entries_of(path: str, form: Ledger) -> list[Entry]:
    """Return the entries of a block."""
    return [entry for entry in form if block_path(entry.path) == path]


def _block(path: str, entries: Sequence[Entry], plan: Plan) -> _Block:
    experts, top_k = next(((x.weight["E"], x.dims["K"]) for x in entries if "E" in x.selects), (0, 0))
    # ep alone divides the experts of a feed-forward block
    letters = TENSOR if experts == 0 else ("h",)
    tensor = any(letter in entry.weight for entry in entries for letter in letters)
    if experts != 0 and plan.ep != 1:
        if any({"h", "E"} <= entry.weight.keys() for entry in entries):
            raise PlanError(
                f"ep={plan.ep}: each head of {path or 'the layer'} has experts of its own; tp divides heads"
            )
        attends = any(entry.kind == "scores" for entry in entries)
        if not plan.replicated and plan.tp != 1 and (attends or not plan.sp):
            wanted = f"ep={plan.tp}:replicated" if attends else "sp"
            raise PlanError(f"experts of {path or 'the layer'} with ep={plan.ep} and tp={plan.tp} need {wanted}")
        if attends and not plan.replicated and plan.cp != 1 and plan.cp % plan.ep:
            raise PlanError(f"ep={plan.ep} must divide cp={plan.cp}: experts are heads, which need all keys")
        return _Block(SHARED if plan.replicated else DISPATCHED, experts, top_k)
    if plan.tp == 1:
        return _Block(WHOLE)
    if not tensor:
        advice = f"; ep={plan.tp}:replicated divides its experts" if experts != 0 else ""
        raise PlanError(f"tp={plan.tp} divides heads, dense feed-forwards and V, and none is in {path or 'it'}{advice}")
    heads, keys = _heads_on_rank(entries, plan)
    return _Block(DIVIDED, heads=heads, keys=keys)


def _heads_on_rank(entries: Sequence[Entry], plan: Plan) -> tuple[Size, int]:
    """Return the heads that a token uses of the rank that has most, and the key/value heads that dealt heads read.

    Of h heads the first s are shared, and a token selects the others evenly. Runs of neighbouring heads, one for each
    rank, or as long as fit where they are dealt. 0, 0 where a token uses all heads.
    """
    own = next((entry for entry in entries if "h" in entry.selects), None)
    if own is None:
        return 0, 0
    h, k, s, is_dealt = own.weight["h"], own.dims["k"], own.shared, plan.heads == "dealt"
    run = gcd(s, h - s) if is_dealt else h
    if run % plan.tp and is_dealt:
        raise PlanError(f"tp={plan.tp}, heads=dealt does not divide {s} shared heads and {h - s} others")
    if run % plan.tp:
        _refuse(plan, ("tp",), "h", h)
    run //= plan.tp
    starts = [range(run * rank, h, run * plan.tp) for rank in range(plan.tp)]
    ranks = [[head for start in of_rank for head in range(start, start + run)] for of_rank in starts]
    shared = [sum(head < s for head in held) for held in ranks]
    routed = Fraction(k - s, h - s) if h != s else 0
    most = divide(max(own + routed * (h // plan.tp - own) for own in shared), 1)
    if isinstance(most, Fraction):
        raise PlanError(f"tp={plan.tp}, heads={plan.heads}: a token uses {most} heads of a rank, no whole number")
    if not is_dealt:
        return most, 0
    g = next(entry.weight["g"] for entry in entries if "g" in entry.weight)
    keys = [{head * g // h for head in held} for held in ranks]
    copies = Counter(key for held in keys for key in held)
    if len(set(copies.values())) > 1 or len(set(map(len, keys))) > 1:
        raise PlanError(f"tp={plan.tp}, heads=dealt: ranks share the {g} key/value heads unevenly")
    return most, len(keys[0])


def _block_of(path: str, blocks: Mapping[str, _Block]) -> _Block:
    """Return the block that a module belongs to."""
    return blocks.get(block_path(path), _Block(OUTSIDE))


def _is_divided(entry: Entry, block: _Block) -> bool:
    """Return whether tp divides letters of the entry: one of such a block, or of the vocabulary."""
    if block.mode != OUTSIDE:
        return block.mode == DIVIDED
    # an embedding without a weight reads the vocabulary's table of another entry
    return "V" in (*entry.dims, *entry.weight) or entry.kind == "embedding" and not entry.weight


def _degrees(entry: Entry, plan: Plan, block: _Block) -> dict[str, Size]:
    """Return by what each letter of an entry is divided."""
    is_apart = block.mode in (DISPATCHED, OUTSIDE) and not _is_divided(entry, block)
    tokens = plan.cp * plan.tp if plan.sp and is_apart else plan.cp
    # own queries read all keys
    reads_all = "T" in entry.dims or _reads_latents(entry)
    by = {"T": tokens, "S": tokens if block.mode == OUTSIDE else 1 if reads_all else plan.cp}
    if _is_divided(entry, block):
        by |= dict.fromkeys("hFV", plan.tp)
        g = entry.weight.get("g", entry.dims.get("g", 1))
        # fewer key/value heads than ranks: several ranks have the same head
        is_repeated = isinstance(g, int) and isinstance(plan.tp, int) and g < plan.tp and plan.tp % g == 0
        by["g"] = g if is_repeated else divide(g, block.keys) if block.keys else plan.tp
    if block.mode in (DISPATCHED, SHARED) and "E" in entry.selects:
        by["E"] = plan.ep
    if block.mode == SHARED and "router" not in entry.path.split("."):
        by["K"] = plan.ep
    return by


def _on_rank(entry: Entry, plan: Plan, blocks: Mapping[str, _Block]) -> Entry:
    """Return an entry of the whole model as one rank has it. Raises PlanError where a degree does not divide a size."""
    block = _block_of(entry.path, blocks)
    by = _degrees(entry, plan, block)
    for letter, size in {**entry.dims, **entry.weight}.items():
        degree = by.get(letter, 1)
        if letter == "K" and degree != 1:
            size = prod(entry.dims[one] for one in ("B", "T", "K"))
        if not _divides(degree, size):
            axis = {"E": "ep", "K": "ep", "T": "cp", "S": "cp"}.get(letter, "tp")
            _refuse(plan, ("cp", "tp") if letter in "TS" and degree != plan.cp else (axis,), letter, size)
    dims = {letter: divide(size, by.get(letter, 1)) for letter, size in entry.dims.items()}
    # each rank has the positions of all tokens
    weight = {letter: divide(size, 1 if letter == "T" else by.get(letter, 1)) for letter, size in entry.weight.items()}
    if isinstance(dims.get("K"), Fraction):
        # fewer experts of a token than ranks: whole rows, not whole experts of each token
        rows = prod(dims.pop(letter) for letter in ("B", "T", "K"))
        dims = {"N_r": divide(rows, 1), "K": 1, **dims}
    if block.heads != 0 and "k" in dims:
        dims["k"] = block.heads
    return entry.with_sizes(dims=dims, weight=weight)


def _check_fits(form: Ledger, plan: Plan) -> None:
    """Raise PlanError where an operation cannot be divided, ``ep`` divides nothing, or ``hsdp`` too few replicas."""
    for entry in form:
        pools = entry.kind == "linear" and "h" in entry.weight and not entry.dims.keys() & {"T", "S"}
        divides_tokens = plan.cp != 1 or plan.tp != 1 and (pools or plan.sp)
        if (entry.kind == "conv" or pools) and divides_tokens:
            word = f"cp={plan.cp}" if plan.cp != 1 else f"tp={plan.tp}" if pools else "sp"
            reads = "all tokens at once" if pools else "neighbouring tokens"
            raise PlanError(f"{word}: no closed form of {entry.path}, which reads {reads}")
        # a block gathers the tokens of its input
        if plan.sp and "T" in entry.dims and not _divides(plan.cp * plan.tp, entry.dims["T"]):
            _refuse(plan, ("cp", "tp"), "T", entry.dims["T"])
    # raises PlanError for a block, by its path in the whole model
    blocks = _blocks(form, plan)
    if plan.ep != 1 and not any(block.experts != 0 for block in blocks.values()):
        raise PlanError(f"ep={plan.ep}: the model has no experts")
    if plan.hsdp != 1:
        for entry in form:
            replicas = _replicas(entry, plan, _block_of(entry.path, blocks))
            if not _divides(plan.hsdp, replicas):
                what = "experts, dp x cp x tp / ep =" if "E" in entry.selects else "weights, dp x cp ="
                raise PlanError(f"hsdp={plan.hsdp} does not divide the replicas of {what} {replicas}")


def _divides(degree: Size, size: Size) -> bool:
    """Return whether ``degree`` divides ``size``; of symbols, that it may."""
    return not (isinstance(size, int) and isinstance(degree, int)) or size % degree == 0


def _refuse(plan: Plan, axes: Sequence[str], letter: str, size: int) -> None:
    """Raise PlanError for degrees whose product does not divide ``size``."""
    degree = prod(getattr(plan, axis) for axis in axes)
    fits = divisors(size)
    near = [*[n for n in fits if n < degree][-1:], *[n for n in fits if n > degree][:1]]
    words = " x ".join(f"{axis}={getattr(plan, axis)}" for axis in axes if getattr(plan, axis) != 1)
    raise PlanError(f"{words} does not divide {letter} = {size:,}; nearest that fit: {', '.join(map(str, near))}")


def _stage_ledgers(form: Ledger, plan: Plan) -> list[tuple[str, int, int, Ledger, tuple[int, int] | None]]:
    """Return name and number of each class of equal pipeline stages, and place, entries and layers of its first one."""
    if plan.pp == 1:
        return [("all", 1, 0, form, None)]
    runs = [(entry, match) for entry in form if (match := _LAYERS.search(entry.path))]
    if not runs:
        raise PlanError(f"pp={plan.pp}: the model has no layers")
    if not any(entry.kind == "embedding" and "V" in entry.weight for entry in form):
        raise PlanError(f"pp={plan.pp}: stages have a closed form for language models only")
    if any(entry.kind == "linear" and "V" in entry.dims and not entry.weight for entry in form):
        raise PlanError(f"pp={plan.pp}: a tied output projection belongs to the first stage and to the last")
    number = max(int(match[1] or 0) + entry.times for entry, match in runs)
    sizes = plan.stages or _even_stages(number, plan.pp)
    if sum(sizes) != number or min(sizes) < 0:
        raise PlanError(f"pp={'+'.join(map(str, sizes))} are {sum(sizes)} layers; the model has {number}")
    outside = form.select(lambda entry: not _LAYERS.search(entry.path))
    before = outside.select(lambda entry: entry.kind == "embedding")
    behind = outside.select(lambda entry: entry.kind != "embedding")
    found: dict[str, list] = {}
    for stage, (start, stop) in enumerate(pairwise([0, *accumulate(sizes)])):
        name = {0: "first", plan.pp - 1: "last"}.get(stage, "middle")
        layers = _layers_of(runs, start, stop)
        part = ledger(*[before] * (name == "first"), layers, *[behind] * (name == "last"))
        found.setdefault(repr((name, part)), []).append((name, stage, part, (start, stop)))
    return [(name, len(equal), place, part, own) for equal in found.values() for name, place, part, own in equal[:1]]


def _even_stages(number: int, stages: int) -> list[int]:
    """Return layers by stage where embedding and logits count as a layer each; middle stages get what is left first."""
    each, left = divmod(number + 2, stages)
    middle = stages - 2
    inner = [each + (place < left) for place in range(middle)]
    return [each + (middle < left) - 1, *inner, each + (middle + 1 < left) - 1]


def _layers_of(runs: Iterable[tuple[Entry, re.Match]], start: int, stop: int) -> Ledger:
    """Return the entries of layers ``start`` to ``stop`` - 1, numbered from 0."""
    out = []
    for entry, match in runs:
        own = int(match[1] or 0)
        first, last = max(own, start) - start, min(own + entry.times, stop) - start - 1
        if first <= last:
            index = str(first) if first == last else f"{first}-{last}"
            index = "*" if (first, last) == (0, stop - start - 1) else index
            path = f"{entry.path[: match.start()]}{index}{entry.path[match.end() :]}"
            out.append(replace(entry, path=path, times=last - first + 1))
    return ledger(out)


ADJOINT = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_reduce": "", "": "all_reduce"}
"""Collective of the gradient, where it differs from that of the value; empty for none."""


def _both_ways(path: str, kind: str, axis: str, group: Size, own: Size, times: Size) -> Iterator[Transfer]:
    """Iterate over a collective of the forward pass and the one of its gradient."""
    kinds = {"forward": kind, "backward": ADJOINT.get(kind, kind)}
    return (Transfer(path, one, axis, group, own, phase, times=times) for phase, one in kinds.items() if one)


def _border(path: str, rows: Size, plan: Plan, times: Size, *, sums: bool) -> Iterator[Transfer]:
    """Iterate over the collectives of ``rows`` elements between what tp divides and what is whole, or divided by sp.

    ``sums``: each rank has a part of the sum that leaves the divided side; else they enter it, and their gradients are
    the sums.
    """
    if plan.sp:
        kind, rows = "reduce_scatter" if sums else "all_gather", divide(rows, plan.tp)
    else:
        kind = "all_reduce" if sums else ""
    return _both_ways(path, kind, "tp", plan.tp, rows, times)


def _activations(form: Ledger, plan: Plan, blocks: Mapping[str, _Block]) -> Iterator[Transfer]:
    """Iterate over the collectives of activations and of their gradients in a rank's ledger."""
    for entry in form:
        block = _block_of(entry.path, blocks)
        if block.mode == OUTSIDE and _is_divided(entry, block) and entry.kind in ("embedding", "linear"):
            # the embedding is a sum over parts of the vocabulary; source and target words have one table
            rows = divide(prod(entry.dims.values()), entry.dims.get("V", 1))
            yield from _border(entry.path, rows, plan, entry.times, sums=entry.kind == "embedding")
    for path, block in blocks.items():
        entries = _entries_of(path, form)
        if block.mode in (DIVIDED, SHARED):
            # the first product of a block reads the block's input
            first = next(entry for entry in entries if entry.kind == "linear")
            tokens = first.dims["B"] * first.dims["T"]
            for sums in (False, True):
                yield from _border(path, tokens * first.dims["d_m"], plan, first.times, sums=sums)
        if block.mode == DIVIDED and any(map(_is_whole_router, entries)):
            queries = next(entry.weight for entry in entries if "h" in entry.weight)
            router = at(path, "router")
            yield Transfer(router, "all_gather", "tp", plan.tp, tokens * queries["h"], "backward", times=first.times)
            if any(_is_whole_router(entry) and "d_h" in entry.dims for entry in entries):
                # a router by norms reads the queries of all heads
                own = tokens * queries["h"] * queries["d_h"]
                yield Transfer(router, "all_gather", "tp", plan.tp, own, "forward", times=first.times)
        if block.mode == DISPATCHED:
            yield from _sent_rows(path, entries, plan, block)
        if any(entry.kind == "scores" for entry in entries):
            yield from _gathered_keys(entries, plan, block)
    for entry in form:
        reads_memory = "cross_attn" in entry.path.split(".") and entry.weight and "S" in entry.dims
        if reads_memory and _block_of(entry.path, blocks).mode in (DIVIDED, SHARED):
            # once for all layers: each rank sums their gradients of an encoder's output before the ranks do
            yield from _border("encoder", prod(entry.dims[letter] for letter in ("B", "S", "d_m")), plan, 1, sums=False)
            break


def _is_whole_router(entry: Entry) -> bool:
    """Return whether the entry scores all heads on each rank, so that each needs the gradients of all gates."""
    return "router" in entry.path.split(".") and "h" not in (entry.weight or entry.dims)


def _gathered_keys(entries: Sequence[Entry], plan: Plan, block: _Block) -> Iterator[Transfer]:
    """Iterate over the collectives of keys and values, whose tokens are divided over cp, or over the experts' ranks."""
    axis = "ep" if block.mode == DISPATCHED and plan.cp == 1 else "cp"
    group = getattr(plan, axis)
    if group != 1 and not any(_is_product(entry) and "S" in entry.dims for entry in entries):
        raise PlanError(f"{axis}={group}: no closed form of the keys and values of {block_path(entries[0].path)}")
    for entry in entries:
        reads_keys = _is_product(entry) and "S" in entry.dims and "d_m" in entry.weight
        if group == 1 or not reads_keys or "router" in entry.path.split("."):
            continue
        if not entry.path.endswith(("k_proj", "v_proj", "kv_proj", "kv_down_proj", "k_rotary_proj")):
            raise PlanError(f"{axis}={group}: no closed form of keys and values that {entry.path} computes")
        if plan.ring and any(map(_reads_latents, entries)):
            raise PlanError(f"cp={group}:ring: latents are gathered, not sent around; choose cp={group}")
        outputs = prod(size for letter, size in entry.weight.items() if letter not in ("E", "d_m"))
        own = entry.dims["B"] * entry.dims["S"] * outputs
        ring = plan.ring and axis == "cp"
        kind, own = ("send", (group - 1) * own) if ring else ("all_gather", own)
        yield from _both_ways(entry.path, kind, axis, group, own, entry.times)


def _reads_latents(entry: Entry) -> bool:
    """Return whether the entry makes keys or values from the latents of all tokens, which are gathered before."""
    return entry.kind == "linear" and "S" in entry.dims and "d_c" in entry.weight and "d_m" not in entry.weight


def _sent_rows(path: str, entries: Sequence[Entry], plan: Plan, block: _Block) -> Iterator[Transfer]:
    """Iterate over the collectives that take rows to their experts' ranks and back; indices and counts go once."""
    inward = next(entry for entry in entries if "E" in entry.selects)
    tokens, n = inward.dims["B"] * inward.dims["T"], plan.ep
    # the rank computes an equal part of the rows of each rank, itself included
    stays = divide(tokens * inward.dims["K"], n)
    # of rows that the ranks do not divide evenly a whole number, rounded up
    leaves, returns = map(_whole, (tokens * block.top_k - stays, (n - 1) * stays))
    for rows in (leaves, returns):
        yield from _both_ways(path, "all_to_all", "ep", n, rows * inward.weight["d_m"], inward.times)
    for own in (leaves, n - 1):
        yield Transfer(path, "all_to_all", "ep", n, own, "forward", INDEX, inward.times)


def _weights(form: Ledger, on_rank: Ledger, plan: Plan, blocks: Mapping[str, _Block]) -> Iterator[Transfer]:
    """Iterate over the collectives of weights and of their gradients: of a ledger and of what a rank has of it."""
    for whole, entry in zip(form, on_rank, strict=True):
        if not entry.weight:
            continue
        block, one = _block_of(entry.path, blocks), prod(entry.weight.values())
        group, part = _replicas(entry, plan, block), _shard(entry, plan, block)
        shards = divide(group, plan.hsdp)
        # the weights outside the layers are of the root unit, which stays gathered
        again = ("backward",) if not plan.keep and _LAYERS.search(entry.path) else ()
        # the optimizer changes no frozen weight
        changed = ("sync",) * entry.trainable
        for phase in {0: (), 3: ("forward", *again)}.get(plan.zero, changed):
            yield Transfer(entry.path, "all_gather", "dp", shards, part, phase, PARAMETER, entry.times)
        sums = [("all_reduce", "dp", group, one)]
        if plan.zero:
            sums = [("reduce_scatter", "dp", shards, part), ("all_reduce", "dp", plan.hsdp, part)]
        if "g" in entry.weight and _is_divided(entry, block):
            sums.append(("all_reduce", "tp", divide(plan.tp * entry.weight["g"], whole.weight["g"]), one))
        if _sees_a_part(entry, plan, block):
            sums.append(("all_reduce", "tp", plan.tp, one))
        for words in sums if entry.trainable else ():
            yield Transfer(entry.path, *words, "sync", REDUCTION, entry.times)


def _sees_a_part(entry: Entry, plan: Plan, block: _Block) -> bool:
    """Return whether the ranks of tp have the same weight and only a part of its gradient each."""
    if "E" in entry.selects or _is_divided(entry, block):
        # latents, rotary keys of all heads, and norms of each head, feed the heads of each rank
        return bool(entry.weight.keys() & {"d_c", "d_q", "d_r", "d_h"}) and not entry.weight.keys() & {"h", "g"}
    return block.mode == SHARED or plan.sp and block.mode in (DISPATCHED, OUTSIDE)


def _replicas(entry: Entry, plan: Plan, block: _Block) -> Size:
    """Return the number of ranks with the same part of a weight and different tokens."""
    if block.mode == DISPATCHED and "E" in entry.selects:
        return divide(plan.dp * plan.cp * plan.tp, plan.ep)
    return plan.dp * plan.cp


def _shard(entry: Entry, plan: Plan, block: _Block) -> Size:
    """Return the elements of a weight on one of the ranks that divide it: dimension 0 of each tensor, rounded up."""
    shards, rows = divide(_replicas(entry, plan, block), plan.hsdp), _rows(entry)
    if rows == 0:
        return 0
    # scale and shift of a norm are two tensors
    tensors = entry.weight.get("2", 1) if entry.kind == "norm" else 1
    return tensors * -(-rows // shards) * divide(prod(entry.weight.values()), rows * tensors)


def _rows(entry: Entry) -> Size:
    """Return dimension 0 of a weight as its module stores it: experts, rows of a table, a linear layer's outputs."""
    sizes = dict(entry.weight)
    if "E" in entry.selects:
        return sizes.get("h", 1) * sizes["E"]
    if entry.kind == "norm":
        return divide(prod(sizes.values()), sizes.get("2", 1))
    if "T" in sizes:
        # a table of positions for one sequence
        return 1
    if entry.kind in ("bias", "expert_bias", "rms_norm", "elementwise"):
        return prod(sizes.values())
    first, *outputs = sizes
    # a projection of tokens or of latents, or of heads or inner units back to tokens
    if _is_product(entry) and first in ("d_m", "d_q", "d_c"):
        return prod(map(sizes.get, outputs))
    is_table = not _is_product(entry) or "w" in sizes
    return sizes[first if is_table else outputs[-1]]


def _is_product(entry: Entry) -> bool:
    return entry.kind in ("linear", "expert_linear")


def _held(form: Ledger, plan: Plan, blocks: Mapping[str, _Block]) -> dict[str, Size]:
    """Return the elements of weights, gradients and optimizer states that a rank keeps."""
    least_stage = {"weights": 3, "gradients": 2, "optimizer": 1}
    held = dict.fromkeys(least_stage, 0)
    for entry in form:
        # frozen weights have no gradient
        parts = () if not entry.weight else least_stage if entry.trainable else ("weights",)
        for part in parts:
            divided = plan.zero >= least_stage[part]
            held[part] += entry.times * _shard(entry, plan, _block_of(entry.path, blocks)) if divided else entry.params
    return held


def _stage_borders(stage: str, form: Ledger, plan: Plan) -> list[Transfer]:
    """Return the sends of a pipeline stage: activations to the next one, gradients to the one before."""
    if plan.pp == 1:
        return []
    words = next(entry for entry in form if entry.kind == "embedding")
    rows = divide(prod(words.dims.values()), plan.cp * (plan.tp if plan.sp else 1))
    directions = {"forward": stage != "last", "backward": stage != "first"}
    return [Transfer("", "send", "pp", plan.pp, rows, phase) for phase, sends in directions.items() if sends]
