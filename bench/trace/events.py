"""A recorded run: nested events and facts about each tensor. Plain data, no torch."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

MODULE, NAMED, FUNCTION, AUTOGRAD, OPERATION = "module", "named", "function", "autograd", "operation"
"""The sorts of events: a module's ``__call__``; a call through a Python name that tools patch
(``torch.matmul``); a call from Python into torch's C++ (operators such as ``@`` too); a ``torch.autograd.Function``;
an operation that reached the dispatcher below autograd."""

MOST_NAMES = 2
"""The most names of tensors that a sentence lists."""


@dataclass(slots=True, unsafe_hash=True)
class TensorFact:
    """A tensor at one moment. Instances never change; frozen ones would take five times as long to create.

    ``storage`` numbers its memory (views share it), ``source`` is the index of the operation that last wrote there,
    None for parameters, buffers and inputs. ``strides`` and ``offset``, in elements, are its position in that memory;
    ``strides`` is None for sparse, nested and symbolic tensors. ``stored`` is the number of elements that a sparse or
    nested tensor holds; a strided nested one has no ``shape``, but those of its ``parts``, a jagged one has a symbol in
    its ``shape`` and one part, the packed rows.
    """

    shape: tuple[int, ...]
    dtype: str
    storage: int
    source: int | None
    strides: tuple[int, ...] | None = None
    offset: int = 0
    stored: int | None = None
    parts: tuple[tuple[int, ...], ...] = ()

    @property
    def numel(self) -> int:
        """Number of elements; those that it holds of a nested tensor, as torch counts them."""
        return sum(map(prod, self.parts)) if self.parts else prod(self.shape)

    @property
    def steps(self) -> tuple[int, ...] | None:
        """``strides`` in real numbers, of which a complex one is two."""
        if self.strides is None or not self.dtype.startswith("complex"):
            return self.strides
        return tuple(2 * stride for stride in self.strides)

    @property
    def place(self) -> tuple:
        """Key that is equal for two views of the same elements."""
        return self.storage, self.offset, self.shape, self.strides


@dataclass(slots=True)
class ModuleFact:
    """A module of the model: its first path, exact type, children and registered parameters by index or shape.

    ``attributes`` holds its plain attributes: numbers, strings, None and tuples of these.
    """

    path: str
    kind: type
    children: tuple[int, ...]
    parameters: Mapping[str, tuple[int, ...] | None]
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class Weight:
    """A parameter tensor: its name at the first module that holds it, the shape that it stands for, and its flag.

    ``storages`` and ``bytes`` are those of the tensors that hold it: of a quantised one, values and scales. One that
    is not ``registered`` was found as the run used it: a module or a parameter that a function refers to.
    """

    name: str
    shape: tuple[int, ...]
    trainable: bool
    bytes: int
    storages: tuple[int, ...]
    registered: bool = True


@dataclass(frozen=True, slots=True)
class GroupFact:
    """A process group: its size, this process' rank in it, and its description, ``mesh_tp`` for a mesh's dimension."""

    size: int
    rank: int
    description: str


@dataclass(slots=True)
class Event:
    """One call. Tensors in ``args``, ``kwargs`` and ``out`` are TensorFacts, sequences are tuples.

    ``failed`` is set if it raised; it is not counted then. ``covered`` is the number of rows that the offsets of a
    grouped product cover, if they have values. ``times`` is the number of runs that it stands for (a function of one
    score). ``transformed`` is set inside vmap, grad or jvp of torch.func. ``parent`` is the index of the event around
    it. ``composite`` marks a decomposed operation: its parts are events inside it. So are those of a call of the tensor
    class ``subclass`` with its own dispatch. In ``backward``, ``forward`` is the
    index of the event being differentiated. ``writes`` are the storages of the arguments to which an operation
    writes. ``module`` indexes :attr:`Trace.modules`.

    ``pairs`` are those that an attention's mask leaves, and all of them; None if not known (bench.trace.masks).
    """

    index: int
    parent: int | None
    what: str
    name: str
    path: str
    args: tuple
    kwargs: Mapping[str, Any]
    out: Any = None
    backward: bool = False
    forward: int | None = None
    composite: bool = False
    writes: tuple[int, ...] = ()
    module: int | None = None
    failed: bool = False
    covered: int | None = None
    pairs: tuple[int, int] | None = None
    times: int = 1
    transformed: bool = False
    subclass: str = ""
    _facts: tuple[TensorFact, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def argument(self, position: int, name: str = "", default: Any = None) -> Any:
        """Return an argument by position or name. An operation gets every positional argument by position."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def tensors(self) -> Iterator[TensorFact]:
        """Iterate over all tensors among the arguments, in order."""
        if self._facts is None:
            self._facts = tuple(tensors_in((self.args, tuple(self.kwargs.values()))))
        return iter(self._facts)


@dataclass(slots=True)
class Trace:
    """All events in order of their beginning, the model's modules, and the storages of its weights.

    ``parameters`` and ``buffers`` map storage numbers to (name, shape); ``weights`` are the parameter tensors, each
    once; ``modules[0]`` is the model. ``found`` has the class, by path, of each module that ran or lies in one, where
    the model itself holds no parameters. ``left`` are calls, with the number of events before them, after which work
    may run untraced: other threads, disabled modes. ``given`` are the storages of tensors that modules hold as plain
    attributes. ``is_copy``: the run was of a copy of the caller's module. ``elsewhere`` has, by path, the shapes of the
    inputs of each module that another thread ran meanwhile. ``unmade`` has, by number, a reference to each storage that
    no operation made and that the run was not given: it is gone after the run if only the run had it. ``backward``,
    ``training`` and ``input_gradients`` are those of bench.trace.record.
    """

    events: list[Event] = field(default_factory=list)
    modules: list[ModuleFact] = field(default_factory=list)
    parameters: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    buffers: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    weights: list[Weight] = field(default_factory=list)
    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    out: Any = None
    found: dict[str, str] = field(default_factory=dict)
    left: list[tuple[str, int]] = field(default_factory=list)
    given: set[int] = field(default_factory=set)
    groups: Mapping[str, GroupFact] = field(default_factory=dict)
    is_copy: bool = True
    elsewhere: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    unmade: dict[int, weakref.ref] = field(default_factory=dict)
    backward: bool = False
    training: bool = False
    input_gradients: bool = False

    def around(self, event: Event, what: str | None = None) -> Iterator[Event]:
        """Iterate over the events that contain ``event``, innermost first; with ``what`` those of this sort only."""
        while event.parent is not None:
            event = self.events[event.parent]
            if what in (None, event.what):
                yield event

    def inside(self, index: int) -> Iterator[Event]:
        """Iterate over an event, by its index, and all events inside: they follow it in the list."""
        yield self.events[index]
        for later in range(index + 1, len(self.events)):
            event = self.events[later]
            if event.parent is None or event.parent < index:
                return
            yield event

    def is_decomposed(self, event: Event) -> bool:
        """Return whether ``event`` is part of a decomposed operation or a function of a score."""
        operation = next((outer for outer in self.around(event, OPERATION) if not outer.subclass), None)
        return event.times != 1 or operation is not None and operation.composite

    def operations(self) -> Iterator[Event]:
        """Iterate over the operations, composite ones as their parts, without failed ones."""
        return (e for e in self.events if e.what == OPERATION and not e.composite and not e.failed)

    def notes(self) -> Iterator[str]:
        """Yield sentences about a backward pass, what the run changes, and where it was of no copy."""
        yield from self._backward_notes()
        written = {storage for event in self.operations() for storage in event.writes}
        places = {**{str(place): value for place, value in enumerate(self.args)}, **self.kwargs}
        inputs = [name for name, value in places.items() if any(fact.storage in written for fact in tensors_in(value))]
        weights = [name for storage, (name, _) in self.parameters.items() if storage in written]
        for kind, names in (("inputs", inputs), ("weights", weights)):
            if names:
                count, rest = (f"{len(names)} ", ", …") if len(names) > MOST_NAMES else ("", "")
                yield f"The run changes {count}{kind} in place: {', '.join(names[:MOST_NAMES])}{rest}."
        if not self.is_copy:
            yield "The module cannot be copied: what the run changes in it stays changed."

    def _backward_notes(self) -> Iterator[str]:
        """Yield what a backward pass lacks of a training step on data, and what it has in addition."""
        # headcount's own models are the same in both modes
        has_modes = self.modules and not self.modules[0].kind.__module__.startswith("headcount.models.")
        if self.backward and has_modes and self.found and not self.modules[0].children:
            yield "Modules that the function refers to ran in the mode that they were in, training or eval."
        elif self.backward and has_modes and not self.training:
            yield (
                "The modules ran in eval mode; training=True (--training) runs them as in training, activation "
                "checkpointing included."
            )
        facts = tensors_in((self.args, tuple(self.kwargs.values())))
        if self.input_gradients and any(fact.dtype.startswith(("float", "bfloat", "complex")) for fact in facts):
            yield "Gradients of floating-point inputs are counted too; a training step on data has none."


def tensors_in(value: Any) -> Iterator[TensorFact]:
    """Iterate over all tensors in a recorded value."""
    found: list[TensorFact] = []
    _collect((value,), found)
    return iter(found)


def shapes_text(shapes: Iterable[tuple[int, ...]], separator: str = " ") -> str:
    """Return shapes as text: ``2x3 5 scalar``."""
    return separator.join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _collect(values: Iterable[Any], into: list[TensorFact]) -> None:
    for value in values:
        kind = type(value)
        if kind is TensorFact:
            into.append(value)
        elif kind is tuple:
            _collect(value, into)
        elif kind is dict:
            _collect(value.values(), into)
