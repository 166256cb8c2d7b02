"""Cache the shapes of results.

On meta torch computes them in Python for every one of many equal calls, and on the CPU it computes unused values.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

MAX_ENTRIES = 100_000
"""The size of the cache, at which it is cleared."""

Shapes = tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]

_CACHE: dict[tuple, tuple[bool, Shapes]] = {}


def cache_shapes(model: nn.Module, watched: Sequence[str] = (), events: Sequence[Any] = ()) -> AbstractContextManager:
    """Return the caching mode if the weights of ``model`` are on meta and no other mode is active, else no mode.

    Every operation still goes through every inner mode. Not for a tool that patches functions which torch's Python
    calls: if names are ``watched``, an operation that adds to ``events`` while computing a shape is not cached.
    """
    weight = next(model.parameters(), None)
    alone = _get_current_dispatch_mode() is None
    return ShapeCache(watched, events) if alone and weight is not None and weight.is_meta else nullcontext()


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

    def __init__(self, watched: Sequence[str] = (), events: Sequence[Any] = (), device: str = "meta") -> None:
        super().__init__()
        self._watched, self._events, self._device = tuple(watched), events, device

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, as DispatchTracer."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
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
