"""Named hardware: what its maker says it reaches, and where that is said. Importable without torch.

These are figures of data sheets, never measurements; what is derived of them is an estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """Dense rates in multiply-accumulates per second by dtype, bytes per second of the memory, and their source.

    ``device``: how torch calls it, in part.
    """

    name: str
    device: str
    macs_per_s: Mapping[str, float]
    bytes_per_s: float
    source: str


def _rates(half_tflops: float, single_tflops: float, double_tflops: float) -> dict[str, float]:
    """TFLOP/s, as data sheets print them, in MACs per second: bfloat16 and float16, float32 and float64."""
    by_dtype = {
        "bfloat16": half_tflops,
        "float16": half_tflops,
        "float32": single_tflops,
        "float64": double_tflops,
    }
    return {name: tflops * 1e12 / 2 for name, tflops in by_dtype.items()}


# tensor cores without sparsity for 16 and 64 bits, plain float32, as torch multiplies unless TF32 is allowed
HARDWARE = {
    "h200": Hardware("NVIDIA H200 SXM", "H200", _rates(989.5, 67, 67), 4.8e12, "NVIDIA H200 data sheet, SXM, dense"),
    "h100": Hardware("NVIDIA H100 SXM", "H100", _rates(989.5, 67, 67), 3.35e12, "NVIDIA H100 data sheet, SXM, dense"),
    "a100": Hardware(
        "NVIDIA A100 80GB SXM", "A100", _rates(312, 19.5, 19.5), 2.039e12, "NVIDIA A100 data sheet, 80 GB SXM, dense"
    ),
}


def by_device(device: str) -> Hardware | None:
    """The hardware that a device's name tells of; None where it tells of none."""
    return next((found for found in HARDWARE.values() if found.device in device), None)
