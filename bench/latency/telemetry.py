"""Read clock, power and temperature of the GPU between the blocks of a case. Nothing is set.

A field that cannot be read is left out, and all are without nvidia-ml-py.
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

SLOW = 0.9
"""A block whose clock is below this share of the run's median is marked."""
CLOCK = "sm_clock_mhz"
FIELDS = {CLOCK: torch.cuda.clock_rate, "power_mw": torch.cuda.power_draw, "temperature_c": torch.cuda.temperature}


class Telemetry:
    """Samples of the GPU; none on a CPU. One object serves all cases of a run."""

    def __init__(self, device: str, fields: Mapping[str, Callable[[], int]] = FIELDS) -> None:
        """``fields``: functions that read a value of the current GPU, by name."""
        self.fields = dict(fields) if device == "cuda" else {}
        self.clocks: list[int] = []
        self.samples: list[dict[str, int]] = []

    def sample(self, block: int) -> None:
        """Read every field that can be read, after ``block``."""
        found = {"block": block}
        for name, read in list(self.fields.items()):
            try:
                found[name] = read()
            except Exception:
                # an unsupported field would fail each time
                del self.fields[name]
        self.samples.append(found)
        self.clocks += [found[CLOCK]] if CLOCK in found else []

    def summary(self) -> dict[str, Any] | None:
        """Return the minimum and maximum of each field, and the blocks at a slow clock, since the last summary; None
        where nothing was read."""
        samples, self.samples = self.samples, []
        if not samples or not self.fields:
            return None
        values = {name: [sample[name] for sample in samples] for name in self.fields}
        slow = SLOW * median(self.clocks or [0])
        return {
            **{name: {"min": min(own), "max": max(own)} for name, own in values.items()},
            "slow_blocks": [sample["block"] for sample in samples if sample.get(CLOCK, slow) < slow],
        }
