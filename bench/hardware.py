"""Data sheets of named hardware: peak rates and memory bandwidth as the maker states them. Importable without torch.

These are figures of data sheets, never measurements; what is computed from them is an estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """One data sheet: dense TFLOP/s as printed, for numbers of 16, 32 and 64 bits, and bytes of memory per second.

    16 and 64 bits are on tensor cores without sparsity, 32 bits plain float32, as torch multiplies unless TF32 is
    allowed. ``device`` is the whole name that torch.cuda.get_device_name() gives this card. Cards of the same chip with
    another memory or power limit (PCIe, NVL, 40 GB) have other names and other figures.
    """

    name: str
    device: str
    tflops: tuple[float, float, float]
    bytes_per_s: float
    source: str

    @property
    def macs_per_s(self) -> Mapping[str, float]:
        """Multiply-accumulates per second by dtype."""
        half, single, double = (tflops * 1e12 / 2 for tflops in self.tflops)
        return {"bfloat16": half, "float16": half, "float32": single, "float64": double}


_HOPPER = (989.5, 67, 67)
_AMPERE = (312, 19.5, 19.5)
HARDWARE = {
    "h200": Hardware("NVIDIA H200 SXM", "NVIDIA H200", _HOPPER, 4.8e12, "NVIDIA H200 data sheet, SXM, dense"),
    "h100": Hardware(
        "NVIDIA H100 SXM", "NVIDIA H100 80GB HBM3", _HOPPER, 3.35e12, "NVIDIA H100 data sheet, SXM, dense"
    ),
    "a100": Hardware(
        "NVIDIA A100 80GB SXM", "NVIDIA A100-SXM4-80GB", _AMPERE, 2.039e12, "NVIDIA A100 data sheet, 80 GB SXM, dense"
    ),
}


def by_device(device: str) -> Hardware | None:
    """Return the data sheet of the card that torch calls ``device``; None for every other name."""
    return next((found for found in HARDWARE.values() if found.device == device), None)
