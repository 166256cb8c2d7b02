"""The layout of a tensor in memory, which identifies an index of one view in other views, copies and sums."""

from dataclasses import dataclass

from headcount.bench.trace.events import TensorFact


class Mark:
    """What is known of the values along an index: products, or others' marks together. Collected once each.

    A union costs the same however much it holds, so that a sum of thousands of terms stays linear.
    """

    __slots__ = ("axis", "collected", "parts", "product", "seen")

    def __init__(self, product: int | None = None, axis: int = -1, parts: tuple["Mark", ...] = ()) -> None:
        self.product = product
        self.axis = axis
        self.parts = parts
        self.collected = self.seen = False

    def collect(self, flag: str = "collected") -> list[tuple[int, int]]:
        """Return the (product, axis) pairs that no earlier call with this flag returned."""
        out, waiting = [], [self]
        while waiting:
            mark = waiting.pop()
            if getattr(mark, flag):
                continue
            setattr(mark, flag, True)
            if mark.product is not None:
                out.append((mark.product, mark.axis))
            waiting += mark.parts
        return out


def merge_marks(*marks: Mark | None) -> Mark | None:
    """Return one mark for several; None for none."""
    found = list(dict.fromkeys(mark for mark in marks if mark is not None))
    if len(found) < 2:
        return found[0] if found else None
    return Mark(parts=tuple(found))


@dataclass(frozen=True, slots=True)
class Axis:
    """A size and a stride in memory, whether values vary along it, and the mark of its products."""

    size: int
    stride: int
    varies: bool = True
    mark: Mark | None = None

    def overlaps(self, size: int, stride: int) -> bool:
        """Return whether an index of this size and stride runs over a part of this axis; False for stride 0."""
        if self.size < 2 or size < 2:
            return False
        return stride < self.stride * self.size and self.stride < stride * size


@dataclass(frozen=True, slots=True)
class Layout:
    """A storage as axes, and ``term``, the mark of all products in the sums that its values are."""

    axes: tuple[Axis, ...]
    term: Mark | None = None

    def view_axes(self, fact: TensorFact) -> tuple[Axis, ...]:
        """Return the axes of a view of this storage."""
        if fact.strides is None:
            return tuple(Axis(size, 0) for size in fact.shape)
        if len(fact.shape) == len(self.axes) and all(
            axis.size == size and (axis.stride == stride or size < 2)
            for axis, size, stride in zip(self.axes, fact.shape, fact.strides, strict=True)
        ):
            return self.axes
        out = []
        for size, stride in zip(fact.shape, fact.strides, strict=True):
            overlapping = [axis for axis in self.axes if axis.overlaps(size, stride)]
            varies = bool(stride) and (any(axis.varies for axis in overlapping) or not overlapping)
            out.append(Axis(size, stride, varies, merge_marks(*(axis.mark for axis in overlapping))))
        return tuple(out)


def default_axes(fact: TensorFact) -> tuple[Axis, ...]:
    """Return the axes of a tensor without a known layout: it does not vary where it is expanded."""
    strides = fact.strides or (1,) * len(fact.shape)
    return tuple(Axis(size, stride, stride != 0) for size, stride in zip(fact.shape, strides, strict=True))


def new_layout(fact: TensorFact, axes: list[tuple[bool, Mark | None]], term: Mark | None) -> Layout | None:
    """Return the layout of a new tensor; None if it is the default."""
    if fact.strides is None or (term is None and all(varies and mark is None for varies, mark in axes)):
        return None
    sizes = zip(fact.shape, fact.strides, axes, strict=True)
    return Layout(tuple(Axis(size, stride, varies, mark) for size, stride, (varies, mark) in sizes), term)


def varies_along(size: int, axis: Axis) -> bool:
    """Return whether an operand varies along an index of this size, given as one of its axes."""
    return axis.size == size and (axis.varies or size == 1)


def align_axes(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> list[Axis]:
    """Return the axes aligned with a shape as by broadcasting."""
    missing = len(shape) - len(axes)
    if missing < 0:
        return list(axes[-len(shape) :]) if shape else []
    return [Axis(0, 0, False)] * missing + list(axes)
