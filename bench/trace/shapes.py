"""Shapes of results, remembered: on meta torch works them out in Python, for every one of many equal calls, and on the
CPU it makes values that no counter looks at."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

MOST = 100_000
"""Calls that are remembered, after which all are forgotten."""

Made = tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]

_KNOWN: dict[tuple, tuple[bool, Made]] = {}


def cache_shapes(model: nn.Module, watched: Sequence[str] = (), events: Sequence[Any] = ()) -> AbstractContextManager:
    """The mode where the weights of ``model`` are on meta; nothing elsewhere, or where a caller's mode looks on.

    Every operation still goes through every mode inside. Not for a tool that replaces what torch's own Python calls:
    where names are ``watched``, an operation that adds to ``events`` on its way to a shape is not remembered.
    """
    weight = next(model.parameters(), None)
    alone = _get_current_dispatch_mode() is None
    return ShapeCache(watched, events) if alone and weight is not None and weight.is_meta else nullcontext()


def skip_values(device: str) -> AbstractContextManager:
    """The mode on the CPU, for a model without values of its own: the first of equal calls is made, the others give
    tensors that nobody has written to. Nothing elsewhere.

    Not for somebody's module: what it does next may follow from a value.
    """
    return ShapeCache(device=device) if device == "cpu" else nullcontext()


class ShapeCache(TorchDispatchMode):
    """Gives new tensors on ``device`` of the shapes, strides and types that an equal call gave before.

    Remembered are torch's own operations that make every result anew and draw no random numbers; where there are values
    only those that give real numbers, of a shape that follows from shapes: whole numbers are places in other tensors.
    """

    def __init__(self, watched: Sequence[str] = (), events: Sequence[Any] = (), device: str = "meta") -> None:
        super().__init__()
        self._watched, self._events, self._device = tuple(watched), events, device

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        key = None if types or not _makes_anew(operation) else _described(operation, args, kwargs, self._device)
        if key is None:
            return operation(*args, **kwargs)
        known = _KNOWN.get((self._watched, key))
        if known is None:
            before = len(self._events)
            out = operation(*args, **kwargs)
            if len(self._events) == before:
                _remember((self._watched, key), out, self._device)
            return out
        several, made = known
        # in backward the function modes are on here
        with torch._C.DisableTorchFunction():
            tensors = [torch.empty_strided(*sizes, dtype=dtype, device=self._device) for *sizes, dtype in made]
        return tuple(tensors) if several else tensors[0]


@cache
def _makes_anew(operation: Any) -> bool:
    """Whether no result shares memory with an argument, as the schema says it, and nothing is written or drawn."""
    if not isinstance(operation, OpOverload) or operation.namespace != "aten":
        return False
    # its schema does not say that it is a view
    if operation is torch.ops.aten._unsafe_view.default:
        return False
    schema = operation._schema
    shares = any(part.alias_info is not None for part in (*schema.arguments, *schema.returns))
    tensors = all(isinstance(part.type, torch.TensorType) for part in schema.returns)
    return bool(schema.returns) and tensors and not shares and torch.Tag.nondeterministic_seeded not in operation.tags


def _described(operation: OpOverload, args: tuple, kwargs: dict, device: str) -> tuple | None:
    """What the shape of a result follows from; None where a tensor is elsewhere, or of a kind of its own, and where the
    shape follows from values."""
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
    """Everything in an operation's arguments, with the length of each list before what is in it."""
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


def _remember(key: tuple, out: Any, device: str) -> None:
    tensors = out if isinstance(out, tuple) else (out,)
    if not all(type(tensor) is Tensor and tensor.device.type == device for tensor in tensors):
        return
    if any(tensor.storage_offset() or not (device == "meta" or tensor.is_floating_point()) for tensor in tensors):
        return
    if len(_KNOWN) >= MOST:
        _KNOWN.clear()
    _KNOWN[key] = isinstance(out, tuple), tuple((t.shape, t.stride(), t.dtype) for t in tensors)
