"""The layout of a tensor in memory, which identifies an index of one view in other views, copies and sums."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headcount.bench.trace.events import TensorFact


class Mark:
    """The product whose values run along an index, or a union of marks in ``parts``. Each is collected once.

    A union only refers to its parts, so that a sum of thousands of terms stays linear.
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


@dataclass(slots=True)
class Axis:
    """A size and a stride in memory, whether values vary along it (None: unknown), and the mark of its products."""

    size: int
    stride: int
    varies: bool | None = True
    mark: Mark | None = None

    def overlaps(self, size: int, stride: int) -> bool:
        """Return whether an index of this size and stride runs over a part of this axis; False for stride 0."""
        if self.size < 2 or size < 2:
            return False
        return stride < self.stride * self.size and self.stride < stride * size


def view_axes(stored: tuple[Axis, ...], fact: TensorFact) -> tuple[Axis, ...]:
    """Return the axes of a view of a storage whose axes are ``stored``.

    Strides do not tell what an index of size one runs over: it has all marks, and whether it varies is unknown. Each
    index of a sparse or nested tensor has all marks, which has one index if it has no shape.
    """
    if fact.strides is None:
        everything = merge_marks(*(axis.mark for axis in stored))
        return tuple(Axis(size, 0, True, everything) for size in fact.shape or (fact.numel,))
    if len(fact.shape) == len(stored) and all(
        axis.size == size and (axis.stride == stride or size < 2)
        for axis, size, stride in zip(stored, fact.shape, fact.steps, strict=True)
    ):
        return stored
    out = []
    for size, stride in zip(fact.shape, fact.steps, strict=True):
        overlapping = [axis for axis in stored if size == 1 or axis.overlaps(size, stride)]
        varies = bool(stride) and (not overlapping or any_varies(overlapping))
        out.append(Axis(size, stride, None if size == 1 else varies, merge_marks(*(axis.mark for axis in overlapping))))
    return tuple(out)


def any_varies(axes: Iterable[Axis]) -> bool | None:
    """Return whether values vary along any of the axes; None if that is unknown."""
    found = {axis.varies for axis in axes}
    return True if True in found else None if None in found else False


def default_axes(fact: TensorFact, is_fill: bool = False) -> tuple[Axis, ...]:
    """Return the axes of a tensor without a known layout: it does not vary where it is expanded.

    A fill varies where other values are written into it later, not along an index of size one.
    """
    strides = fact.steps or (1,) * len(fact.shape)
    sizes = zip(fact.shape, strides, strict=True)
    return tuple(Axis(size, stride, stride != 0 and not (is_fill and size == 1)) for size, stride in sizes)


def align_axes(axes: Sequence[Axis], shape: Sequence[int]) -> list[Axis]:
    """Return the axes aligned with a shape as by broadcasting."""
    missing = len(shape) - len(axes)
    return [Axis(0, 0, False)] * missing + list(axes[max(-missing, 0) :])


def share_elements(one: TensorFact, other: TensorFact) -> bool:
    """Return whether two views of a storage have a common element; True where their strides differ."""
    if one.strides is None or (one.shape, one.strides) != (other.shape, other.strides):
        return True
    strides = sorted(zip(one.strides, one.shape, strict=True), reverse=True)
    distances = {one.offset - other.offset}
    for stride, size in strides:
        if stride:
            steps = {(left, left // stride + more) for left in distances for more in (0, 1)}
            distances = {left - step * stride for left, step in steps if abs(step) < size}
    return 0 in distances
