"""Clocks, power and temperature of the GPU while a cell is measured: sampled, never set."""

import threading
from typing import Any

INTERVAL_S = 0.1


class Telemetry:
    """Samples the current GPU in the background; nothing on a CPU or without nvidia-ml-py."""

    def __init__(self, device: str) -> None:
        self.samples: list[dict[str, int]] = []
        self._stop = threading.Event()
        self._thread = None
        self._read = _reader() if device == "cuda" else None

    def __enter__(self) -> "Telemetry":
        if self._read:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def summary(self) -> dict[str, Any] | None:
        """Least and greatest of each quantity; None where nothing was sampled."""
        if not self.samples:
            return None
        return {
            name: {"min": min(s[name] for s in self.samples), "max": max(s[name] for s in self.samples)}
            for name in self.samples[0]
        } | {"samples": len(self.samples)}

    def _run(self) -> None:
        while not self._stop.is_set():
            self.samples.append(self._read())
            self._stop.wait(INTERVAL_S)


def _reader():
    try:
        import pynvml
    except ImportError:
        return None
    import torch

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    except pynvml.NVMLError:
        return None

    def read() -> dict[str, int]:
        return {
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "power_mw": pynvml.nvmlDeviceGetPowerUsage(handle),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        }

    return read
