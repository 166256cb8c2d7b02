"""Compute the work of a call from its ledger, and the roofline bound on its time. Imports no torch."""

from dataclasses import dataclass
from functools import cache

from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.hardware import Hardware, by_device
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.records import LatencyRecord
from headcount.formulas.backward import backward
from headcount.formulas.decoding import reachable_params, step_elements
from headcount.formulas.ledger import Ledger
from headcount.models.configs.base import AttentionConfig, ModelConfig


@dataclass(frozen=True)
class Peaks:
    """Peak rates, measured in this process or of a data sheet.

    ``macs_per_s``: multiply-accumulates per second of a large product. ``bytes_per_s``: of a copy.
    ``read_bytes_per_s``: of a sum, which writes nothing; 0 where not measured.
    """

    macs_per_s: float
    bytes_per_s: float
    how: str
    read_bytes_per_s: float = 0.0

    @classmethod
    def of(cls, hardware: Hardware, dtype: str) -> "Peaks":
        """Return the rates of a data sheet for torch's ``dtype``."""
        return cls(hardware.macs_per_s[dtype], hardware.bytes_per_s, f"{hardware.name}: {hardware.source}")


@dataclass(frozen=True)
class Work:
    """Work of a call: multiply-accumulates, and elements that must be moved."""

    macs: int
    elements: int


@cache
def work(case: TimingCase, config: AttentionConfig | ModelConfig) -> Work:
    """Return the work of a call by the closed form of ``config``, the needed or the executed one of an implementation.

    A decoded token projects its own key and value and reads the cached ones.
    """
    counted = case.at_lengths(config)
    # input and output of a layer; the inputs of a model are tokens
    activations = 2 * case.tokens * config.d_model if case.subject == "layer" else 0
    if case.which == "decode":
        step = accounts.step(Case(counted.name, config, counted.lengths), case.seq_len)
        return Work(step.macs, step_elements(step) + activations)
    ledger = counted.ledger
    trains = case.which == "both"
    # each contraction once forward, twice backward (dX and dW)
    macs = ledger.macs + (backward(ledger).macs if trains else 0)
    return Work(macs, least_elements(ledger, activations, trains))


def least_elements(ledger: Ledger, activations: int, trains: bool) -> int:
    """Return the elements that any implementation moves: each used weight, input and output element once, in training
    their gradients too. ``activations``: input and output elements together."""
    weights = sum(reachable_params(entry) for entry in ledger)
    return (1 + trains) * (weights + activations)


def bound_s(macs: int, moved: int, peaks: Peaks) -> float:
    """Return the roofline bound: the longer of the seconds for ``macs`` and for ``moved`` bytes."""
    return max(macs / peaks.macs_per_s, moved / max(peaks.bytes_per_s, peaks.read_bytes_per_s))


def bound_of_record(record: LatencyRecord) -> float | None:
    """Return the roofline bound in milliseconds for a measured row on its own device, of the executed work where
    recorded.

    None without a data sheet of the device and its dtype, and for old rows without bytes.
    """
    hardware = by_device(record.environment["device"])
    if hardware is None or record.dtype not in hardware.macs_per_s or record.least_bytes is None:
        return None
    macs, moved = record.executed_macs or record.macs, record.executed_bytes or record.least_bytes
    return 1000 * bound_s(macs, moved, Peaks.of(hardware, record.dtype))
