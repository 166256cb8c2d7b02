"""Runs of a causal decoder on meta: what each multiplies and reads, and what its cache stores."""

import copy
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.closed_form.solve import Lengths
from headcount.bench.contractions import costs
from headcount.bench.contractions.modules import active_shares, used_weights
from headcount.bench.contractions.selections import parameter_of, weight_of
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.counting.copies import META, FakeWeights, with_fake_weights
from headcount.bench.counting.decode_step import CACHES, tensors_of_cache
from headcount.bench.counting.module import build
from headcount.bench.counting.result import Count
from headcount.bench.counting.tools import RecordedCall
from headcount.bench.targets.config_file import find_file
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError, run_user_code
from headcount.bench.trace.events import Trace, tensors_in
from headcount.bench.trace.memory import kept_storages
from headcount.bench.trace.shapes import cache_shapes
from headcount.formulas.ledger import RESULT

IDS = "input_ids"
_WINDOWS = re.compile(r"window(_size)?$|attention_chunk_size$")
_CHUNKS = re.compile(r"chunk_(size|length)$")
_POSITIONS = re.compile(r"(wpe|position_embeddings?|embed_positions)$")


@dataclass(frozen=True)
class Item:
    """An operation of a run: its sizes by letter, and the names of the parameters that it is the first to read.

    ``pairs``: those that a mask leaves, and all of them; None where they are not known.
    """

    path: str
    kind: str
    dims: Mapping[str, int]
    weights: tuple[str, ...] = ()
    pairs: tuple[int, int] | None = None
    times: int = 1


@dataclass(frozen=True)
class Observed:
    """A run at some lengths, its products and embeddings in order, and its other operations.

    ``cache``: path and shape of each floating-point tensor of the cache before a step, ``after`` its elements after it.
    """

    at: Lengths
    products: tuple[Item, ...]
    others: tuple[Item, ...]
    count: Count
    cache: tuple[tuple[str, tuple[int, ...]], ...] = ()
    after: int = 0


@dataclass(frozen=True)
class Weight:
    """A parameter: its shape, the share that a token uses (None where unknown), and what a run does with it.

    ``is_used``: an operation has it, ``is_read``: operations read all of it.
    """

    shape: tuple[int, ...]
    trainable: bool
    share: Any
    is_used: bool
    is_read: bool

    @property
    def params(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def _once(run: Callable[["Decoder", Lengths], Any]) -> Callable[["Decoder", Lengths], Any]:
    """Make a run of a decoder at some lengths once."""

    @wraps(run)
    def found(self: "Decoder", at: Lengths) -> Any:
        name = run.__name__, at
        if name not in self._runs:
            self._runs[name] = run(self, at)
        return self._runs[name]

    return found


@dataclass
class Decoder:
    """A causal decoder of ``target``, a configuration, and its runs on meta, each of which is made once.

    ``weights`` are its parameters by name, and ``weight_bytes`` their bytes. ``base`` is the configuration of which
    some fields were ``changed``, None where none were.
    """

    target: Target
    base: Target | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict, init=False)
    weight_bytes: int = field(default=0, init=False)
    _runs: dict[tuple[str, Lengths], Any] = field(default_factory=dict, init=False)
    _built: Any = field(init=False)
    _options: Any = field(init=False)

    def __post_init__(self) -> None:
        self._built, self._options = build(self.target, {})
        names = ", ".join(self._built.kwargs)
        if self._built.args or set(self._built.kwargs) != {IDS}:
            raise UserCodeError(
                f"no closed form: it is of causal decoders of {IDS} alone, and this model takes {names}"
            )
        if getattr(self.module.config, "is_encoder_decoder", False) or self._cache_name is None:
            raise UserCodeError("no closed form: it is of causal decoders, and this model takes no cache")

    @property
    def module(self) -> nn.Module:
        """The model, on meta."""
        return self._built.module

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about how it was built."""
        return self._built.notes

    def with_fields(self, fields: Mapping[str, Any]) -> "Decoder":
        """Return the decoder of the configuration with other values of some fields, whether its class names them."""
        base, names = self.base or self.target, self.module.config.attribute_map
        path = find_file(base.spec) if base.spec.startswith("hf:") else Path(base.spec)
        changed = {**self.changed, **{names.get(name, name): value for name, value in fields.items()}}
        settings = {name: value for name, value in base.settings.items() if names.get(name, name) not in changed}
        with TemporaryDirectory() as folder:
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changed), "utf-8")
            return Decoder(replace(base, spec=str(file), settings=settings), base, changed)

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """The windows and the ranges of attention that the configuration states, whether a layer has them or not."""
        return self._sizes(_WINDOWS)

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """The chunks of scans that it states."""
        return self._sizes(_CHUNKS)

    def _sizes(self, names: re.Pattern) -> tuple[int, ...]:
        fields = _integers(self.module.config.to_dict())
        return tuple(sorted({size for name, size in fields if size > 1 and names.search(name)}))

    @cached_property
    def positions(self) -> int | None:
        """The most tokens that tables of learned positions have places for; None without such a table."""
        return _positions(self.module)

    @cached_property
    def _cache_name(self) -> str | None:
        names = inspect.signature(self.module.forward).parameters
        return next((name for name in CACHES if name in names), None)

    @property
    def prefill_options(self) -> dict[str, int]:
        """The argument with which a pass gives the logits of the last token alone, where it takes that."""
        name = "logits_to_keep"
        return {name: 1} if name in inspect.signature(self.module.forward).parameters else {}

    def cache_of(self, out: Any) -> Iterator[Tensor]:
        """Iterate over the tensors of the cache in an output."""
        return tensors_of_cache(getattr(out, str(self._cache_name), None))

    def ids(self, B: int, T: int, device: str = META) -> Tensor:
        """Return token ids."""
        return torch.ones(B, T, dtype=torch.long, device=device)

    @_once
    def forward(self, at: Lengths) -> Observed:
        """Return a pass over new tokens without stored ones; the first one finds what it does with the parameters."""
        count = self._counted((self.module, (), {IDS: self.ids(at.B, at.T)}), at)
        if not self.weights:
            self._find_weights(count)
        return self._observed(count, at)

    @_once
    def training_macs(self, at: Lengths) -> int:
        """Return the MACs of a forward and a backward pass, without products that run again."""
        options = {**self._options, "backward": True}
        count = run_user_code(
            f"a training step at {at}",
            lambda: RecordedCall(self.module, (), {IDS: self.ids(at.B, at.T)}, **options).headcount,
        )
        return count.macs - sum(entry.size for entry in count.ledger if entry.kind.endswith("_recompute"))

    @_once
    def kept(self, at: Lengths) -> list[Item]:
        """Return the bytes of each tensor that the forward pass of a training step keeps, by module, in order."""
        call = self.module, (), {IDS: self.ids(at.B, at.T)}
        found = run_user_code(f"a training step at {at}", lambda: kept_storages(*call))
        return [Item(path, RESULT, {"j": size}) for path, size in found if size]

    @_once
    def masked(self, at: Lengths) -> Observed:
        """Return a pass whose masks have values, as they have on the CPU; weights have none."""
        ids = self.ids(at.B, at.T, "cpu")
        count = self._counted(with_fake_weights((self.module, (), {IDS: ids}), FakeWeights(seed=0)), at)
        return self._observed(count, at)

    @_once
    def step(self, at: Lengths) -> Observed:
        """Return a pass over one new token behind stored ones, with a cache that the model has filled itself."""
        cache = self.fill(at)
        tensors = list(tensors_of_cache(cache))
        shapes = tuple(self._shapes(cache))
        made: list[Any] = []

        def rebuild(values: list[Tensor]) -> Any:
            """Return a cache of these tensors: a run adds tokens to its own cache alone."""
            made[:] = [copy.deepcopy(cache, {id(old): new for old, new in zip(tensors, values, strict=True)})]
            return made[0]

        name = str(self._cache_name)
        # the recorder sees tensors among the arguments of a call, and no others
        handle = self.module.register_forward_pre_hook(
            lambda _, args, kwargs: (args, {**kwargs, name: rebuild(kwargs[name])}), with_kwargs=True
        )
        try:
            count = self._counted((self.module, (), {IDS: self.ids(at.B, 1), name: tensors}), at)
        finally:
            handle.remove()
        return self._observed(count, at, shapes, _elements(tensors_of_cache(made[0])))

    def fill(self, at: Lengths) -> Any:
        """Return the cache after ``at.n`` tokens. Raises UserCodeError where there is none."""
        with torch.no_grad(), cache_shapes(self.module):
            ids = self.ids(at.B, at.n)
            out = run_user_code("filling the cache", lambda: self.module(**{IDS: ids, "use_cache": True}))
        cache = getattr(out, str(self._cache_name), None)
        if cache is None:
            raise UserCodeError(f"{type(self.module).__name__} returns no cache")
        return cache

    def _shapes(self, cache: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Iterate over the floating-point tensors of a cache: the path of the layer's module, and the shape."""
        paths = {module.layer_idx: path for path, module in self._layers()}
        layers = getattr(cache, "layers", None)
        parts = enumerate(layers) if isinstance(layers, list) else [(None, cache)]
        for number, part in parts:
            for tensor in tensors_of_cache(part):
                if tensor.is_floating_point():
                    yield paths.get(number, ""), tuple(tensor.shape)

    def _layers(self) -> Iterator[tuple[str, nn.Module]]:
        """Iterate over the modules that know the index of their layer, the innermost last."""
        for path, module in self.module.named_modules():
            if isinstance(getattr(module, "layer_idx", None), int) and any(True for _ in module.parameters()):
                yield path, module

    def _counted(self, call: Any, at: Lengths) -> Count:
        return run_user_code(f"a run at {at}", lambda: RecordedCall(*call, **self._options).headcount)

    def _observed(self, count: Count, at: Lengths, cache: tuple = (), after: int = 0) -> Observed:
        trace, by_event = count.trace, count.run.by_event
        products, others = _items(trace, by_event)
        return Observed(
            at,
            tuple(products),
            tuple(others),
            count,
            cache,
            after,
        )

    def _find_weights(self, count: Count) -> None:
        """Set the parameters by name, as a pass uses them, and their bytes."""
        trace = count.trace
        shares = active_shares(trace, count.run.by_event)
        used, (_, read) = used_weights(trace), costs.elements_read(trace)
        for weight in trace.weights:
            share = None if shares is None else shares.get(weight.storages[0], 1)
            is_read = read.get(weight.storages[0], 0) >= prod(weight.shape)
            self.weights[weight.name] = Weight(weight.shape, weight.trainable, share, weight.name in used, is_read)
        self.weight_bytes = sum(weight.bytes for weight in trace.weights)


_DECODERS: dict[str, Decoder] = {}


def decoder_of(target: Target) -> Decoder:
    """Return the decoder of a target: the one that this process built last, with its runs, where that is of it."""
    name = repr(target)
    if name not in _DECODERS:
        _DECODERS.clear()
        _DECODERS[name] = Decoder(target)
    return _DECODERS[name]


def _integers(data: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Iterate over the integers of a configuration with their names."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _integers(value, str(key))
    elif type(data) is int:
        yield name, data


def _positions(module: Any) -> int | None:
    """Return the most tokens that the tables of learned positions have places for."""
    found = []
    for path, table in module.named_modules():
        if _POSITIONS.search(path) and hasattr(table, "num_embeddings"):
            first = getattr(table, "offset", 0) or (0 if table.padding_idx is None else table.padding_idx + 1)
            found.append(table.num_embeddings - first)
    return min(found, default=None)


def _items(trace: Trace, by_event: Any) -> tuple[list[Item], list[Item]]:
    """Return the products and embeddings of a run, and its other operations."""
    pairs_of = costs.pairs_by_event(trace, by_event)
    priced: dict[int, list[tuple[str, int]]] = {}
    for event, kind, elements in costs.other_operations(trace, by_event):
        priced.setdefault(event.index, []).append((kind, elements))
    products: list[Item] = []
    others: list[Item] = []
    hosted: set[int] = set()

    def host(storages: Iterator[int | None]) -> tuple[str, ...]:
        """Return the names of parameters that no operation before has read."""
        new = dict.fromkeys(one for one in storages if one is not None and one not in hosted)
        hosted.update(new)
        return tuple(trace.parameters[one][0] for one in new)

    for event in trace.operations():
        parts = by_event.get(event.index, ())
        if base(event.name) == "embedding":
            weights = host(iter([parameter_of(trace, next(event.tensors()))]))
            shape = next(tensors_in(event.out)).shape
            products.append(Item(event.path, "embedding", {"b": prod(shape[:-1]), "d_m": shape[-1]}, weights))
        for kind, product in parts:
            weights = host(weight_of(trace, fact) for fact in product.operands)
            pairs = pairs_of.get(event.index) if kind in ("scores", "values") else None
            products.append(Item(event.path, kind, _dims(kind, product.dims), weights, pairs))
        for kind, elements in priced.get(event.index, ()):
            weights = host(parameter_of(trace, fact) for fact in event.tensors())
            others.append(Item(event.path, kind, {"j": elements}, weights))
    return products, others


def _dims(kind: str, dims: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of a product; of attention's those of the queries of all heads, of the keys and of a head.

    Grouped queries of a step are rows of the matrices of their keys, or matrices of their own.
    """
    letters = {"scores": ("j", "i"), "values": ("i", "j")}.get(kind)
    if letters is None:
        return dims
    return {"b": dims.get("b", 1) * dims.get("m", 1), **{letter: dims[letter] for letter in letters}}


def _elements(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
