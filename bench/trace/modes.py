"""The two modes of a recorder: calls from Python into torch, and operations below autograd."""

import sys
from collections import deque
from collections.abc import Mapping, Sized, ValuesView
from dataclasses import fields, is_dataclass
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.bench.trace.decompositions import flex_score, fused_on_meta, unfold_foreach
from headcount.bench.trace.events import AUTOGRAD, FUNCTION, OPERATION, Event
from headcount.bench.trace.masks import attention_pairs, flex_pairs, operand_pairs
from headcount.bench.trace.names import ORIGINAL, Guards

if TYPE_CHECKING:
    from headcount.bench.trace.recorder import Recorder
    from headcount.bench.trace.shapes import FakeShapeCache, ShapeCache

_FORWARD_EVENT = "headcount: index of the event that this node differentiates"
_SEQUENCES = (tuple, list)
_CONTAINERS = (*_SEQUENCES, set, frozenset, deque, ValuesView)
_MASKS = {"add", "masked_fill", "where"}
"""Operations by which a mask hides scores."""
EXPORTS = {"numpy", "__dlpack__", "tolist", "data_ptr", "untyped_storage"}
"""Methods that give a tensor's memory or values without an operation."""
_LAYOUT_QUERIES = {
    "sym_is_contiguous", "is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense", "size", "sym_size",
    "stride", "sym_stride", "storage_offset", "sym_storage_offset", "numel", "sym_numel", "dim", "layout", "device",
}  # fmt: skip


class FunctionTracer(TorchFunctionMode):
    """Record calls from Python into torch's C++."""

    def __init__(self, recorder: "Recorder", guards: Guards) -> None:
        super().__init__()
        self._recorder = recorder
        self._guards = guards
        self._running: list[Any] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        function = getattr(function, ORIGINAL, function)
        if isinstance(function, FunctionType):
            return self._run_body(function, args, kwargs)
        named = function._overloadpacket if isinstance(function, OpOverload) else function
        name = _name(named) if isinstance(named, OpOverloadPacket) else getattr(named, "__name__", str(function))
        if name in ("__get__", "__set__", "__delete__") or name == "untyped_storage" and _is_called_by_fsdp():
            if name == "__set__":
                self._recorder.forget_facts()
            return function(*args, **kwargs)
        event = self._recorder.begin(FUNCTION, name, args, kwargs)
        # numpy refuses a tensor with a gradient
        if name in EXPORTS and not (name == "numpy" and args[0].requires_grad):
            is_read = name == "tolist" or name == "data_ptr" and not args[0].is_cpu
            args, kwargs = self._recorder.with_own_memory(() if is_read else args[:1], args, kwargs, name)
        if name == "scaled_dot_product_attention":
            event.pairs = attention_pairs(args, kwargs)
        fused = fused_on_meta(function, args, kwargs, only_trained=True)
        return self._recorder.call(event, fused or function, args, kwargs)

    def _run_body(self, function, args, kwargs):
        """Run the body of a Python function under this mode, unless it is already running."""
        if function in self._running:
            return function(*args, **kwargs)
        self._guards.open(function.__globals__)
        self._running.append(function)
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            self._running.pop()


class DispatchTracer(TorchDispatchMode):
    """Record every operation below autograd, higher-order ones too; composite ones are decomposed."""

    supports_higher_order_operators = True

    def __init__(self, recorder: "Recorder", cache: "ShapeCache | FakeShapeCache | None") -> None:
        super().__init__()
        self._recorder = recorder
        self._cache = cache
        self._passed_on: OpOverload | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled under a recorder, and the wrapper that skips it runs for each operation."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(operation, HigherOrderOperator):
            event = self._recorder.begin(OPERATION, operation.name(), args, kwargs)
            out = self._recorder.call(event, operation, args, kwargs)
            self._recorder.record_writes(event, (), out)
            if operation.name() == "flex_attention" and (scores := flex_score(args, kwargs)):
                event.pairs = flex_pairs(args)
                self._recorder.times = scores[0]
                try:
                    with self:
                        scores[1]()
                finally:
                    self._recorder.times = 1
            return out
        name, is_query, is_unfolded, writes = _properties(operation)
        if is_query:
            return NotImplemented
        if self._passed_on is operation:
            self._passed_on = None
            return NotImplemented
        for kind in types:
            if _overrides_dispatch(kind):
                return self._of_subclass(kind, name, operation, args, kwargs)
        # In backward the function mode is active here, and would record each operation twice.
        with torch._C.DisableTorchFunction():
            event = self._recorder.begin(OPERATION, name, args, kwargs)
            if name in ("_grouped_mm", "_scaled_grouped_mm"):
                event.covered = _last_offset(args[2:], kwargs)
            written = _written_tensors(writes, args, kwargs) if writes else ()
            args, kwargs = self._recorder.with_own_memory(written, args, kwargs, name)
            if is_unfolded:
                out = self._recorder.call(event, self._unfold, (event, operation, types, args, kwargs), {})
            elif self._cache:
                out = self._recorder.call(event, self._cache.run, (operation, types, args, kwargs), {})
            else:
                out = self._recorder.call(event, operation, args, kwargs)
            if isinstance(out, FakeTensor) and name.removesuffix("_") in _MASKS:
                event.pairs = operand_pairs(name.removesuffix("_"), args, out)
            self._recorder.record_writes(event, written, out)
        return out

    def _of_subclass(self, subclass, name, operation, args, kwargs):
        """Record a call of a subclass, which torch makes when this mode passes the call on, and what it runs."""
        event = self._recorder.begin(OPERATION, name, args, kwargs)
        event.composite, event.subclass = True, subclass.__name__
        self._passed_on = operation
        with self:
            out = self._recorder.call(event, operation, args, kwargs)
        self._recorder.record_writes(event, (), out)
        self._recorder.forget_facts()
        return out

    def _unfold(self, event, operation, types, args, kwargs):
        """Run the parts of a composite operation, or of one on lists, under this mode."""
        if each := unfold_foreach(event.name, args, kwargs):
            event.composite = True
            with self:
                out = each()
            return None if event.name.endswith("_") else out
        if not _holds_nested(args):
            with self:
                out = operation.decompose(*args, **kwargs)
            if out is not NotImplemented:
                event.composite = True
                return out
        return self._cache.run(operation, types, args, kwargs) if self._cache else operation(*args, **kwargs)


def _is_called_by_fsdp() -> bool:
    """Return whether torch's FSDP makes the current call: it frees the memory of gathered weights, computes nothing."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith("torch.distributed.fsdp.")


def _name(packet: OpOverloadPacket) -> str:
    """Return an operation's name, after its namespace unless that is aten: "mm", "torchvision.nms"."""
    return packet._qualified_op_name.replace("::", ".").removeprefix("aten.")


@cache
def _overrides_dispatch(kind: type) -> bool:
    """Return whether a tensor subclass replaces the operations that it is called with."""
    own = getattr(kind, "__torch_dispatch__", None)
    return own not in (None, Tensor.__torch_dispatch__) and not issubclass(kind, FakeTensor | FunctionalTensor)


def _last_offset(args: tuple, kwargs: dict) -> int | None:
    """Return the last of the (integer) offsets of a grouped product; None if they have no values."""
    integers = [tensor for tensor in tensors_of((args, kwargs)) if tensor.dtype == torch.int32 and tensor.dim() == 1]
    if not integers or integers[-1].is_meta or isinstance(integers[-1], FakeTensor) or not integers[-1].numel():
        return None
    return int(integers[-1][-1])


def _holds_nested(args: tuple) -> bool:
    """Return whether a nested tensor is among the arguments: decomposing its operation would need sizes."""
    return any(isinstance(value, Tensor) and value.is_nested and value.layout is torch.strided for value in args)


@cache
def _properties(operation: OpOverload) -> tuple[str, bool, bool, tuple[tuple[int, str], ...]]:
    """Return an operation's name, whether it is a layout query, whether it is decomposed, and its written arguments.

    Written arguments are given by position and name.
    """
    packet = operation._overloadpacket
    name = _name(packet)
    writes = tuple(
        (position, argument.name)
        for position, argument in enumerate(operation._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    is_query = packet.__name__ in _LAYOUT_QUERIES
    is_unfolded = name.startswith("_foreach_") or not is_query and is_composite(operation)
    return name, is_query, is_unfolded, writes


def is_composite(operation: OpOverload) -> bool:
    """Return whether torch can decompose this operation (OpOverload.decompose checks the same each time)."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return key in operation.py_kernels or operation.has_kernel_for_dispatch_key(key)


class Nodes:
    """Mark each node of the autograd graph with the event that it differentiates."""

    def __init__(self) -> None:
        self._gradients: dict[int, int] = {}

    def on_begin(self, event: Event, outer: Event | None) -> None:
        """Note that the node created last, if any, belongs to a gradient.

        If that gradient is differentiated, no call returns the node. Nodes are numbered in order of creation.
        """
        # The nodes of a Python function are marked when it returns.
        called = outer and outer.what == FUNCTION
        if event.what == OPERATION and event.forward is not None and not called:
            self._gradients.setdefault(torch._C._autograd._get_sequence_nr() - 1, event.forward)

    def on_return(self, event: Event, out: Any) -> None:
        """Mark every unmarked node that led to ``out`` with the index of the call, or of the gradient's forward."""
        if event.what not in (FUNCTION, AUTOGRAD):
            return
        tensors = (out,) if type(out) is Tensor else tensors_of(out)
        nodes = [node for tensor in tensors if (node := _node_of(tensor)) is not None]
        while nodes:
            node = nodes.pop()
            if _FORWARD_EVENT not in node.metadata:
                node.metadata[_FORWARD_EVENT] = self._gradients.get(node._sequence_nr(), event.index)
                nodes += [following for following, _ in node.next_functions if following is not None]


def _node_of(tensor: Tensor) -> Any:
    try:
        return tensor.grad_fn
    except RuntimeError:
        # a view that was made without autograd and written to
        return None


def backward_state() -> tuple[bool, int | None]:
    """Return whether a backward pass is running, and the event being differentiated; None for an unmarked node."""
    if torch._C._current_graph_task_id() == -1:
        return False, None
    node = torch._C._current_autograd_node()
    return True, None if node is None else node.metadata.get(_FORWARD_EVENT)


def _written_tensors(writes: tuple[tuple[int, str], ...], args: tuple, kwargs: dict) -> tuple[Tensor, ...]:
    out = []
    for position, name in writes:
        out += tensors_of(args[position] if position < len(args) else kwargs.get(name))
    return tuple(out)


def results_of(value: Any) -> list[Tensor]:
    """Return the tensors in a module's result, in order: in what :func:`parts_of` finds, nested as it may be."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in parts_of(value) for tensor in results_of(part)]


def unread_results(value: Any) -> list[Any]:
    """Return the objects in a module's result in which no tensor is looked for."""
    if parts := parts_of(value):
        return [found for part in parts for found in unread_results(part)]
    is_plain = value is None or isinstance(value, Tensor | bool | int | float | complex | str | bytes)
    is_empty = isinstance(value, Sized) and not len(value)
    return [] if is_plain or is_empty else [value]


def parts_of(value: Any) -> list[Any]:
    """Return the values in a sequence, set, mapping, dataclass or namespace; none of anything else."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, _CONTAINERS):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type | nn.Module):
        return [getattr(value, field.name) for field in fields(value) if hasattr(value, field.name)]
    return list(vars(value).values()) if isinstance(value, SimpleNamespace) else []


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in nested sequences and mappings, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value if isinstance(value, _SEQUENCES) else value.values() if isinstance(value, dict) else ()
    return [tensor for part in parts for tensor in tensors_of(part)] if parts else []
