"""Look for the layouts and channels of inputs by trial runs of a model without values."""

import copy
import math
import re
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

MAX_VALUES = 2**16
"""Elements up to which inputs keep their values in trial runs."""
NO_VALUES = "a tensor has no values"
"""Error of a trial run that reads values."""
_NO_VALUES = re.compile(r"\bmeta (tensor|device)")
"""Words of torch about an operation that does not run without values."""
RUNS, CALLS = 500, 50_000
"""The most trial runs, and the most calls in all of them."""
ENOUGH = 1000
"""Calls after all inputs are read, more than those of two blocks of a denoiser, after which a run ends."""


@dataclass(frozen=True)
class Candidate:
    """An input whose layout and number of channels are looked for.

    Attributes:
        layouts: those that its kind may have; ``layout`` is the present one.
        channels: the size of the axis C; ``is_known`` says that the configuration gives it.
        sizes: of the other axes.
        listed: a list of so many tensors; 0 says as many as the batch, without its axis.
    """

    layouts: tuple[str, ...]
    layout: str
    channels: int
    is_known: bool
    sizes: Mapping[str, int]
    listed: int | None = None

    @property
    def axes(self) -> str:
        """The letters of the present layout."""
        return self.layout.partition(":")[0]

    def make(self, dtype: torch.dtype, most: int | None = None) -> Any:
        """Return the input, without values where it has more than ``most`` elements."""
        name = self.layout.partition(":")[2]
        sizes = [self.channels if axis == "C" else self.sizes[axis] for axis in self.axes]
        if name == "image":
            return (torch.arange(sizes[-1]) >= self.sizes["S"]).expand(sizes)
        dtype = getattr(torch, name) if name else dtype
        device = "cpu" if most is None or math.prod(sizes) <= most else "meta"
        if self.listed is None:
            return torch.ones(sizes, dtype=dtype, device=device)
        sizes = sizes if self.listed else sizes[1:]
        return [torch.ones(sizes, dtype=dtype, device=device) for _ in range(self.listed or self.sizes["B"])]


Candidates = dict[str, Candidate]
"""Inputs by name."""


class Attempt(NamedTuple):
    """Inputs with which a model failed; the less its ``rank``, the further the run came."""

    rank: tuple[int, ...]
    inputs: Candidates
    error: str
    readers: "Readers"
    others: Iterator[Candidates]
    """Inputs that may let a run come further."""


class _Misread(Exception):
    """A layer takes another number of channels or of axes than an input has."""


class _Enough(Exception):
    """All inputs are read."""


class Readers(TorchFunctionMode):
    """Run without values, and note for each input the size that the first layer to read it finds and the one it takes.

    Attributes:
        sizes: both by the input's name; None where the layer takes another number of axes.
        misfit: the same of a linear layer that takes other channels, after others read all inputs on which it depends.
        last: the inputs on which the last call depended.
        calls: how many calls depended on inputs.

    Args:
        inputs: those that are watched.
        needed: the run ends some time after layers have read these; by default at its end.
    """

    def __init__(self, inputs: Mapping[str, Any], needed: Collection[str] = ()) -> None:
        super().__init__()
        self._needed, self._left = set(needed), ENOUGH
        self.sizes: dict[str, tuple[int, int] | None] = {}
        self.misfit: tuple[int, int] | None = None
        self.last: set[str] = set()
        self.calls = 0
        # tensors are kept: one that is made later could have the identity of one that is gone
        self._names: dict[int, tuple[Tensor, set[str]]] = {}
        for name, given in inputs.items():
            self._remember(given, {name})

    def wrong(self) -> list[str]:
        """Return the inputs of other sizes than their layers take."""
        return [name for name, sizes in self.sizes.items() if sizes is None or sizes[0] != sizes[1]]

    def _remember(self, result: Any, names: set[str]) -> None:
        for tensor in _tensors(result):
            self._names[id(tensor)] = (tensor, names | self._names_of(tensor))

    def _names_of(self, tensor: Tensor) -> set[str]:
        return self._names[id(tensor)][1] if id(tensor) in self._names else set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        names = set().union(*map(self._names_of, tensors))
        if names:
            self.calls += 1
            self.last = names
            for sizes in _layer_sizes(function, args, kwargs):
                is_read = self._names_of(args[0]) <= self.sizes.keys()
                if is_read and function is F.linear and sizes and sizes[0] != sizes[1]:
                    self.misfit = sizes
                for name in self._names_of(args[0]):
                    self.sizes.setdefault(name, sizes)
            if self.wrong():
                raise _Misread(*self.wrong())
            self._left -= bool(self._needed) and self._needed <= self.sizes.keys()
            if not self._left:
                raise _Enough
        # small inputs keep their values until they meet a tensor that has none
        if any(tensor.is_meta for tensor in tensors) or sum(tensor.numel() for tensor in tensors) > MAX_VALUES:
            if function in (Tensor.__getitem__, Tensor.__setitem__):
                args = (args[0], _positions(args[1]), *args[2:])
            args, kwargs = tree_map(_on_meta, (args, kwargs))
        result = function(*args, **kwargs)
        if names:
            self._remember(result, names)
        return result


def _tensors(tree: Any) -> Iterable[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _positions(index: Any) -> tuple[Any, ...]:
    """Return an index with the positions that its masks with values select."""
    found: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        has_values = isinstance(part, Tensor) and part.dtype == torch.bool and not part.is_meta
        found += part.nonzero(as_tuple=True) if has_values else (part,)
    return tuple(found)


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def _layer_sizes(function: Any, args: tuple, kwargs: Mapping[str, Any]) -> list[tuple[int, int] | None]:
    """Return, for a layer, the channels that it finds and those that it takes, or None; an empty list for no layer."""
    name = getattr(function, "__name__", "")
    if len(args) < 2 or not isinstance(args[0], Tensor):
        return []
    read, weight = args[:2]
    if name == "linear":
        return [(read.shape[-1], weight.shape[-1])]
    if name in ("layer_norm", "rms_norm"):
        return [(read.shape[-1], tuple(weight)[-1])]
    if name in ("mul", "__mul__", "__rmul__") and isinstance(weight, nn.Parameter) and weight.dim() == 1:
        return [(read.shape[-1], weight.shape[0])]
    if name in ("add", "__add__", "mul", "__mul__") and isinstance(weight, Tensor) and read.dim() and weight.dim():
        sizes = read.shape[-1], weight.shape[-1]
        return [] if sizes[0] == sizes[1] or 1 in sizes else [sizes]
    if name in ("reshape", "view"):
        shape = weight if isinstance(weight, list | tuple) else args[1:]
        numbers = read.numel(), math.prod(size for size in shape if isinstance(size, int))
        return [] if numbers[0] == numbers[1] or -1 in shape else [numbers]
    if name.startswith("conv"):
        groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
        channels = weight.shape[0] if "transpose" in name else weight.shape[1] * groups
        return [(read.shape[1], channels) if read.dim() == weight.dim() else None]
    return []


class Search:
    """A search for inputs with which a model runs.

    Args:
        model: the model.
        given: inputs that stay as they are.
        dtype: type of the weights.
        optional: inputs that the model may need.
        widths: numbers of channels that the configuration names.
        stops_early: a run ends some time after layers have read all inputs that have channels.

    Attributes:
        misfit: that of Readers, of the run that came furthest where none came to its end.
        is_run: whether a run came to its end.
    """

    def __init__(
        self, model: nn.Module, given: Mapping[str, Any], dtype: torch.dtype, optional: Candidates,
        widths: Iterable[int] = (), stops_early: bool = False,
    ) -> None:  # fmt: skip
        # a run may leave tensors without values in the modules
        self._model = _share_tensors(model)
        self._given, self._dtype, self._optional = given, dtype, optional
        self._widths, self._stops_early = sorted(set(widths)), stops_early
        self.misfit: tuple[int, int] | None = None
        self.is_run = False

    def fit(self, candidates: Candidates) -> Candidates:
        """Return inputs with layouts and channels with which the model runs, and the optional ones that it needs.

        Those whose run came furthest are changed first, and returned where no run comes to its end.
        """
        seen: list[Candidates] = []
        failed: list[Attempt] = []
        parent, changed, left = None, candidates, CALLS
        while changed is not None and left > 0:
            seen.append(changed)
            readers, error = self.run(changed)
            # the count has values where a run without them cannot go on
            is_furthest = all(readers.calls >= -attempt.rank[0] for attempt in failed)
            if error is None or error == NO_VALUES and is_furthest:
                self.is_run = True
                return changed
            left -= CALLS // RUNS + readers.calls
            # an optional input that changes nothing but the number of calls is not needed
            if parent is None or changed.keys() == parent.inputs.keys() or error != parent.error:
                rank = (-readers.calls, -self._placement(changed, readers), len(seen))
                failed.append(Attempt(rank, changed, error, readers, self._alternatives(changed, readers, error)))
                failed.sort(key=lambda attempt: attempt.rank)
            new = ((one, other) for one in failed for other in one.others if other not in seen)
            parent, changed = next(new, (None, None))
        best = min(failed, key=lambda one: (*one.rank[:2], one.readers.misfit is None))
        self.misfit = best.readers.misfit
        return best.inputs

    def _placement(self, candidates: Candidates, readers: Readers) -> int:
        """Return 0 where channels stand elsewhere than the last layer takes them, 1 where their number is another.

        2 says that the layer takes them.
        """
        sizes = [(candidates[name].channels, readers.sizes[name]) for name in readers.wrong()]
        is_placed = any(size is not None and size[0] % channels == 0 for channels, size in sizes)
        return (1 if is_placed else 0) if sizes else 2

    def _alternatives(self, candidates: Candidates, readers: Readers, error: str) -> Iterator[Candidates]:
        """Yield what may let a run come further: other channels, an optional input, another layout, any given width."""
        wrong = readers.wrong()
        # what the configuration gives is changed last
        for name in sorted(wrong, key=lambda name: candidates[name].is_known):
            if resized := self._resize(candidates, name, readers):
                yield {**candidates, name: resized}
        for name in sorted(self._optional, key=lambda name: not is_named(error, name)):
            if name not in candidates and not wrong and ("None" in error or is_named(error, name)):
                yield {**candidates, name: self._optional[name]}
        names = list(reversed(candidates))
        blamed = [name for name in names if name in (wrong or readers.last)]
        for name in [*blamed, *(name for name in names if name not in readers.sizes and name not in blamed)]:
            for layout in candidates[name].layouts:
                if layout != candidates[name].layout:
                    yield {**candidates, name: replace(candidates[name], layout=layout)}
        for name in (name for name in names if name not in readers.sizes and "C" in candidates[name].axes):
            yield from ({**candidates, name: replace(candidates[name], channels=width)} for width in self._widths)

    def _resize(self, candidates: Candidates, name: str, readers: Readers) -> Candidate | None:
        """Return an input with as many channels as its layer takes; None where channels do not change what it finds."""
        before, candidate = readers.sizes[name], candidates[name]
        wider = replace(candidate, channels=candidate.channels + 1)
        after = self.run({**candidates, name: wider})[0].sizes.get(name)
        if before is None or after is None:
            return None
        # a layer may read several places at once, and channels to which others were added
        times, missing = after[0] - before[0], before[1] - before[0]
        if not times or missing % times:
            return None
        if candidate.channels + missing // times < 1:
            # inputs that are concatenated with it have more channels than the layer takes
            readers.misfit = before
            return None
        return replace(candidate, channels=candidate.channels + missing // times)

    def run(self, candidates: Candidates) -> tuple[Readers, str | None]:
        """Run the model without values, and return what read the inputs, and the error if there was one."""
        tried = {name: candidate.make(self._dtype, MAX_VALUES) for name, candidate in candidates.items()}
        needed = [name for name, one in candidates.items() if "C" in one.axes and self._stops_early]
        readers = Readers(tried, needed)
        try:
            with readers, torch.no_grad():
                self._model(**self._given, **tried)
        except _Enough:
            pass
        except Exception as error:
            # torch says so in either way where an operation reads values, which says nothing of the inputs
            if _NO_VALUES.search(str(error)) or isinstance(error, NotImplementedError) and "meta" in str(error):
                return readers, NO_VALUES
            lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
            return readers, f"{type(error).__name__}: {error} {lines}"
        return readers, None


def trial_error(model: nn.Module, inputs: Mapping[str, Any]) -> str | None:
    """Return the error of a run without values; None where there is none."""
    dtype = next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)
    return Search(model, inputs, dtype, {}).run({})[1]


def _share_tensors(model: nn.Module) -> nn.Module:
    """Return a copy of a model with the same tensors."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [value for part in model.modules() for value in vars(part).values() if isinstance(value, Tensor)]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def is_named(error: str, name: str) -> bool:
    """Return whether an error names a parameter."""
    return re.search(rf"\b{name}\b", error) is not None
