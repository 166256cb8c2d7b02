"""Cache the shapes of results.

On meta torch computes them in Python for every one of many equal calls, and on the CPU it computes unused values. For
fake tensors it has a cache, which enters a mode, describes each operand anew and takes no call with a tensor of values.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map_only

MAX_VALUES = 2**30
"""The most values of a mask that are computed and kept, a gigabyte."""
MAX_ENTRIES = 100_000
"""The size of the cache, at which it is cleared."""

Shapes = tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]

_CACHE: dict[tuple, tuple[bool, Shapes]] = {}


def cache_shapes(model: nn.Module, watched: Sequence[str] = (), events: Sequence[Any] = ()) -> AbstractContextManager:
    """Return the caching mode if the weights of ``model`` are on meta and no other mode is active, else no mode.

    Every operation still goes through every inner mode. Not for a tool that patches functions which torch's Python
    calls: if names are ``watched``, an operation that adds to ``events`` while computing a shape is not cached.
    """
    return find_cache(model, watched, events) or nullcontext()


def find_cache(
    model: nn.Module, watched: Sequence[str] = (), events: Sequence[Any] = ()
) -> "ShapeCache | FakeShapeCache | None":
    """Return the cache for operations on the weights of ``model``, if they are on meta or fake and no mode is active.

    ``watched`` and ``events`` are as in :func:`cache_shapes`.
    """
    weight = next(model.parameters(), None)
    if weight is None or _get_current_dispatch_mode() is not None:
        return None
    if type(weight) is FakeTensor:
        return FakeShapeCache(weight.fake_mode)
    return ShapeCache(watched, events) if weight.is_meta else None


def skip_values(device: str) -> AbstractContextManager:
    """Return the caching mode on the CPU, else no mode: of equal calls only the first computes values.

    Later calls return uninitialised tensors. Not for user modules, whose control flow may depend on values.
    """
    return ShapeCache(device=device) if device == "cpu" else nullcontext()


class ShapeCache(TorchDispatchMode):
    """Return new tensors on ``device`` with the shapes, strides and types of an earlier equal call.

    Only aten operations are cached whose results are new tensors without random numbers; on devices with values only
    those with floating-point results whose shapes follow from shapes, because integers index other tensors.
    """

    supports_higher_order_operators = True

    def __init__(self, watched: Sequence[str] = (), events: Sequence[Any] = (), device: str = "meta") -> None:
        super().__init__()
        self._watched, self._events, self._device = tuple(watched), events, device

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, as DispatchTracer."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return self.run(operation, types, args, kwargs or {})

    def run(self, operation: Any, types: Sequence[type], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the result of an operation, in which tensors of classes of their own are of the ``types``."""
        fits = not types and _returns_new_tensors(operation)
        key = _cache_key(operation, args, kwargs, self._device) if fits else None
        if key is None:
            return operation(*args, **kwargs)
        known = _CACHE.get((self._watched, key))
        if known is None:
            before = len(self._events)
            out = operation(*args, **kwargs)
            if len(self._events) == before:
                _store((self._watched, key), out, self._device)
            return out
        several, made = known
        # In backward the function modes are active here.
        with torch._C.DisableTorchFunction():
            tensors = [torch.empty_strided(*sizes, dtype=dtype, device=self._device) for *sizes, dtype in made]
        return tuple(tensors) if several else tensors[0]


@cache
def _returns_new_tensors(operation: Any) -> bool:
    """Return whether, by its schema, an operation shares and writes no memory and draws no random numbers."""
    if not isinstance(operation, OpOverload) or operation.namespace != "aten":
        return False
    # It returns a view, which its schema does not declare.
    if operation is torch.ops.aten._unsafe_view.default:
        return False
    schema = operation._schema
    shares = any(part.alias_info is not None for part in (*schema.arguments, *schema.returns))
    tensors = all(isinstance(part.type, torch.TensorType) for part in schema.returns)
    return bool(schema.returns) and tensors and not shares and torch.Tag.nondeterministic_seeded not in operation.tags


def _cache_key(operation: OpOverload, args: tuple, kwargs: dict, device: str) -> tuple | None:
    """Return the cache key of a call, or None.

    None if a tensor is a subclass, sparse or on another device, or if the shape of the result depends on values.
    """
    if device != "meta" and torch.Tag.dynamic_output_shape in operation.tags:
        return None
    parts: list = [operation, torch.get_default_dtype(), device]
    tensors = 0
    for value in _flat((args, kwargs)):
        if not isinstance(value, Tensor):
            # 1, 1.0 and True are equal
            parts.append((type(value), value))
        elif type(value) not in (Tensor, Parameter) or value.device.type != device or value.layout is not torch.strided:
            return None
        else:
            tensors += 1
            parts.append((value.shape, value.stride(), value.dtype))
    return tuple(parts) if tensors else None


def _flat(value: Any) -> Iterator[Any]:
    """Flatten an operation's arguments, with the length of each list before its elements."""
    if isinstance(value, tuple | list):
        yield len(value)
        for part in value:
            yield from _flat(part)
    elif isinstance(value, dict):
        yield tuple(value)
        for part in value.values():
            yield from _flat(part)
    else:
        yield value


def _store(key: tuple, out: Any, device: str) -> None:
    tensors = out if isinstance(out, tuple) else (out,)
    if not all(type(tensor) is Tensor and tensor.device.type == device for tensor in tensors):
        return
    if any(tensor.storage_offset() or not (device == "meta" or tensor.is_floating_point()) for tensor in tensors):
        return
    if len(_CACHE) >= MAX_ENTRIES:
        _CACHE.clear()
    _CACHE[key] = isinstance(out, tuple), tuple((t.shape, t.stride(), t.dtype) for t in tensors)


@dataclass(frozen=True, slots=True)
class _Fake:
    """How a fake result is made: with memory of its own, as a view of the operand ``source``, or that operand itself.

    The ``offset`` of a view is from that of the operand. A result that is an operand has no ``shape``.
    """

    source: int | None
    shape: torch.Size | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype | None = None
    device: torch.device | None = None


_FAKES: dict[tuple, tuple[type, list[_Fake]]] = {}
_META = torch.device("meta")
_INDEXED = {
    getattr(torch.ops.aten, name)
    for name in ("index", "_unsafe_index", "index_put", "index_put_", "_unsafe_index_put", "_index_put_impl_")
}
"""Operations that take the values of a mask, and of integers none."""
OF_VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.inplace_view}
"""Tags of operations whose results have shapes by values, or that change the shape of an operand."""
_BY_PLACE = {torch.ops.aten.as_strided}
"""Operations that take a place in memory."""


class FakeShapeCache(ShapeCache):
    """Return fake tensors as an earlier equal call did: new ones, views of operands, or an operand that is written.

    Only of aten's operations with fake results: integers that FakeWeights makes of fake tensors have values.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        # a run on meta came first
        self._shapes = ShapeCache()

    def run(self, operation: Any, types: Sequence[type], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the result of an operation, in which tensors of classes of their own are of the ``types``."""
        if not types and _is_large(operation, args):
            args = tree_map_only(Tensor, lambda one: fake(self._mode, _without_mode(one), one.device), args)
            return operation(*args, **kwargs)
        if tuple(types) != (FakeTensor,) or not _is_of_shapes(operation) or torch.is_inference_mode_enabled():
            return operation(*args, **kwargs)
        operands: list[Tensor] = []
        key = self._key(operation, args, kwargs, operands)
        known = _FAKES.get(key) if key else None
        if known is None and key is not None:
            known = self._on_meta(operation, args, kwargs, operands)
        if known is None:
            out = operation(*args, **kwargs)
            is_same = key is not None and key == self._key(operation, args, kwargs, [])
            made = _fakes_of_mode(operation, out, operands) if is_same else []
            if not made:
                return out
            known = type(out), made
        if key not in _FAKES:
            if len(_FAKES) >= MAX_ENTRIES:
                _FAKES.clear()
            _FAKES[key] = known
        # the first time too: torch's mode keeps references to what it returns, and swaps no tensor with one
        kind, made = known
        tensors = [self._make(one, operands) for one in made]
        return tensors[0] if kind is FakeTensor else kind(tensors)

    def _key(self, operation: OpOverload, args: tuple, kwargs: dict, operands: list[Tensor]) -> tuple | None:
        """Return the key of a call and add its tensors to ``operands``; None if its result depends on more."""
        parts: list[Any] = [operation, torch.get_default_dtype(), self._mode.allow_non_fake_inputs]
        return tuple(parts) if self._describe((args, kwargs), parts, operands) else None

    def _describe(self, value: Any, parts: list[Any], operands: list[Tensor]) -> bool:
        """Add what a result depends on to ``parts``; return whether that is all."""
        kind = type(value)
        if kind is FakeTensor:
            if value.fake_mode is not self._mode or value.constant is not None or value._has_symbolic_sizes_strides:
                return False
            parts.append(value.fake_device)
        elif kind is Tensor or kind is Parameter:
            # it has values
            parts += (kind, value.device)
        elif kind is tuple or kind is list:
            parts.append(len(value))
            return all([self._describe(part, parts, operands) for part in value])
        elif kind is dict:
            parts.append(tuple(value))
            return all([self._describe(part, parts, operands) for part in value.values()])
        else:
            # 1, 1.0 and True are equal
            parts += (kind, value)
            return not isinstance(value, Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
        parts += (value.shape, value.stride(), value.dtype)
        operands.append(value)
        return value.layout is torch.strided and not value.dtype.is_complex

    def _on_meta(
        self, operation: OpOverload, args: tuple, kwargs: dict[str, Any], operands: Sequence[Tensor]
    ) -> tuple[type, list[_Fake]] | None:
        """Return how a run on meta makes the results of an operation; None where torch's mode may make others.

        The mode takes most operations apart in Python first, and runs each part.
        """
        devices = {one.fake_device if isinstance(one, FakeTensor) else one.device for one in operands}
        if "device" in kwargs or len(devices) != 1 or not _is_as_on_meta(operation):
            return None
        on_meta = list(map(_without_mode, operands))
        given = iter(on_meta)
        args, kwargs = tree_map_only(Tensor, lambda _: next(given), (args, kwargs))
        try:
            out = self._shapes.run(operation, (), args, kwargs)
        except Exception:
            # the mode has the words for it, or does without such a kernel
            return None
        results = list(out) if type(out) in (tuple, list) else [out]
        # integers may be drawn
        if not all(type(one) is Tensor and one.is_floating_point() for one in results):
            return None
        if any(one.shape != operand.shape for one, operand in zip(on_meta, operands, strict=True)):
            return None
        made = _fakes_of(operation, results, on_meta, [*devices] * len(results))
        if any(one.source is not None and type(operands[one.source]) is not FakeTensor for one in made):
            return None
        return (FakeTensor if results[0] is out else type(out), made) if made else None

    def _make(self, one: _Fake, operands: Sequence[Tensor]) -> Tensor:
        if one.source is None:
            memory = torch.empty_strided(one.shape, one.strides, dtype=one.dtype, device=_META)
            return fake(self._mode, memory, one.device)
        operand = operands[one.source]
        if one.shape is None:
            return operand
        return fake_view(operand, one.shape, one.strides, one.offset + operand.storage_offset())


def _without_mode(tensor: Tensor) -> Tensor:
    """Return a tensor on meta of the same sizes, with the memory of a fake one."""
    if not isinstance(tensor, FakeTensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
    return _meta_view(tensor, tensor.shape, tensor.stride(), tensor.storage_offset())


def fake_view(tensor: FakeTensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> FakeTensor:
    """Return a fake tensor with the memory of another."""
    return fake(tensor.fake_mode, _meta_view(tensor, shape, strides, offset), tensor.fake_device)


def _meta_view(tensor: FakeTensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    return torch.empty(0, dtype=tensor.dtype, device=_META).set_(tensor.untyped_storage(), offset, shape, strides)


def fake_like(tensor: FakeTensor) -> FakeTensor:
    """Return a fake tensor with memory of its own."""
    memory = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
    return fake(tensor.fake_mode, memory, tensor.fake_device).requires_grad_(tensor.requires_grad)


def fake(mode: FakeTensorMode, memory: Tensor, device: torch.device | None) -> FakeTensor:
    """Return a fake tensor as its constructor does, which checks and sets each attribute anew."""
    made: Any = Tensor._make_subclass(FakeTensor, memory, False, dispatch_device=True, device_for_backend_keys=device)
    torch._C._set_throw_on_mutable_data_ptr(made)
    made.__dict__.update(_attributes())
    made.fake_mode, made.fake_device = mode, device
    return made


@cache
def _attributes() -> dict[str, Any]:
    """Return the attributes of a new fake tensor, without its mode."""
    first = FakeTensor(FakeTensorMode(), torch.empty(0, device=_META), torch.device("cpu"))
    return {name: value for name, value in vars(first).items() if name != "fake_mode"}


def _is_large(operation: Any, args: tuple) -> bool:
    """Return whether an elementwise operation makes more than MAX_VALUES values, as a mask of a long sequence."""
    shapes = [one.shape for one in args if isinstance(one, Tensor)]
    if math.prod(map(math.prod, shapes)) <= MAX_VALUES or torch.Tag.pointwise not in getattr(operation, "tags", ()):
        return False
    return math.prod(torch.broadcast_shapes(*shapes)) > MAX_VALUES


@cache
def _is_of_shapes(operation: Any) -> bool:
    """Return whether the shapes of an operation's results follow from those of its operands."""
    if not isinstance(operation, OpOverload) or operation.namespace != "aten" or "lift" in operation.__name__:
        return False
    packet = operation._overloadpacket
    return packet in _INDEXED or packet not in _BY_PLACE and OF_VALUES.isdisjoint(operation.tags)


@cache
def _is_as_on_meta(operation: OpOverload) -> bool:
    """Return whether an operation on another device returns a view, or the one result that it returns on meta.

    What is kept for backward beside a result, as a mean, depends on the device, and torch's mode has rules of its own.
    """
    returns = operation._schema.returns
    if any(part.alias_info is not None and not part.alias_info.is_write for part in returns):
        return True
    return len(returns) == 1 and operation not in op_implementations_dict


def _fakes_of_mode(operation: OpOverload, out: Any, operands: Sequence[Tensor]) -> list[_Fake]:
    """Return how the results that torch's mode returned can be made again; none if they cannot."""
    results = list(out) if type(out) in (tuple, list) else [out]
    if not all(type(one) is FakeTensor and one.constant is None for one in results):
        return []
    arguments = operation._schema.arguments
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments)
    if writes and type(operands[0]) is not FakeTensor:
        # torch's mode returns a fake tensor in place of one that has values, and its caller takes the one itself
        return [_Fake(0)] if operation.__name__.partition(".")[0].endswith("_") else []
    return _fakes_of(operation, results, operands, [one.fake_device for one in results])


def _fakes_of(
    operation: OpOverload, results: Sequence[Tensor], operands: Sequence[Tensor], devices: Sequence[torch.device | None]
) -> list[_Fake]:
    """Return how the results of an operation, on these devices, can be made again; none if they cannot."""
    if operation._overloadpacket in _INDEXED and any(one.dtype in (torch.bool, torch.uint8) for one in operands):
        return []
    places = {id(one): place for place, one in enumerate(operands)}
    memory = {one.untyped_storage()._cdata: place for place, one in enumerate(operands)}
    made = []
    for one, device in zip(results, devices, strict=True):
        address, offset = one.untyped_storage()._cdata, one.storage_offset()
        shape, strides = one.shape, one.stride()
        place = memory.get(address)
        if id(one) in places:
            made.append(_Fake(places[id(one)]))
        elif place is None and not offset:
            # of no other result
            memory[address] = len(operands)
            made.append(_Fake(None, shape, strides, 0, one.dtype, device))
        elif place is not None and place < len(operands) and one.dtype == operands[place].dtype:
            made.append(_Fake(place, shape, strides, offset - operands[place].storage_offset()))
        else:
            return []
    return made
