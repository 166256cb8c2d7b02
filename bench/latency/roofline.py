"""What the hardware could do at best: its measured peaks, and the floor that a ledger's work has under them."""

import time
from dataclasses import asdict, dataclass

import torch

from headcount.formulas.backward import backward_macs, training_macs
from headcount.formulas.decoding import reachable_params
from headcount.formulas.ledger import Ledger

ROUNDS = 5


@dataclass(frozen=True)
class Peaks:
    """Measured in this process: multiply-accumulates per second of a large product, bytes per second of a copy."""

    macs_per_s: float
    bytes_per_s: float
    how: str

    def as_dict(self) -> dict:
        """For a record."""
        return asdict(self)


def measure_peaks(device: str, dtype: torch.dtype) -> Peaks:
    """The best of ROUNDS products of random square matrices and of as many copies."""
    side, copied = (8192, 8 * 2**30) if device == "cuda" else (2048, 256 * 2**20)
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    source = torch.randn(copied // 2 // 4, device=device)
    target = torch.empty_like(source)
    macs = side**3 / _best(lambda: torch.mm(a, b), device)
    moved = 2 * source.numel() * source.element_size() / _best(lambda: target.copy_(source), device)
    name = str(dtype).removeprefix("torch.")
    return Peaks(macs, moved, f"{side}^3 {name} product, {copied // 2**20} MiB read and written, best of {ROUNDS}")


def _best(call, device: str) -> float:
    times = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def pass_macs(ledger: Ledger, which: str) -> int:
    """Multiply-accumulates of a pass: each contraction once forward, twice backward (dX and dW)."""
    account = {"backward": backward_macs, "both": training_macs}.get(which)
    return account(ledger) if account else ledger.macs


def least_bytes(ledger: Ledger, which: str, activations: int, element_bytes: int) -> int:
    """Bytes that any implementation moves: each weight that is used and each input and output element once;
    backward, their gradients as well. ``activations``: input and output elements together."""
    weights = sum(reachable_params(entry) for entry in ledger)
    factor = {"forward": 1, "decode": 1, "backward": 2, "both": 3}[which]
    return factor * (weights + activations) * element_bytes


def floor_s(macs: int, moved: int, peaks: Peaks) -> float:
    """The least time for ``macs`` and ``moved`` bytes: whichever the hardware takes longer for."""
    return max(macs / peaks.macs_per_s, moved / peaks.bytes_per_s)
