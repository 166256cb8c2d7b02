"""Peak activation memory of the reference layers, as executed: what is live, moment after moment.

A schedule takes and drops named tensors in the order of eager execution; its peak is the largest sum. It holds
what a layer allocates itself: not its input, its parameters or the gradient of its output. A training step is a
forward in training mode and a backward into the parameters, not into the input; without auxiliary losses, masks
or dropout. Whether a reshape copies follows from sizes that are 1 and from who shares a key/value head.

Where two gradients of one tensor meet, autograd adds in place, but beside both under a dispatch mode, which the tally
is; the schedules hold the sum beside both too. No shape is known where that is the peak.
"""

from dataclasses import dataclass, field

INDEX_BYTES = 8
"""Top-k gives int64 indices."""


class NoSchedule(Exception):
    """There is no schedule of such a layer; the message says why."""


@dataclass
class Schedule:
    """``live``: bytes by name now; ``moments``: the same after each allocation."""

    element_bytes: int
    live: dict[str, int] = field(default_factory=dict)
    moments: list[dict[str, int]] = field(default_factory=list)

    def take(self, **elements: int) -> None:
        """Allocate tensors of that many elements, one after the other."""
        for name, size in elements.items():
            self.take_bytes(name, size * self.element_bytes)

    def take_bytes(self, name: str, size: int) -> None:
        """Allocate a tensor of another type. Raises ValueError for a name that is live."""
        if name in self.live:
            raise ValueError(f"{name} is live already")
        self.live[name] = size
        self.moments.append(dict(self.live))

    def drop(self, *names: str) -> None:
        """Free tensors. Raises KeyError for one that is not live."""
        for name in names:
            del self.live[name]

    def derive(self, old: str, **elements: int) -> None:
        """Allocate a tensor, then free the one that it was made from."""
        self.take(**elements)
        self.drop(old)

    def rename(self, old: str, new: str) -> None:
        """Call a live tensor otherwise. Raises KeyError for one that is not live, ValueError for a name that is."""
        if new in self.live:
            raise ValueError(f"{new} is live already")
        self.live[new] = self.live.pop(old)

    @property
    def peak(self) -> dict[str, int]:
        """What is live, in bytes by name, when most is for the first time."""
        return max(self.moments, key=lambda moment: sum(moment.values()))

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are live at once."""
        return sum(self.peak.values())


def weight_gradient(run: Schedule, name: str, output: str, weight: int, bias: int = 0) -> None:
    """The gradients of a linear layer's parameters from that of its output, which is freed after."""
    run.take(**{f"d_{name}_weight": weight})
    if bias:
        run.take(**{f"d_{name}_bias": bias})
    run.drop(output)


def rows_gradient(run: Schedule, output: str, size: int, copied: bool) -> str:
    """The gradient of a projection's output as contiguous rows: its name, after a copy where one is made."""
    if not copied:
        return output
    run.derive(output, **{f"{output}_rows": size})
    return f"{output}_rows"
