"""Read clocks, power and temperature of the GPU between the blocks of a case. Nothing is set.

A field that cannot be read is left out and reported.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from statistics import median
from typing import Any

SLOW = 0.9
"""A block whose clock is below this share of the run's median is marked."""
CLOCK, REASONS = "sm_clock_mhz", "throttle_reasons"


class Telemetry:
    """Samples of the GPU; none on a CPU or without nvidia-ml-py. One object serves all cases of a run."""

    def __init__(self, device: str, fields: Mapping[str, Callable[[], int]] | None = None) -> None:
        """``fields``: functions that read a value, by name (default: those of the current GPU)."""
        self.fields = dict(_nvml() if fields is None and device == "cuda" else fields or {})
        self.failed: dict[str, str] = {}
        self.clocks: list[int] = []
        self.samples: list[dict[str, int]] = []

    def sample(self, block: int) -> None:
        """Read every field that can be read, after ``block``."""
        found = {}
        for name, read in list(self.fields.items()):
            try:
                found[name] = read()
            except Exception as error:
                # an unsupported field would fail each time
                del self.fields[name]
                self.failed[name] = str(error) or type(error).__name__
        if found:
            self.samples.append(found | {"block": block})
        if CLOCK in found:
            self.clocks.append(found[CLOCK])

    def summary(self) -> dict[str, Any] | None:
        """Return the minimum and maximum of each field, the union of throttle reasons, and the blocks at a slow clock,
        of the samples since the last summary; None without a sample."""
        samples, self.samples = self.samples, []
        if not samples:
            return None
        out: dict[str, Any] = {"samples": len(samples), "failed": dict(self.failed)}
        for name in dict.fromkeys(name for sample in samples for name in sample if name != "block"):
            values = [sample[name] for sample in samples if name in sample]
            out[name] = reduce(or_, values) if name == REASONS else {"min": min(values), "max": max(values)}
        slow = SLOW * median(self.clocks or [0])
        out["slow_blocks"] = [s["block"] for s in samples if CLOCK in s and s[CLOCK] < slow]
        return out


def _nvml() -> dict[str, Callable[[], int]]:
    import torch

    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        # NVML counts every GPU of the machine, torch those of CUDA_VISIBLE_DEVICES
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    except pynvml.NVMLError:
        return {}
    return {
        CLOCK: lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "power_mw": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "power_limit_mw": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        REASONS: lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
