"""What the hardware could do at best, and the floor that a ledger's work has under it. Imports no torch."""

from dataclasses import asdict, dataclass
from functools import cache

from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.cells import Cell
from headcount.formulas.backward import backward_macs, training_macs
from headcount.formulas.decoding import reachable_params, step_elements
from headcount.formulas.ledger import Ledger
from headcount.models.configs.base import AttentionConfig, ModelConfig


@dataclass(frozen=True)
class Peaks:
    """Multiply-accumulates per second of a large product, bytes per second of a copy: measured in this process, or
    those of named hardware. ``read_bytes_per_s``: of a sum, which writes nothing; None where it was not measured. The
    medians beside the best of the rounds: where they are far below it, the device was not at rest."""

    macs_per_s: float
    bytes_per_s: float
    how: str
    read_bytes_per_s: float | None = None
    median_macs_per_s: float | None = None
    median_bytes_per_s: float | None = None

    @property
    def most_bytes_per_s(self) -> float:
        """The greater of what a copy and what a sum moves."""
        return max(self.bytes_per_s, self.read_bytes_per_s or 0.0)

    def as_dict(self) -> dict:
        """For a record."""
        return asdict(self)


@dataclass(frozen=True)
class Work:
    """What a call must do: multiply-accumulates, and elements that it must move; parameters of the module."""

    macs: int
    elements: int
    params: int
    active_params: int


def work(cell: Cell, spec: ArmSpec) -> Work:
    """The work that an arm needs in a cell, by the closed form of what it computes.

    Packed heads need what the ideal form counts, whatever they do beside. A decoded token is billed by the account of a
    step: its own keys and values are projected, the stored ones are read.
    """
    return _work_of(cell, spec.needed)


def executed_work(cell: Cell, spec: ArmSpec) -> Work:
    """The work that an arm does, in vain or not: where every expert runs for every token, that of them all."""
    return _work_of(cell, spec.executed)


@cache
def _work_of(cell: Cell, config: AttentionConfig | ModelConfig) -> Work:
    case = cell.case(config)
    if cell.which == "decode":
        step = accounts.step(Case(case.name, config, case.lengths), cell.seq_len)
        return Work(step.macs, step_elements(step) + _activations(cell, step), step.params, step.active_params)
    ledger = case.ledger
    elements = least_elements(ledger, cell.which, _activations(cell, ledger))
    return Work(pass_macs(ledger, cell.which), elements, ledger.params, ledger.active_params)


def _activations(cell: Cell, ledger: Ledger) -> int:
    """Input and output elements of a layer; a model's are tokens."""
    if cell.subject != "layer":
        return 0
    width = next(entry.dims["d_m"] for entry in ledger if "d_m" in entry.dims)
    return 2 * cell.tokens * width


def pass_macs(ledger: Ledger, which: str) -> int:
    """Multiply-accumulates of a pass: each contraction once forward, twice backward (dX and dW)."""
    account = {"backward": backward_macs, "both": training_macs}.get(which)
    return account(ledger) if account else ledger.macs


def least_elements(ledger: Ledger, which: str, activations: int) -> int:
    """Elements that any implementation moves: each weight that is used and each input and output element once.

    Backward, gradients of all of them as well, and the weights themselves; forward and backward together read a weight
    once, write its gradient, and move inputs, outputs and their gradients once each. ``activations``: input and output
    elements together.
    """
    weights = sum(reachable_params(entry) for entry in ledger)
    of_weights, of_activations = {"forward": (1, 1), "backward": (2, 1), "both": (2, 2)}[which]
    return of_weights * weights + of_activations * activations


def floor_s(macs: int, moved: int, peaks: Peaks) -> float:
    """The least time for ``macs`` and ``moved`` bytes: whichever the hardware takes longer for."""
    return max(macs / peaks.macs_per_s, moved / peaks.most_bytes_per_s)
