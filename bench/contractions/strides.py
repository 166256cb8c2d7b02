"""Where a tensor lies in its memory, so that an index of one view is found again in another, in copies and in sums."""

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
        """(product, axis) of everything in here that no earlier call with this flag gave."""
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


def together(*marks: Mark | None) -> Mark | None:
    """One mark for several; None for none."""
    found = list(dict.fromkeys(mark for mark in marks if mark is not None))
    if len(found) < 2:
        return found[0] if found else None
    return Mark(parts=tuple(found))


@dataclass(frozen=True, slots=True)
class Axis:
    """A size and a stride of memory: whether values differ along it, and the mark of what they hold."""

    size: int
    stride: int
    varies: bool = True
    mark: Mark | None = None

    def meets(self, size: int, stride: int) -> bool:
        """Whether an index of this size and stride runs over a part of this axis; of stride 0 it runs over none."""
        if self.size < 2 or size < 2:
            return False
        return stride < self.stride * self.size and self.stride < stride * size


@dataclass(frozen=True, slots=True)
class Layout:
    """A memory as axes, and ``term``: the mark of all products that its values are sums of."""

    axes: tuple[Axis, ...]
    term: Mark | None = None

    def seen_as(self, fact: TensorFact) -> tuple[Axis, ...]:
        """The axes of a view of this memory."""
        if fact.strides is None:
            return tuple(Axis(size, 0) for size in fact.shape)
        if len(fact.shape) == len(self.axes) and all(
            axis.size == size and (axis.stride == stride or size < 2)
            for axis, size, stride in zip(self.axes, fact.shape, fact.strides, strict=True)
        ):
            return self.axes
        out = []
        for size, stride in zip(fact.shape, fact.strides, strict=True):
            met = [axis for axis in self.axes if axis.meets(size, stride)]
            varies = bool(stride) and (any(axis.varies for axis in met) or not met)
            out.append(Axis(size, stride, varies, together(*(axis.mark for axis in met))))
        return tuple(out)


def plain(fact: TensorFact) -> tuple[Axis, ...]:
    """The axes of a tensor of which nothing else is known: it does not vary where it is repeated."""
    strides = fact.strides or (1,) * len(fact.shape)
    return tuple(Axis(size, stride, stride != 0) for size, stride in zip(fact.shape, strides, strict=True))


def written(fact: TensorFact, axes: list[tuple[bool, Mark | None]], term: Mark | None) -> Layout | None:
    """The layout of a new tensor; None where it is as any other."""
    if fact.strides is None or (term is None and all(varies and mark is None for varies, mark in axes)):
        return None
    sizes = zip(fact.shape, fact.strides, axes, strict=True)
    return Layout(tuple(Axis(size, stride, varies, mark) for size, stride, (varies, mark) in sizes), term)


def carried(size: int, axis: Axis) -> bool:
    """Whether an operand carries an index of this size, seen as one of its axes."""
    return axis.size == size and (axis.varies or size == 1)


def aligned(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> list[Axis]:
    """Axes as broadcasting lines them up with a shape."""
    missing = len(shape) - len(axes)
    if missing < 0:
        return list(axes[-len(shape) :]) if shape else []
    return [Axis(0, 0, False)] * missing + list(axes)
